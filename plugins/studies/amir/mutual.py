"""Mutual errors of all pairs of networks, by gradient attacks and by verification; robust accuracy of ensembles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from verifolio import Choice, Member, Oracle, Portfolio, current_plugins, parse_portfolio

from ..rows import Rows
from ..sources import dataset
from ..study import Key, Measurement, Place, Record, Size, Tables
from .members import COUNT, FIRST, SECOND, agreement, networks, outputs, present, test_points

RADII = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06)  # the paper's
WAYS = ("ga1", "ga2", "ga3", "verify")
POINTS, TESTED, BLOCK = 200, 200, 10  # the paper's points, asked about ten at a time
QUICK_POINTS, QUICK_RADII = 2, (0.02, 0.04)  # of a quick run
TIMEOUT, QUICK_TIMEOUT = 60.0, 5.0  # seconds per question; the paper has two hours
PAIRS = list(itertools.combinations(range(COUNT), 2))
ENSEMBLES = ("E1", "E1 selected", "E2", "E2 reversed")  # for Fashion-MNIST E3 and E4
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
    """One row per data set, method, radius and ten agreement points: numbers of all pairs, in the order of PAIRS."""

    name: ClassVar[str] = "mutual"
    key: ClassVar[tuple[str, ...]] = ("data", "block", "way", "radius")
    shared: ClassVar[int] = 3
    most: ClassVar[int] = len(RADII)
    columns: ClassVar[tuple[str, ...]] = ("points", "found", "open", "timeout")

    def wanted(self, size: Size) -> list[Key]:
        radii = QUICK_RADII if size.quick else RADII
        blocks = range(1 if size.quick else POINTS // BLOCK)
        return [(d, str(b), w, f"{r:g}") for b in blocks for d in present() for w in WAYS for r in radii]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for (data, block, way), group in itertools.groupby(keys, key=lambda k: k[:3]):
            radii = tuple(float(r) for *_, r in group)
            yield from errors(data, int(block), way, radii, place)


def errors(data: str, block: int, way: str, radii: tuple[float, ...], place: Place) -> Iterator[Record]:
    """Ten agreement points at all radii at once: a proof at one serves the smaller ones."""
    folder = place.folder / "networks"
    count = QUICK_POINTS if place.size.quick else BLOCK
    points = agreement(data, folder, count if place.size.quick else POINTS)
    points = points.take(range(block * count, min((block + 1) * count, len(points))))
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
            "block": str(block),
            "way": way,
            "radius": f"{radius:g}",
            "points": str(len(found.points)),
            "found": " ".join(str(int(one.found[p])) for p in PAIRS),
            "open": " ".join(str(int(one.open[p])) for p in PAIRS),
            "timeout": f"{timeout:g}",
        }


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
        return [(data, str(k + 1)) for data in present() for k in range(COUNT)]

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


class Robust(Measurement):
    """Figures 4 and 5: ensembles as they are, after selection, and selected the wrong way round, at test points."""

    name: ClassVar[str] = "robust"
    key: ClassVar[tuple[str, ...]] = ("data", "block", "ensemble", "radius")
    shared: ClassVar[int] = 3
    most: ClassVar[int] = len(RADII)
    columns: ClassVar[tuple[str, ...]] = ("members", "points", "robust", "broken", "open", "timeout")

    def wanted(self, size: Size) -> list[Key]:
        radii = QUICK_RADII if size.quick else RADII
        blocks = range(1 if size.quick else TESTED // BLOCK)
        return [(d, str(b), e, f"{r:g}") for b in blocks for d in present() for e in ENSEMBLES for r in radii]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        tables = Tables({"mutual": Rows(place.folder, "001").read(Mutual())})
        for (data, block, ensemble), group in itertools.groupby(keys, key=lambda k: k[:3]):
            members = ensemble_of(ensemble, mutual_errors(tables, data, "verify")[0])
            radii = tuple(float(r) for *_, r in group)
            yield from robust(data, int(block), ensemble, members, radii, place)


def robust(
    data: str, block: int, ensemble: str, members: tuple[int, ...], radii: tuple[float, ...], place: Place
) -> Iterator[Record]:
    """Averaged outputs at ten test points; the estimator measures the ensemble that it is given."""
    folder = place.folder / "networks"
    count = QUICK_POINTS if place.size.quick else BLOCK
    test = test_points(data, TESTED)[block * count : (block + 1) * count]
    timeout = QUICK_TIMEOUT if place.size.quick else TIMEOUT
    asking = estimator(method="attack", iterations=0, store=store_of(place, data))
    few = agreement(data, folder, 1)
    request = asking.Request(
        networks(data, folder), few, radii, members, 1, test_data=dataset(data, "test"), test=test
    )
    with Oracle(portfolio("verify"), timeout=timeout) as oracle:
        found = asking.run(request, oracle)
    for radius, one in zip(radii, found.before, strict=True):
        yield {
            "data": data,
            "block": str(block),
            "ensemble": ensemble,
            "radius": f"{radius:g}",
            "members": " ".join(str(m + 1) for m in members),
            "points": str(len(test)),
            "robust": str(one.robust),
            "broken": str(one.broken),
            "open": str(one.open),
            "timeout": f"{timeout:g}",
        }


def mutual_errors(
    tables: Tables, data: str, way: str, radius: str = ""
) -> tuple[np.ndarray, np.ndarray, int]:
    """Matrices of found and open mutual errors over all rows (of one radius), and the number of balls."""
    found, left, balls = np.zeros((COUNT, COUNT), int), np.zeros((COUNT, COUNT), int), 0
    for row in tables.of("mutual", data=data, way=way):
        if radius and row["radius"] != radius:
            continue
        balls += int(row["points"])
        for (a, b), one, more in zip(PAIRS, row["found"].split(), row["open"].split(), strict=True):
            found[a, b] += int(one)
            left[a, b] += int(more)
    return found + found.T, left + left.T, balls


def joint(errors: np.ndarray, members: Sequence[int]) -> int:
    """How many mutual errors an ensemble has."""
    return int(sum(errors[a, b] for a, b in itertools.combinations(members, 2)))


def uniqueness(errors: np.ndarray, balls: int, member: int, members: Sequence[int]) -> float:
    """One minus the mean share of balls in which the member errs together with another."""
    others = [m for m in members if m != member]
    return 1 - sum(errors[member, m] for m in others) / (balls * len(others)) if balls else float("nan")


def swapped(errors: np.ndarray, members: tuple[int, ...], reverse: bool = False) -> tuple[int, ...]:
    """One step of the paper's loop: the least unique member for the best candidate, or the reverse."""
    total = {m: sum(int(errors[m, o]) for o in members if o != m) for m in members}
    out = (min if reverse else max)(members, key=lambda m: (total[m], -m) if not reverse else (total[m], m))
    rest = [m for m in members if m != out]
    fresh = [f for f in range(COUNT) if f not in members]
    cost = {f: sum(int(errors[f, o]) for o in rest) for f in fresh}
    best = (max if reverse else min)(fresh, key=lambda f: cost[f])
    better = cost[best] > total[out] if reverse else cost[best] < total[out]
    return tuple(best if m == out else m for m in members) if better else members


def ensemble_of(name: str, errors: np.ndarray) -> tuple[int, ...]:
    """The members of an ensemble by its name."""
    start = FIRST if name.startswith("E1") else SECOND
    if name.endswith("selected"):
        return swapped(errors, start)
    return swapped(errors, start, reverse=True) if name.endswith("reversed") else start


def best_ensemble(errors: np.ndarray, size: int) -> tuple[tuple[int, ...], int]:
    """The ensemble with the fewest mutual errors of all, by looking at every one."""
    found = min(itertools.combinations(range(COUNT), size), key=lambda members: joint(errors, members))
    return found, joint(errors, found)
