"""How many `unsat` answers come with a certificate that checks, how large they are, and what they cost.

    python benchmarks/certificates.py INSTANCES.csv --out certificates.csv [--category acasxu ...] [--timeout 60]

INSTANCES has the columns id, category, onnx, vnnlib and expected, with paths relative to it; those expected to be
unsat are run, or `--sample` of each category, evenly spaced. Rows that are in the output already are not run again.
Seconds are processor seconds, so that other work on the machine counts for little; `--timeout` is the search's by the
clock. Searches run in one worker, the checker in a process of its own for each file.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from verifolio.errors import VerifolioError
from verifolio.model.query import Query
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.certifying import Certifying
from verifolio.solve.oracle import Oracle

FIELDS = ("id", "category", "find", "write", "check", "bytes", "result", "note")
COMMAND = [sys.executable, "-m", "verifolio_check.main"]
LIMIT = 3600.0  # seconds by the clock of one check
Row = dict[str, Any]


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
    todo = [] if options.table else [r for r in wanted if r["id"] not in done]
    with Oracle(single_verifier("crown"), workers=1) as oracle:
        for row in todo:
            done[row["id"]] = examine(options.instances.parent, row, options, oracle)
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


def rows_of(path: Path) -> dict[str, Row]:
    if not path.exists():
        return {}
    with path.open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def keep(path: Path, row: Row) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def examine(folder: Path, instance: dict[str, str], options: argparse.Namespace, oracle: Oracle) -> Row:
    """Find a proof and write its certificate in a worker, check it in a process of its own."""
    files = [folder / instance[name] for name in ("onnx", "vnnlib")]
    row: Row = {"id": instance["id"], "category": instance["category"]}
    try:
        query = Query.from_files([files[0]], files[1])
        made = Certifying(oracle).make(query, options.timeout, files[1].read_bytes())
    except VerifolioError as error:
        return {**row, "result": "not written", "note": str(error)[:200]}
    row |= {"find": round(made.find, 2), "write": round(made.write, 2)}
    if not made.data:
        return {**row, "result": "not written", "note": made.reason[:200]}
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "certificate.gz"
        target.write_bytes(made.data)
        code, text, seconds = run([*COMMAND, *map(str, files), str(target)], LIMIT)
    row |= {"check": round(seconds, 2), "bytes": len(made.data)}
    valid = code == 0
    return {**row, "result": "valid" if valid else "not valid", "note": "" if valid else text[:200]}


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


def table(rows: list[Row]) -> None:
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
            print(f"{r['id']}: {r['result']}: {r['note']}")


if __name__ == "__main__":
    main()
