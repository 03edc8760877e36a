"""Points of recorded rows as the organisers' own scripts give them.

    python -m benchmarks.vnncomp_judge DATA --scripts FOLDER [--rows FILE] [--witnesses FOLDER]

FOLDER of `--scripts` is the organisers' folder of scoring scripts (`counterexamples.py`, `process_results.py` and
`settings.py`, of their repository of results; the folders that `settings.py` names must exist), with the module
`vnnlib` that they use beside them. Nothing of it is part of this project. A counterexample that
`benchmarks/vnncomp.py` kept is checked by `get_ce_diff` with the competition's tolerances, and `get_score` gives the
points of every row. Whether an `unsat` contradicts a counterexample of another tool is not asked here but by
`benchmarks/vnncomp.py`. Exit code 4 if an answer gets a penalty.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.vnncomp import ROWS, WITNESSES, Row, load, read_layout, witness_file
from verifolio.plugins.bench.instances import Instance

OURS = "verifolio"
SAID = {"sat": "violated", "unsat": "holds"}  # the scripts' words


class Judge:
    """The organisers' functions, run in their folder, whose prints are nobody's to read."""

    def __init__(self, scripts: Path) -> None:
        sys.path.insert(0, str(scripts))
        with contextlib.chdir(scripts):
            self.check: Any = import_module("counterexamples").get_ce_diff
            self.score: Any = import_module("process_results").get_score
            self.settings: Any = import_module("settings").Settings

    def points(self, instance: Instance, row: Row, witness: Path) -> tuple[int, str]:
        """The points of a row, and what the check says of its counterexample."""
        said = {name: SAID.get(claim, claim) for name, (claim, _) in instance.claims.items()}
        said[OURS] = SAID.get(row.verdict, "unknown")
        checks: dict[str, str] = {}
        # the scripts keep a cache in the folder they run in
        with (
            TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            if said[OURS] == "violated":
                files = (str(instance.networks[0][1]), str(instance.specification), str(witness))
                tolerances = (self.settings.COUNTEREXAMPLE_ATOL, self.settings.COUNTEREXAMPLE_RTOL)
                checks[OURS] = self.check(*files, *tolerances)[0]
            times = {word: [row.seconds for tool in said if said[tool] == word] for word in SAID.values()}
            given = (said[OURS], row.seconds, False, times["holds"], times["violated"], checks)
            points = int(self.score(OURS, *given)[0])
        return points, checks.get(OURS, "")


def show(judge: Judge, pairs: Sequence[tuple[Instance, Row]], witnesses: Path) -> int:
    """Print points per category; 4 where one of ours gets a penalty."""
    totals: dict[str, int] = defaultdict(int)
    checks: Counter[str] = Counter()
    bad = 0
    for instance, row in pairs:
        witness = witness_file(witnesses, instance)
        if row.verdict == "sat" and not witness.exists():
            checks["not kept"] += 1
            continue
        points, check = judge.points(instance, row, witness)
        totals[row.category] += points
        checks[check] += bool(check)
        if points < 0:
            bad += 1
            print(f"PENALTY: {instance.id}: {row.verdict} {check}")
    for category, points in sorted(totals.items()):
        print(f"{category}\t{points}")
    print(f"all\t{sum(totals.values())}")
    print(
        "counterexamples\t" + ", ".join(f"{name} {count}" for name, count in sorted(checks.items()) if name)
    )
    return 4 if bad else 0


def chosen(data: Path, rows: Mapping[tuple[str, str, str], Row]) -> list[tuple[Instance, Row]]:
    """The recorded instances of one network, which is what the scripts know."""
    every = {(i.category, i.onnx, i.vnnlib): i for i in read_layout(data)}
    return [(every[key], row) for key, row in rows.items() if key in every and len(every[key].networks) == 1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scripts", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--witnesses", type=Path, default=WITNESSES)
    options = parser.parse_args(arguments)
    pairs = chosen(options.data.resolve(), load(options.rows))
    return show(Judge(options.scripts.resolve()), pairs, options.witnesses.resolve())


if __name__ == "__main__":
    raise SystemExit(main())
