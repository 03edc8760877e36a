"""The paper's example in the plane and the construction of its theorem 1, played by the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from verifolio import Network, export

from ..sources import processor_seconds
from ..study import Judgement, Key, Measurement, Place, Record, Shown, Size, Statement, Tables, judged
from ..text import markdown
from .games import LIMIT, attack, unbounded

if TYPE_CHECKING:
    from torch import nn

RADIUS = 2.0  # of the attacks in figures 3 and 4, by the sum of the coordinates
EDGE = (
    1.5  # how far the borders of the example's two classifiers are from the point; the figure has no numbers
)


@dataclass(frozen=True)
class Game:
    """Two classifiers of the origin: `low` and `high` are their borders, in a coordinate or in the 1-norm."""

    name: str
    kind: str  # plane (figures 1, 3 and 4) or interval (theorem 1)
    low: float
    high: float
    value: Fraction  # what the paper's text says or its proof implies

    def models(self) -> list[nn.Module]:
        if self.kind == "plane":
            # wrong (not the first class) left of -low, and right of high
            return [
                linear([[0.0, 0.0], [-1.0, 0.0]], [self.low, 0.0]),
                linear([[0, 0], [1.0, 0]], [self.high, 0]),
            ]
        # theorem 1: wrong where low <= g, and where g <= high, for a network g; ties are wrong
        return [bounded(0.0, 1.0, self.low), bounded(1.0, 0.0, self.high)]


GAMES = (
    Game("figure 4", "plane", EDGE, EDGE, Fraction(1, 2)),
    Game("figure 4, one border out of reach", "plane", EDGE, 2 * EDGE, Fraction(0)),
    Game("1 <= g <= 1.5", "interval", 1.0, 1.5, Fraction(1)),
    Game("3 <= g <= 4, out of reach", "interval", 3.0, 4.0, Fraction(0)),
    Game("1.5 <= g <= 1, empty", "interval", 1.5, 1.0, Fraction(1, 2)),
)


def linear(rows: Sequence[Sequence[float]], shift: Sequence[float]) -> nn.Module:
    """Weights as given; the first output is the right class."""
    import torch
    from torch import nn

    made = nn.Linear(len(rows[0]), len(rows))
    with torch.no_grad():
        made.weight.copy_(torch.tensor(rows))
        made.bias.copy_(torch.tensor(shift))
    return made


def bounded(right: float, wrong: float, border: float) -> nn.Module:
    """The 1-norm g of two inputs by four ReLUs, against a border: g is the first output or the second."""
    from torch import nn

    first = linear([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0.0] * 4)
    last = linear([[right] * 4, [wrong] * 4], [border * (1 - right), border * (1 - wrong)])
    return nn.Sequential(first, nn.ReLU(), last)


def networks(game: Game, folder: Path) -> tuple[Network, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for k, model in enumerate(game.models()):
        path = folder / f"000-example-{GAMES.index(game)}-{k}.onnx"
        export(model.eval(), np.zeros((2, 2), np.float32), output=path)
        found.append(Network.load(path))
    return tuple(found)


class Examples(Measurement):
    """One row per game; `probabilities` are those of the best mix that was found."""

    name: ClassVar[str] = "examples"
    key: ClassVar[tuple[str, ...]] = ("game",)
    columns: ClassVar[tuple[str, ...]] = ("lower", "upper", "probabilities", "cpu")

    def wanted(self, size: Size) -> list[Key]:
        return [(game.name,) for game in GAMES]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for (name,) in keys:
            game = next(g for g in GAMES if g.name == name)
            played = networks(game, place.folder / "networks")
            before = processor_seconds()
            result = attack(
                played, (unbounded(np.zeros(2), 0, RADIUS),), Fraction(1), "decomposition", 2, LIMIT
            )
            yield {
                "game": name,
                "lower": str(result.value_lower),
                "upper": str(result.value_upper),
                "probabilities": " ".join(str(a.probability) for a in result.attacks),
                "cpu": f"{processor_seconds() - before:.3f}",
            }


def shown(tables: Tables) -> Shown:
    """Figure 4, and the construction that makes the question hard."""
    mixes = [(f"{x / 10:g}", f"{min(x, 10 - x) / 10:g}") for x in range(0, 11, 2)] + [("0.5", "0.5")]
    curve = markdown(("probability of the first attack", "value: the smaller expected loss"), sorted(mixes))
    rows = {r["game"]: r for r in tables.of("examples")}
    lines = [
        (g.name, str(g.value), r["lower"], r["upper"], r["probabilities"], r["cpu"])
        for g in GAMES
        if (r := rows.get(g.name))
    ]
    titles = ("game", "expected value", "ours: lower", "upper", "best mix found", "s (CPU)")
    return Shown([*HEAD, "", *curve, "", *THEOREM, "", *markdown(titles, lines)], [exact(rows)])


HEAD = (
    f"Two attacks, each fools one classifier: the borders are {EDGE:g} left and right of the point, attacks reach "
    f"{RADIUS:g}.",
    "The curve is arithmetic; the program finds its maximum from the classifiers alone (second table, first row).",
)
THEOREM = (
    "Theorem 1 reduces 'is there x with low <= g(x) <= high', for a network g, to a game of two classifiers: one is",
    "wrong where low <= g, one where g <= high. The value is 1 exactly where such an x is within reach; here g is",
    "the 1-norm of two inputs by four ReLUs. Below 1, a mix of two attacks may still have a value above 0.",
)


def exact(rows: dict[str, Record]) -> Statement:
    text = "The values of the example and of theorem 1's construction are the paper's"
    if not rows:
        return Statement(text, Judgement.UNDECIDED, "0 games")
    wrong = [
        g.name
        for g in GAMES
        if (r := rows.get(g.name)) and {Fraction(r["lower"]), Fraction(r["upper"])} != {g.value}
    ]
    return judged(
        text, not wrong, f"{len(rows)} games", f"Other values: {', '.join(wrong)}." if wrong else ""
    )
