"""Tables like those of Gross et al. 2020: one game per line, solved in several ways, each with its own clock.

    python benchmarks/ensemble_games.py [--full] [--seconds 60] [--out FILE.jsonl] [--method decomposition]...

The networks are those of examples/ensemble: three classifiers of two digits (8 x 8 pixels, ending in ReLU) and
three of ten digits. Games are attackable, robust, about alpha = 1, or have 27 to 30 attacks, as in tables 4 to 6.
`smt`, `milp`, `maxmilp`, `uniform` (UA) and `deterministic` (BDA) are the paper's methods, `decomposition` is the
exact value. A line that is in FILE already is not run again, so a stopped run continues. The last table compares
the exact value's time with the program's.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from verifolio.data import load_data
from verifolio.network import Network
from verifolio.oracle import Oracle
from verifolio.plugins.ensemble.attack import AttackOptions, AttackRequest, EnsembleAttack, Method
from verifolio.plugins.ensemble.commands import after_attacks
from verifolio.plugins.ensemble.replay import make_references

EXAMPLES = Path(__file__).parents[1] / "examples" / "ensemble"
SETS = {
    "pair": (("pair_a", "pair_b", "pair_c"), str(EXAMPLES / "pair.npz")),
    "digits": (("digits_a", "digits_d", "digits_e"), "digits:test"),
}
HEAD = "kind\tset\t|A|\t|X|\tnorm\tepsilon\talpha\tmethod\tverdict\tvalue\tseconds\tcpu\tnote"


@dataclass(frozen=True)
class Line:
    """One game: of which kind, which networks, how many attacks and points, the norm, the radius, the level."""

    kind: str
    name: str
    attacks: int
    points: int
    norm: float
    epsilon: float
    alpha: str


INF = float("inf")
REDUCED = (
    Line("attackable", "pair", 2, 4, 1.0, 2.5, "0.2"),
    Line("attackable", "pair", 3, 4, 1.0, 2.5, "0.4"),
    Line("attackable", "digits", 3, 4, INF, 0.1, "0.5"),
    Line("robust", "pair", 3, 4, 1.0, 0.1, "0.9"),
    Line("alpha 1", "pair", 3, 4, 1.0, 1.5, "1"),
)
FULL = (
    *REDUCED,
    Line("attackable", "pair", 4, 4, 1.0, 4.0, "0.9"),
    Line("attackable", "pair", 3, 4, INF, 0.2, "0.9"),
    Line("attackable", "digits", 3, 10, INF, 0.1, "0.25"),
    Line("robust", "pair", 2, 4, 1.0, 0.1, "0.9"),
    Line("robust", "pair", 3, 4, 1.0, 1.5, "0.2"),
    Line("robust", "pair", 4, 4, 1.0, 2.0, "0.4"),
    Line("robust", "digits", 3, 10, INF, 0.02, "0.5"),
    Line("alpha 1", "pair", 2, 4, 1.0, 2.5, "1"),
    Line("alpha 1", "pair", 3, 4, 1.0, 4.0, "1"),
    Line("alpha 1", "digits", 3, 10, INF, 0.2, "1"),
    *(
        Line("many attacks", "pair", a, 4, 1.0, e, "0.4")
        for a, e in ((27, 2.0), (28, 2.5), (29, 0.5), (30, 0.1))
    ),
)


def play(line: Line, method: Method, seconds: float) -> dict[str, Any]:
    """Verdict, exact interval and time of one way to solve one game."""
    names, spec = SETS[line.name]
    networks = tuple(Network.load(EXAMPLES / f"{n}.onnx") for n in names)
    data = load_data(spec)
    references = tuple(make_references(data, range(line.points), line.epsilon, line.norm))
    options = AttackOptions(method, line.attacks, method is Method.DECOMPOSITION, seconds)
    # in this process, as the programs are: the clocks then compare methods, not how workers start
    with Oracle(after_attacks(), "inline", timeout=min(30.0, seconds)) as oracle:
        started, used = time.monotonic(), time.process_time()
        request = AttackRequest(networks, references, Fraction(line.alpha))
        result = EnsembleAttack(options).run(request, oracle)
        took, cpu = time.monotonic() - started, time.process_time() - used
    return asdict(line) | {
        "method": method.value,
        "budget": seconds,
        "verdict": result.verdict.value,
        "lower": str(result.value_lower),
        "upper": str(result.value_upper),
        "seconds": round(took, 2),
        "cpu": round(cpu, 2),
        "note": result.reason,
        "norm": str(line.norm),
    }


def shown(row: dict[str, Any]) -> str:
    low, high = float(Fraction(row["lower"])), float(Fraction(row["upper"]))
    value = f"{low:.4g}" if low == high else f"{low:.4g} .. {high:.4g}"
    cells = (
        row["kind"],
        row["name"],
        row["attacks"],
        row["points"],
        row["norm"],
        row["epsilon"],
        row["alpha"],
    )
    more = (row["method"], row["verdict"], value, row["seconds"], row["cpu"], row["note"])
    return "\t".join(str(c) for c in (*cells, *more))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0, help="per line and method")
    parser.add_argument("--out", type=Path, default=Path("out/ensemble_games.jsonl"))
    parser.add_argument("--method", action="append", choices=[m.value for m in Method])
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(t) for t in options.out.read_text().splitlines()] if options.out.is_file() else []
    done = {_key(row): row for row in known}
    methods = [Method(m) for m in options.method] if options.method else list(Method)
    rows = []
    print(HEAD)
    for line in FULL if options.full else REDUCED:
        for method in methods:
            wanted = asdict(line) | {
                "method": method.value,
                "budget": options.seconds,
                "norm": str(line.norm),
            }
            row = done.get(_key(wanted))
            if row is None:
                row = play(line, method, options.seconds)
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            rows.append(row)
            print(shown(row), flush=True)
    compare(rows)


def compare(rows: list[dict[str, Any]]) -> None:
    """How long the exact value took, as a share of the program's time, game by game."""
    print("\nkind\tset\t|A|\tepsilon\talpha\texact s\tmilp s\tshare\texact cpu\tmilp cpu\tshare")
    for exact in (r for r in rows if r["method"] == Method.DECOMPOSITION.value):
        same = [r for r in rows if _key(r | {"method": ""}) == _key(exact | {"method": ""})]
        for milp in (r for r in same if r["method"] == Method.MILP.value):
            cells = [exact[n] for n in ("kind", "name", "attacks", "epsilon", "alpha")]
            late = milp["note"] == "out of time"
            for clock in ("seconds", "cpu"):
                share = f"{exact[clock] / max(milp[clock], 0.01):.3f}"
                cells += [
                    exact[clock],
                    f"> {milp[clock]}" if late else milp[clock],
                    f"< {share}" if late else share,
                ]
            print("\t".join(map(str, cells)), flush=True)


def _key(row: dict[str, Any]) -> str:
    names = ("name", "attacks", "points", "norm", "epsilon", "alpha", "method", "budget")
    return json.dumps([str(row[n]) for n in names])


if __name__ == "__main__":
    main()
