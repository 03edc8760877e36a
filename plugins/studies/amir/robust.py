"""Figures 4 and 5: the accuracy and the robust accuracy of whole ensembles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from verifolio import Oracle

from ..rows import Rows
from ..sources import dataset
from ..study import Key, Measurement, Place, Record, Size, Tables
from .ensembles import ENSEMBLES, ensemble_of, mutual_errors
from .members import agreement, networks, outputs, present, test_points
from .mutual import (
    POINTS,
    QUICK_RADII,
    QUICK_TIMEOUT,
    TIMEOUT,
    Mutual,
    blocks_of,
    estimator,
    numbers,
    portfolio,
    store_of,
)

RADII = (0.02, 0.03, 0.04, 0.05)  # of the figures; the paper leaves out 0.01 and 0.06 as trivial


def chosen(place: Place, data: str, ensemble: str) -> tuple[int, ...]:
    """The members that the mutual errors found so far choose."""
    tables = Tables({"mutual": Rows(place.folder, "001").read(Mutual())})
    return ensemble_of(ensemble, mutual_errors(tables, data, "verify")[0])


def named(members: Sequence[int]) -> str:
    return " ".join(str(m + 1) for m in members)


class Robust(Measurement):
    """One row per ensemble, radius and block of test points; `members` says which networks the ensemble had then."""

    name: ClassVar[str] = "robust"
    key: ClassVar[tuple[str, ...]] = ("data", "block", "ensemble", "radius")
    shared: ClassVar[int] = 3
    most: ClassVar[int] = len(RADII)
    columns: ClassVar[tuple[str, ...]] = ("members", "points", "robust", "broken", "open", "timeout")

    def wanted(self, size: Size) -> list[Key]:
        radii = QUICK_RADII if size.quick else RADII
        return [
            (d, block, e, f"{r:g}")
            for block in blocks_of(size)
            for d in present(size.quick)
            for e in ENSEMBLES[d]
            for r in radii
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for (data, block, ensemble), group in itertools.groupby(keys, key=lambda k: k[:3]):
            radii = tuple(float(r) for *_, r in group)
            yield from robust(data, block, ensemble, radii, place)


def robust(data: str, block: str, ensemble: str, radii: tuple[float, ...], place: Place) -> Iterator[Record]:
    """Averaged outputs at a block of test points; the estimator measures the ensemble that it is given."""
    folder, members = place.folder / "networks", chosen(place, data, ensemble)
    inside = numbers(block)
    test = test_points(data, POINTS)[inside.start : inside.stop]
    timeout = QUICK_TIMEOUT if place.size.quick else TIMEOUT
    asking = estimator(method="attack", iterations=0, store=store_of(place, data))
    few = agreement(data, folder, 1)
    request = asking.Request(
        networks(data, folder), few, radii, members, 1, test_data=dataset(data, "test"), test=test
    )
    with Oracle(portfolio("verify"), timeout=timeout) as oracle:
        found = asking.run(request, oracle)
    for radius, one in zip(radii, found.before, strict=True):
        counts = {"robust": one.robust, "broken": one.broken, "open": one.open, "points": len(test)}
        yield {
            "data": data,
            "block": block,
            "ensemble": ensemble,
            "radius": f"{radius:g}",
            "members": named(members),
            **{k: str(v) for k, v in counts.items()},
            "timeout": f"{timeout:g}",
        }


class Whole(Measurement):
    """The accuracy of every ensemble on the whole test split, and how often averaging after a softmax differs."""

    name: ClassVar[str] = "ensembles"
    key: ClassVar[tuple[str, ...]] = ("data", "ensemble")
    columns: ClassVar[tuple[str, ...]] = ("members", "n", "right", "otherwise")

    def wanted(self, size: Size) -> list[Key]:
        return [(data, ensemble) for data in present(size.quick) for ensemble in ENSEMBLES[data]]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for data, ensemble in keys:
            members, test = chosen(place, data, ensemble), dataset(data, "test")
            values = outputs(networks(data, place.folder / "networks"), test)[list(members)]
            classes, after = values.mean(0).argmax(1), softmax(values).mean(0).argmax(1)
            yield {
                "data": data,
                "ensemble": ensemble,
                "members": named(members),
                "n": str(len(test)),
                "right": str(int((classes == test.labels).sum())),
                "otherwise": str(int((classes != after).sum())),
            }


def softmax(values: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return shares
