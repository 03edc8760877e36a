"""Mutual errors of all pairs of networks, by gradient attacks and by verification; accuracy of the networks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from verifolio import Choice, Member, Oracle, Portfolio, current_plugins, parse_portfolio

from ..sources import dataset
from ..study import Key, Measurement, Place, Record, Size
from .members import COUNT, FIRST, agreement, networks, outputs, present

RADII = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06)  # the paper's
WAYS = ("ga1", "ga2", "ga3", "verify")
POINTS = 200  # the paper's
# Points that are asked about together; the first blocks are small, so that a short run ends with rows.
BLOCKS = tuple(f"{a}:{b}" for a, b in itertools.pairwise((0, 2, 5, *range(10, POINTS + 1, 10))))
QUICK_RADII = (0.02, 0.04)  # of a quick run, with the first block
TIMEOUT, QUICK_TIMEOUT = 60.0, 5.0  # seconds per question; the paper has two hours
PAIRS = list(itertools.combinations(range(COUNT), 2))
PORTFOLIO = """
attack: {verifier: joint-gradient, optional: true}
bounder: {verifier: crown, optional: true}
sequence:
  - {verifier: pgd, seconds: 0.2, share: 0.1, optional: true, options: {rounds: 2}}
  - {verifier: crown, share: 0.6, optional: true}
  - {verifier: milp, optional: true}
"""


def estimator(**options: Any) -> Any:
    """The installed estimator of selections."""
    cls = current_plugins().estimators.get("ensemble-selection")
    return cls(cls.Options(**options))


def portfolio(way: str) -> Portfolio:
    """For questions on which attacks have failed; a gradient attack of the paper takes the place of the attack."""
    made = parse_portfolio(PORTFOLIO)
    return (
        made if way == "verify" else replace(made, attack=Member(Choice("joint-gradient", {"method": way})))
    )


class Mutual(Measurement):
    """One row per data set, method, radius and block of agreement points; counts of pairs in the order of PAIRS."""

    name: ClassVar[str] = "mutual"
    key: ClassVar[tuple[str, ...]] = ("data", "block", "way", "radius")
    shared: ClassVar[int] = 3
    most: ClassVar[int] = len(RADII)
    columns: ClassVar[tuple[str, ...]] = ("points", "found", "open", "timeout")

    def wanted(self, size: Size) -> list[Key]:
        radii = QUICK_RADII if size.quick else RADII
        return [
            (d, block, w, f"{r:g}")
            for block in blocks_of(size)
            for d in present(size.quick)
            for w in WAYS
            for r in radii
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for (data, block, way), group in itertools.groupby(keys, key=lambda k: k[:3]):
            radii = tuple(float(r) for *_, r in group)
            yield from errors(data, block, way, radii, place)


def errors(data: str, block: str, way: str, radii: tuple[float, ...], place: Place) -> Iterator[Record]:
    """A block of agreement points at all radii at once: a proof at one serves the smaller ones."""
    folder, inside = place.folder / "networks", numbers(block)
    points = agreement(data, folder, POINTS)
    points = points.take(range(inside.start, min(inside.stop, len(points))))
    if len(points) == 0:
        return
    timeout = QUICK_TIMEOUT if place.size.quick else TIMEOUT
    how = "verify" if way == "verify" else "attack"
    asking = estimator(method=how, iterations=0, store=store_of(place, data) if way == "verify" else "")
    request = asking.Request(networks(data, folder), points, radii, FIRST, len(points))
    with Oracle(portfolio(way), timeout=timeout) as oracle:
        found = asking.run(request, oracle)
    for radius, one in zip(radii, found.by_epsilon, strict=True):
        yield {
            "data": data,
            "block": block,
            "way": way,
            "radius": f"{radius:g}",
            "points": str(len(found.points)),
            "found": " ".join(str(int(one.found[p])) for p in PAIRS),
            "open": " ".join(str(int(one.open[p])) for p in PAIRS),
            "timeout": f"{timeout:g}",
        }


def blocks_of(size: Size) -> tuple[str, ...]:
    return BLOCKS[:1] if size.quick else BLOCKS


def numbers(block: str) -> range:
    """The points of a block."""
    first, end = (int(n) for n in block.split(":"))
    return range(first, end)


def store_of(place: Place, data: str) -> str:
    folder = place.folder / "stores"
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / f"001-{data}.db")


class Accuracies(Measurement):
    """Table I and II's first line: every network on the whole test split."""

    name: ClassVar[str] = "accuracy"
    key: ClassVar[tuple[str, ...]] = ("data", "network")
    shared: ClassVar[int] = 1
    most: ClassVar[int] = COUNT
    columns: ClassVar[tuple[str, ...]] = ("n", "right")

    def wanted(self, size: Size) -> list[Key]:
        return [(data, str(k + 1)) for data in present(size.quick) for k in range(COUNT)]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for data, group in itertools.groupby(keys, key=lambda k: k[0]):
            test = dataset(data, "test")
            right = (outputs(networks(data, place.folder / "networks"), test).argmax(2) == test.labels).sum(1)
            for _, number in group:
                yield {
                    "data": data,
                    "network": number,
                    "n": str(len(test)),
                    "right": str(right[int(number) - 1]),
                }
