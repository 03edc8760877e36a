"""How many known counterexamples the falsifiers find: every `sat` instance of a set, in this process.

    python benchmarks/falsify.py DATA [--seconds 20] [--only CATEGORY] [--also-unsat] [--verifier pgd]

DATA is a folder with an `instances.csv` whose columns include id, category, onnx, vnnlib and expected.
Every counterexample is replayed in ONNX Runtime and compared with the property's text before it counts.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from pathlib import Path

from verifolio.errors import VerifolioError
from verifolio.model.answer import Witness
from verifolio.model.query import Query
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.run.budget import Budget
from verifolio.trust.referee import judge_counterexample, replay


def attack(
    row: dict[str, str], root: Path, verifier: str, seconds: float, seed: int
) -> tuple[str, float, str]:
    """Verdict (sat, unknown or error), seconds after loading, and what there is to say."""
    try:
        query = Query.from_files([root / row["onnx"]], root / row["vnnlib"])
        problems = query.problems
    except VerifolioError as error:
        return "error", 0.0, str(error).splitlines()[0][:150]
    member = current_plugins().verifiers.get(verifier)()
    context = Context(
        budget=Budget(seconds), check=lambda x: isinstance(replay(query, x), Witness), seed=seed
    )
    begin = time.monotonic()
    outcomes = member.run_many(problems, context)
    took = time.monotonic() - begin
    for outcome in outcomes:
        witness = None if outcome.point is None else judge_counterexample(query, outcome.point)
        if isinstance(witness, Witness):
            flags = " ".join(sorted(witness.flags))
            return "sat", took, f"margin {min(witness.margins, default=0):.2g} {flags}"
    return "unknown", took, outcomes[0].reason if outcomes else "no input region"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--also-unsat", action="store_true")
    parser.add_argument("--verifier", default="pgd")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    wrong = 0
    with (options.data / "instances.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["id"].startswith(options.only)]
    for row in rows:
        if row["expected"] != "sat" and not options.also_unsat:
            continue
        verdict, took, note = attack(row, options.data, options.verifier, options.seconds, options.seed)
        wrong += verdict == "sat" and row["expected"] == "unsat"
        if row["expected"] == "sat":
            found[row["category"]][0] += verdict == "sat"
            found[row["category"]][1] += 1
        print(f"{row['id']:26} expected {row['expected']:8} {verdict:8} {took:6.2f} s  {note}", flush=True)
    for category, (hits, total) in found.items():
        print(f"{category:22} {hits:3} / {total}")
    hits, total = (sum(pair[i] for pair in found.values()) for i in (0, 1))
    print(f"found {hits} / {total}; sat on unsat: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
