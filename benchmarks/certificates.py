"""How many `unsat` answers come with a certificate that checks, how large they are, and what they cost.

    python benchmarks/certificates.py INSTANCES.csv --out certificates.csv [--category acasxu ...] [--timeout 60]

INSTANCES has the columns id, category, onnx, vnnlib and expected, with paths relative to it; those expected to be
unsat are run, or `--sample` of each category, evenly spaced. Rows that are in the output already are not run again.
Seconds are processor seconds, so that other work on the machine counts for little.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

FIELDS = ("id", "category", "verdict", "find", "write", "check", "bytes", "result", "note")
COMMAND = [sys.executable, "-c", "from verifolio.cli.main import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("instances", type=Path)
    parser.add_argument("--out", type=Path, default=Path("certificates.csv"))
    parser.add_argument("--category", nargs="*", default=[])
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--sample", type=int, default=0, help="so many of each category; 0: all")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, run nothing")
    options = parser.parse_args()
    with options.instances.open() as file:
        wanted = [r for r in csv.DictReader(file) if r["expected"] == "unsat"]
    wanted = [r for r in wanted if not options.category or r["category"] in options.category]
    if options.sample:
        wanted = sample(wanted, options.sample)
    done = rows_of(options.out)
    for row in [] if options.table else [r for r in wanted if r["id"] not in done]:
        done[row["id"]] = examine(options.instances.parent, row, options.timeout)
        keep(options.out, done[row["id"]])
    table([r for r in done.values() if not options.category or r["category"] in options.category])


def sample(rows: list[dict[str, str]], count: int) -> list[dict[str, str]]:
    """So many of each category, evenly spaced, one of each category after the other."""
    chosen = []
    for name in dict.fromkeys(r["category"] for r in rows):
        mine = [r for r in rows if r["category"] == name]
        places = sorted({round(k * (len(mine) - 1) / max(count - 1, 1)) for k in range(count)})
        chosen += list(enumerate(mine[k] for k in places))
    return [row for _, row in sorted(chosen, key=lambda c: c[0])]


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    with path.open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def keep(path: Path, row: dict[str, Any]) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def examine(folder: Path, instance: dict[str, str], timeout: float) -> dict[str, Any]:
    """Find a proof, write its certificate, check it in a process of its own."""
    files = [str(folder / instance[name]) for name in ("onnx", "vnnlib")]
    row: dict[str, Any] = {"id": instance["id"], "category": instance["category"]}
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "certificate.gz"
        asked = [*COMMAND, "verify", *files, "--certificate", str(target), "--json", "--cores", "1"]
        asked += ["--timeout", str(timeout)]
        code, text, spent = run(asked, 20 * timeout + 60)
        if not text.startswith("{"):
            return {**row, "verdict": "", "result": "no answer", "note": f"{code} {text}"[:200]}
        answer = json.loads(text)
        said = answer["stats"].get("certificate", answer["reason"] or "no certificate")
        writing = float(answer["stats"].get("certificate_seconds", 0))
        row |= {"verdict": answer["verdict"], "find": round(spent - writing, 2), "write": round(writing, 2)}
        if not target.exists():
            return {**row, "result": "not written", "note": said[:200]}
        code, text, seconds = run([*COMMAND, "check", *files, str(target)], 20 * timeout)
        row |= {"check": round(seconds, 2), "bytes": target.stat().st_size}
        return {
            **row,
            "result": "valid" if code == 0 else "not valid",
            "note": "" if code == 0 else text[:200],
        }


def run(command: list[str], limit: float) -> tuple[int, str, float]:
    """Exit code, output and processor seconds."""
    began = spent()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return -1, f"no end after {limit:.0f} s", limit
    return done.returncode, (done.stdout or done.stderr).strip(), spent() - began


def spent() -> float:
    """Processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(rows: list[dict[str, Any]]) -> None:
    """Shares and medians by category, then what is missing and why."""
    print(f"{'category':20}  run  valid   find s  write s  check s       kB  largest kB")
    for name in sorted({r["category"] for r in rows}):
        mine = [r for r in rows if r["category"] == name]
        good = [r for r in mine if r["result"] == "valid"]
        times = [[float(r[f]) for r in good] for f in ("find", "write", "check")]
        middle = [f"{median(t):8.2f}" if t else "       -" for t in times]
        sizes = [float(r["bytes"]) / 1000 for r in good] or [0.0]
        print(
            f"{name:20} {len(mine):4} {len(good):6} {' '.join(middle)} {median(sizes):8.1f} {max(sizes):11.1f}"
        )
    for r in rows:
        if r["result"] != "valid":
            print(f"{r['id']}: {r['verdict']}: {r['result']}: {r['note']}")


if __name__ == "__main__":
    main()
