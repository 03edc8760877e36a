"""Two versions of verifolio on the same instances, each instance by both in turn, so that load weighs on both alike.

    python benchmarks/interleave.py DATA --old OLD/.venv/bin/python --new NEW/.venv/bin/python [--whole] [--out FILE]

DATA is a folder with `instances.csv` (id, category, onnx, vnnlib, timeout, expected). Every run is one `verifolio
verify` with the default portfolio; its seconds are those of all its processes on the processor. Rows are written as
they come, so that an interrupted run continues. Exit code 4 if the new version contradicts what is expected.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import math
import subprocess
import sys
import time
from pathlib import Path

from verifolio.plugins.bench.instances import Instance, read_instances, select
from verifolio.testing.clock import children_seconds, reap_children

SHORT = Path(__file__).resolve().parent / "short.csv"
FIELDS = ("id", "version", "verdict", "processor_seconds", "seconds")
DECIDED = ("sat", "unsat")
PR_SET_CHILD_SUBREAPER = 36  # from Linux's prctl.h: processes whose parents are gone become our children
GRACE = 60.0  # seconds beyond the limit after which a run counts as hung


def measure(python: str, instance: Instance, cap: float, cores: int) -> tuple[str, float, float]:
    """The verdict of one run, its processor seconds and its seconds."""
    command = [python, "-P", "-c", "from verifolio.cli.main import main; main()", "verify"]
    command += [*(str(path) for _, path in instance.networks), str(instance.specification)]
    command += ["--timeout", str(min(cap, instance.timeout)), "--cores", str(cores)]
    before, began = children_seconds(), time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=cap + GRACE)
        verdict = (done.stdout.split() or ["error"])[0]
    except subprocess.TimeoutExpired:
        verdict = "hung"
    seconds = time.monotonic() - began
    reap_children()
    return verdict, children_seconds() - before, seconds


def load(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["id"], row["version"]): row for row in csv.DictReader(file)}


def record(instances: list[Instance], options: argparse.Namespace) -> dict[tuple[str, str], dict[str, str]]:
    """Run what is missing; who goes first alternates."""
    path = Path(options.out)
    rows = load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for k, instance in enumerate(instances):
            for version in ("old", "new") if k % 2 else ("new", "old"):
                if (instance.id, version) in rows:
                    continue
                found = measure(getattr(options, version), instance, options.cap, options.cores)
                cells = (instance.id, version, found[0], f"{found[1]:.3f}", f"{found[2]:.3f}")
                rows[instance.id, version] = dict(zip(FIELDS, cells, strict=True))
                writer.writerow(rows[instance.id, version])
                file.flush()
                print("\t".join(cells), file=sys.stderr, flush=True)
    return rows


def show(instances: list[Instance], rows: dict[tuple[str, str], dict[str, str]]) -> int:
    """What each version decides, and the geometric mean of the ratios of processor seconds."""
    logs: list[float] = []
    wrong = 0
    decided = {"old": set[str](), "new": set[str]()}
    for instance in instances:
        pair = {v: rows[instance.id, v] for v in decided}
        for version, row in pair.items():
            if row["verdict"] in DECIDED:
                decided[version].add(instance.id)
                if instance.expected in DECIDED and row["verdict"] != instance.expected:
                    print(f"wrong\t{version}\t{instance.id}\t{row['verdict']}, expected {instance.expected}")
                    wrong += version == "new"
        if all(row["verdict"] in DECIDED for row in pair.values()):
            new, old = (float(pair[v]["processor_seconds"]) for v in ("new", "old"))
            logs.append(math.log(new / old))
    print(f"instances\t{len(instances)}")
    for version, ids in decided.items():
        print(f"decided by {version}\t{len(ids)}")
    print("only old\t" + " ".join(sorted(decided["old"] - decided["new"])))
    print("only new\t" + " ".join(sorted(decided["new"] - decided["old"])))
    if logs:
        mean = math.exp(sum(logs) / len(logs))
        print(f"processor seconds, new / old, geometric mean over {len(logs)}\t{mean:.3f}")
    return 4 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--old", required=True, help="the Python that has the old version")
    parser.add_argument("--new", default=sys.executable, help="the Python that has the new one (this one)")
    parser.add_argument("--whole", action="store_true", help="all instances, not the short list")
    parser.add_argument("--only", default="", help="other ids or categories, with commas")
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", default="out/interleave.csv")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    only = options.only or ("" if options.whole else str(SHORT))
    instances = list(select(read_instances(options.data / "instances.csv"), only))
    return show(instances, record(instances, options))


if __name__ == "__main__":
    raise SystemExit(main())
