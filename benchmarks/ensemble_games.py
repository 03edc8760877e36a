"""Tables like those of Gross et al. 2020: one game per line, solved in seven ways, each with its own clock.

    python benchmarks/ensemble_games.py [--networks FOLDER] [--out FILE.jsonl] [--kind KIND]... [--method METHOD]...

The networks are those of examples/ensemble/make_pairs.py, which is run if FOLDER has none: two or three classifiers
of two kinds of images, 6 x 6 to 10 x 10 pixels, dense or with two convolutions, ending in ReLU; L1 balls. The rows
carry the numbers of tables 4 to 6; where other networks need another radius to be attackable, it is changed, and
rows with a + are added, because at the paper's radii presolving alone shows robustness. Radii are in units of 1/255.

`exact` is the value by decomposition, `verdict` the same stopped at the comparison with alpha; `smt`, `milp`,
`maxmilp`, `uniform` (UA) and `deterministic` (BDA) are the paper's methods. All run in one process, after a
small game that loads libraries and networks for all of them; a clock covers everything from networks and points in
memory to the checked answer. Runs below a second are repeated twice, and the middle one counts. The programs may
take twenty times as long as the exact value did, but 60 s at least and 600 s at most. Every result is kept in
FILE, so a stopped run continues.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from verifolio.data import load_data
from verifolio.onnx_import.network import Network
from verifolio.plugins.ensemble.attack import (
    AttackOptions,
    AttackRequest,
    AttackResult,
    EnsembleAttack,
    Method,
)
from verifolio.plugins.ensemble.commands import after_attacks
from verifolio.plugins.ensemble.replay import make_references
from verifolio.solve.oracle import Oracle

SCRIPT = Path(__file__).parents[1] / "examples" / "ensemble" / "make_pairs.py"
# exact and milp first: what they are compared for is known before the slow ones begin
WAYS = ("exact", "verdict", "milp", "uniform", "deterministic", "maxmilp", "smt")
PROGRAMS = ("milp", "maxmilp", "smt")
Row = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One game: its number, its kind, which networks, how many attacks and points, the level, the radius."""

    number: str
    kind: str
    name: str
    attacks: int
    alpha: str
    epsilon: float
    points: int = 4


LINES = (
    Line("1", "attackable", "mnist-0-1-7x7", 2, "0.1", 1000),
    Line("2", "attackable", "mnist-0-1-7x7", 2, "0.2", 400),
    Line("3", "attackable", "mnist-0-1-8x8-convs", 2, "0.2", 1000),
    Line("4", "attackable", "mnist-0-1-8x8-convs", 2, "0.4", 200),
    Line("6", "attackable", "mnist-0-1-8x8-convs", 3, "0.9", 1000),
    Line("7", "attackable", "mnist-0-1-8x8", 2, "0.4", 1000),
    Line("9", "attackable", "mnist-0-1-8x8", 3, "0.9", 1000),
    Line("12", "attackable", "mnist-4-5-10x10", 4, "0.3", 400),
    Line("14", "attackable", "mnist-7-8-6x6", 4, "0.1", 100),
    Line("15", "attackable", "mnist-7-8-6x6", 10, "0.1", 100),
    Line("16", "attackable", "mnist-4-5-10x10", 2, "0.1", 1000),
    Line("22", "robust", "mnist-7-8-6x6", 2, "0.9", 0.1),
    Line("23", "robust", "mnist-7-8-6x6", 7, "0.9", 0.3),
    Line("+a", "robust", "mnist-7-8-6x6", 3, "0.9", 50),
    Line("+b", "robust", "mnist-0-1-8x8", 3, "0.9", 200),
    Line("+c", "robust", "mnist-0-1-8x8-convs", 3, "0.4", 100),
    Line("20", "alpha 1", "mnist-3-6-8x8", 9, "1", 0.005, 2),
    Line("21", "alpha 1", "mnist-7-8-6x6", 2, "1", 0.1),
    Line("26", "alpha 1", "fashion-5-7-10x10-convs", 2, "1", 0.01),
    Line("27", "alpha 1", "fashion-5-7-10x10-convs", 2, "1", 0.1),
    Line("28", "alpha 1", "fashion-5-7-10x10-convs", 3, "1", 0.01),
    Line("+d", "alpha 1", "mnist-0-1-8x8", 2, "1", 200),
    Line("+e", "alpha 1", "mnist-4-5-10x10", 2, "1", 400),
    Line("24", "many attacks", "mnist-0-2-9x9", 27, "1", 0.01),
    Line("25", "many attacks", "mnist-0-2-9x9", 30, "1", 0.01),
    Line("+f", "many attacks", "mnist-0-2-9x9", 27, "0.4", 400),
    Line("+g", "many attacks", "mnist-0-2-9x9", 30, "1", 100),
)


