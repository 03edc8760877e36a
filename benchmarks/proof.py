"""Both checkers of certificates on the same files: the one in Python and the one that is proved in Coq.

    python benchmarks/proof.py INSTANCES.csv --out proof.csv [--category acasxu] [--timeout 60] [--changes 20]

Needs `make proof`. INSTANCES has the columns id, category, onnx, vnnlib and expected, with paths relative to it;
those expected to be unsat are verified with a certificate, which both check. `--changes` more are made of each by
changing a character, and both checkers have to agree on those as well. Rows that are there are not run again. Seconds
are those of the processor. Exit code 4 if the checkers disagree anywhere.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from verifolio.testing.clock import children_seconds
from verifolio.testing.damage import damaged

HERE = Path(__file__).resolve().parent
FIELDS = (
    "id",
    "category",
    "verdict",
    "find",
    "python",
    "python_seconds",
    "proved",
    "proved_seconds",
    "leaves",
    "changed",
    "differ",
)
LIMIT = 1800.0  # seconds of the clock for one certificate and the proved checker
WORDS = {0: "valid", 2: "unreadable", 5: "not valid"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances", type=Path)
    parser.add_argument("--out", type=Path, default=Path("proof.csv"))
    parser.add_argument("--category", nargs="*", default=["acasxu", "mnist_fc"])
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--changes", type=int, default=0)
    parser.add_argument("--most", type=int, default=0, help="so many more rows at most; 0: all")
    given = parser.parse_args()
    with given.instances.open(newline="") as stream:
        wanted = [
            r for r in csv.DictReader(stream) if r["expected"] == "unsat" and r["category"] in given.category
        ]
    done = rows_of(given.out)
    todo = [r for r in wanted if r["id"] not in done]
    for row in todo[: given.most or None]:
        found = examine(given.instances.parent, row, given)
        keep(given.out, found)
        print(" ".join(f"{found[f]}" for f in FIELDS), flush=True)
    rows = list(rows_of(given.out).values())
    for category in given.category:
        report([r for r in rows if r["category"] == category], category)
    sys.exit(4 if any(int(r["differ"]) for r in rows) else 0)


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    with path.open(newline="") as stream:
        return {r["id"]: r for r in csv.DictReader(stream)}


def keep(path: Path, row: dict[str, Any]) -> None:
    new = not path.is_file()
    with path.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def examine(root: Path, row: dict[str, str], given: argparse.Namespace) -> dict[str, Any]:
    net, prop = root / row["onnx"], root / row["vnnlib"]
    found: dict[str, Any] = dict.fromkeys(FIELDS, "") | {
        "id": row["id"],
        "category": row["category"],
        "changed": 0,
        "differ": 0,
    }
    with tempfile.TemporaryDirectory() as scratch:
        file, other = Path(scratch) / "c.gz", Path(scratch) / "changed.gz"
        command = [
            sys.executable,
            "-m",
            "verifolio",
            "verify",
            str(net),
            str(prop),
            "--certificate",
            str(file),
        ]
        began = children_seconds()
        said = subprocess.run(
            [*command, "--timeout", str(given.timeout)], capture_output=True, text=True, check=False
        )
        found["verdict"], found["find"] = (
            (said.stdout.split() or ["error"])[0],
            round(children_seconds() - began, 2),
        )
        if not file.is_file():
            return found
        text = gzip.decompress(file.read_bytes())
        found["leaves"] = text.count(b".")
        found["python"], found["python_seconds"] = python_says(net, prop, file)
        found["proved"], found["proved_seconds"] = proved_says(net, prop, file)
        found["differ"] = int(found["proved"] != "out of time" and found["python"] != found["proved"])
        rng = random.Random(row["id"])
        for _ in range(given.changes):
            other.write_bytes(gzip.compress(damaged(text, rng)))
            ours, theirs = python_says(net, prop, other)[0], proved_says(net, prop, other)[0]
            found["changed"] += 1
            found["differ"] += (ours == "valid") != (theirs == "valid")
    return found


def python_says(net: Path, prop: Path, file: Path) -> tuple[str, float]:
    began = children_seconds()
    command = [sys.executable, "-m", "verifolio_check.main", str(net), str(prop), str(file)]
    code = subprocess.run(command, capture_output=True, check=False).returncode
    return WORDS.get(code, f"exit code {code}"), round(children_seconds() - began, 2)


def proved_says(net: Path, prop: Path, file: Path) -> tuple[str, float]:
    began = children_seconds()
    try:
        code, _ = check_module().run(net, prop, file, check_module().PROGRAM, LIMIT)
    except subprocess.TimeoutExpired:
        return "out of time", round(children_seconds() - began, 2)
    return WORDS.get(code, f"exit code {code}"), round(children_seconds() - began, 2)


def check_module() -> Any:
    """`proof/check.py`, which is a script and in no package."""
    name = "verifolio_proof_check"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE.parent / "proof" / "check.py")
        if spec is None or spec.loader is None:
            sys.exit("proof/check.py: expected a file, got none")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def report(rows: list[dict[str, str]], category: str) -> None:
    written = [r for r in rows if r["python"]]
    both = [r for r in written if r["python"] == r["proved"] == "valid"]
    slowest = max((float(r["proved_seconds"]) for r in both), default=0.0)
    print(
        f"{category}: {len(rows)} instances, {len(written)} certificates, {len(both)} valid by both, "
        f"slowest {slowest:.0f} s; "
        f"{sum(int(r['changed']) for r in rows)} changed ones, {sum(int(r['differ']) for r in rows)} differences"
    )


if __name__ == "__main__":
    main()
