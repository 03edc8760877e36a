"""The games of tables 4 to 6, each solved in several ways, with processor time beside every answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verifolio import Oracle, Reference, current_plugins, parse_portfolio

from ..sources import processor_seconds, published
from ..study import Key, Measurement, Place, Record, Size
from .members import Group

HERE = Path(__file__).resolve().parent
PIXEL = 255.0  # the paper's radii are in levels of a pixel, ours in shares of their range
EXACT, SINGLE = ("decomposition",), ("uniform", "deterministic")
PROGRAMS = ("milp", "maxmilp", "smt")
LIMIT, LONG = 60.0, 7200.0  # seconds for a program; the paper's two hours for two of its rows
PATIENT = 600.0  # for everything else, which needs seconds of processor time: a busy machine shall not decide
QUICK_LIMIT = 4.0  # of a quick run, in which programs may end undecided
LONG_ROWS = ("16", "21")  # one that can be attacked and one that is robust
QUICK = ("2", "7", "16", "21", "22")  # games of a quick run
# short attacks, then rows (an L1 ball is two per input), then bounds
PORTFOLIO = """
attack: {verifier: joint-gradient, optional: true}
bounder: {verifier: crown, optional: true}
sequence:
  - {verifier: pgd, seconds: 0.2, share: 0.1, optional: true, options: {rounds: 2}}
  - {verifier: milp, seconds: 5, share: 0.3, optional: true}
  - {verifier: crown, share: 0.3, optional: true}
  - {verifier: milp, optional: true}
"""


@dataclass(frozen=True)
class Games(Measurement):
    """One row per game of the paper and way to solve it."""

    ways: tuple[str, ...]

    name: ClassVar[str] = "games"
    key: ClassVar[tuple[str, ...]] = ("id", "way")
    columns: ClassVar[tuple[str, ...]] = ("verdict", "lower", "upper", "mixed", "cpu", "limit", "note")

    def wanted(self, size: Size) -> list[Key]:
        games = [r["id"] for r in published(HERE, "games") if not size.quick or r["id"] in QUICK]
        return [(game, way) for way in self.ways for game in games]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        games = {r["id"]: r for r in published(HERE, "games")}
        for game, way in keys:
            limit = limit_of(game, way, place.size)
            yield {"id": game, "way": way, **solve(games[game], way, place.folder / "networks", limit)}


def limit_of(game: str, way: str, size: Size) -> float:
    """How many seconds a way has for a game."""
    if way not in PROGRAMS:
        return PATIENT
    return QUICK_LIMIT if size.quick else LONG if game in LONG_ROWS else LIMIT


def solve(game: Record, way: str, folder: Path, limit: float) -> Record:
    """One game in one way; nothing that another run found out is known to this one."""
    group = Group.of(game["name"], int(game["side"]), int(game["networks"]))
    networks = group.networks(folder)
    points = group.points(int(game["points"]))
    radius = float(game["epsilon"]) / PIXEL
    references = tuple(unbounded(x, y, radius) for x, y in points)
    for network in networks:
        network.graph  # noqa: B018  # imported before the clock starts, as for every way
    before = processor_seconds()
    result = attack(networks, references, Fraction(game["alpha"]), way, int(game["attacks"]), limit)
    spent = processor_seconds() - before
    return {
        "verdict": result.verdict.value,
        "lower": str(result.value_lower),
        "upper": str(result.value_upper),
        "mixed": str(len(result.attacks)),
        "cpu": f"{spent:.3f}",
        "limit": f"{limit:g}",
        "note": " ".join(result.reason.split()),
    }


def unbounded(x: np.ndarray, label: int, radius: float) -> Reference:
    """All points within a distance (the 1-norm); as in the paper, they may leave the range of a pixel."""
    return Reference(x, label, radius, 1.0, -math.inf, math.inf)


def attack(
    networks: tuple[Any, ...],
    references: tuple[Reference, ...],
    alpha: Fraction,
    way: str,
    count: int,
    limit: float,
) -> Any:
    """By the installed estimator of ensembles, in this process, so that processor time compares methods."""
    cls = current_plugins().estimators.get("ensemble-attack")
    defaults = cls.Options()
    options = cls.Options(method=type(defaults.method)(way), attacks=count, exact=way in EXACT, seconds=limit)
    with Oracle(parse_portfolio(PORTFOLIO), "inline", timeout=limit) as oracle:
        return cls(options).run(cls.Request(networks, references, alpha), oracle)