def clocks() -> tuple[float, float]:
    """Seconds on the wall, and of the processor, children included."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.monotonic(), sum(u.ru_utime + u.ru_stime for u in used)


def request_of(line: Line, folder: Path) -> AttackRequest:
    networks = tuple(Network.load(p) for p in sorted(folder.glob(f"{line.name}-?.onnx")))
    data = load_data(str(folder / f"{line.name}.npz"))
    references = make_references(data, range(line.points), line.epsilon / 255, 1.0)
    return AttackRequest(networks, tuple(references), Fraction(line.alpha))


def solve(
    request: AttackRequest, way: str, attacks: int, seconds: float
) -> tuple[AttackResult, float, float]:
    """The result and both clocks. Nothing that another run found out is known to this one."""
    method = Method.DECOMPOSITION if way in ("exact", "verdict") else Method(way)
    options = AttackOptions(method, attacks, way == "exact", seconds)
    # in this process, as the programs are: the clocks then compare methods, not how workers start
    with Oracle(after_attacks(1.0), "inline", timeout=min(60.0, seconds)) as oracle:
        wall, cpu = clocks()
        result = EnsembleAttack(options).run(request, oracle)
        end = clocks()
    return result, end[0] - wall, end[1] - cpu


def warm(line: Line, way: str, folder: Path) -> None:
    """Load libraries and networks by a game of one point in a ball of another size."""
    solve(request_of(Line("", "", line.name, 1, "1", 60, 1), folder), way, 1, 5.0)


def play(line: Line, way: str, folder: Path, seconds: float) -> Row:
    """One way to solve one game."""
    request = request_of(line, folder)
    runs = [solve(request, way, line.attacks, seconds)]
    while runs[0][1] < 1.0 and len(runs) < 3:
        runs.append(solve(request, way, line.attacks, seconds))
    result, wall, cpu = sorted(runs, key=lambda r: r[2])[len(runs) // 2]
    return _key(line, way) | {
        "limit": seconds,
        "verdict": result.verdict.value,
        "lower": str(result.value_lower),
        "upper": str(result.value_upper),
        "wall": round(wall, 4),
        "cpu": round(cpu, 4),
        "late": wall > seconds - 1,
        "note": result.reason,
    }


def run_way(way: str, lines: Sequence[Line], done: list[Row], options: argparse.Namespace) -> None:
    """All games in one way, unless they are done."""
    for line in lines:
        if found(done, line, way) is None:
            exact = found(done, line, "exact")
            limit = min(options.most, max(options.seconds, 20 * exact["wall"] if exact else 0.0))
            warm(line, way, options.networks)
            row = play(line, way, options.networks, limit if way in PROGRAMS else options.most)
            done.append(row)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"# {line.number} {line.name} {way}: {cell(row)}", file=sys.stderr, flush=True)


def found(done: Sequence[Row], line: Line, way: str) -> Row | None:
    wanted = _key(line, way)
    return next((row for row in done if wanted.items() <= row.items()), None)


def _key(line: Line, way: str) -> Row:
    names = ("name", "attacks", "alpha", "epsilon", "points")
    return {n: getattr(line, n) for n in names} | {"way": way}


def value(row: Row) -> str:
    """The value that the attacks reach; an interval where it is not known exactly."""
    low, high = Fraction(row["lower"]), Fraction(row["upper"])
    return (
        f"{float(low):.3g}"
        if low == high or row["way"] != "exact"
        else f"{float(low):.3g}..{float(high):.3g}"
    )


def cell(row: Row | None) -> str:
    """What came out, and the processor's seconds."""
    if row is None:
        return "-"
    if row["late"]:
        return f"out of time ({row['limit']:.0f} s) / {row['cpu']:.3g}"
    said = "robust" if row["verdict"] == "robust" and row["way"] != "exact" else value(row)
    if row["verdict"] == "unknown" and row["way"] in PROGRAMS:
        said = "no such attack" if "may be needed" in row["note"] else "unknown"
    return f"{said} / {row['cpu']:.3g}"


def share(row: Row | None, milp: Row | None) -> str:
    """A time as a part of the program's, by the processor's clock."""
    if row is None or milp is None:
        return "-"
    return f"{'< ' if milp['late'] else ''}{row['cpu'] / milp['cpu']:.3f}"


def report(lines: Sequence[Line], done: Sequence[Row]) -> None:
    """One line per game: what every way said / seconds of the processor, and the shares of the program's time."""
    titles = ("id", "kind", "networks", "|A|", "|X|", "alpha", "epsilon", *WAYS, "exact/milp", "verdict/milp")
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for line in lines:
        rows = {way: found(done, line, way) for way in WAYS}
        game = (line.number, line.kind, line.name, line.attacks, line.points, line.alpha, f"{line.epsilon:g}")
        shares = share(rows["exact"], rows["milp"]), share(rows["verdict"], rows["milp"])
        print("| " + " | ".join(map(str, (*game, *map(cell, rows.values()), *shares))) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", type=Path, default=Path("out/pairs"))
    parser.add_argument("--seconds", type=float, default=60.0, help="for every program at least")
    parser.add_argument("--most", type=float, default=600.0, help="for anything at most")
    parser.add_argument("--out", type=Path, default=Path("out/ensemble_games.jsonl"))
    parser.add_argument("--kind", action="append", choices=sorted({x.kind for x in LINES}))
    parser.add_argument("--method", action="append", choices=WAYS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if not list(options.networks.glob("*.onnx")):
        subprocess.run([sys.executable, str(SCRIPT), str(options.networks)], check=True)
    lines = [x for x in LINES if not options.kind or x.kind in options.kind]
    done = [json.loads(t) for t in options.out.read_text().splitlines()] if options.out.is_file() else []
    for way in (w for w in WAYS if not options.method or w in options.method):
        run_way(way, lines, done, options)
    report(lines, done)


if __name__ == "__main__":
    main()
