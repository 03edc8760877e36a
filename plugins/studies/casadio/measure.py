"""Constraint satisfaction by verification, constraint security under attack, and accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from verifolio import Network, Oracle, Property, Reference, current_plugins, single_verifier

from ..study import Key, Measurement, Place, Record, Size
from .networks import REGIMES, VERIFIED, Networks, data_of, present, property_of

RADII = ("0.02", "0.04", "0.06", "0.08", "0.1")
EPSILON = 0.1  # of table 1
IMAGES, BLOCK = 200, 20  # test images of table 1, asked about twenty at a time
ATTACKED = 200  # test images of the curves; the paper attacks all 10 000
QUICK = 10  # images of a quick run
TIMEOUT = 60.0  # seconds per question of table 1
SECONDS = 0.5  # of an attack on one image


def networks(place: Place) -> Networks:
    return Networks(place.folder / "networks")


def statuses(
    prop: Property, network: Network, data: str, images: range, radius: float, oracle: Oracle
) -> list[str]:
    """Proved, refuted or open around every image, misclassified ones included, as in the authors' program."""
    test = data_of(data, "test")
    references = tuple(
        Reference(test.image(i), int(test.labels[i]), radius, math.inf, 0.0, 1.0, origin=test.origin(i))
        for i in images
    )
    cls = current_plugins().estimators.get("satisfaction")
    found: Any = cls().run(cls.Request(prop, (network,), references), oracle)
    return [str(item.csat) for item in found.items]


class Satisfaction(Measurement):
    """Table 1: one row per data set, property, regime and twenty images."""

    name: ClassVar[str] = "satisfaction"
    key: ClassVar[tuple[str, ...]] = ("data", "block", "property", "network")
    columns: ClassVar[tuple[str, ...]] = ("n", "proved", "refuted", "open", "timeout")

    def wanted(self, size: Size) -> list[Key]:
        blocks = range(1 if size.quick else IMAGES // BLOCK)
        return [
            (data, str(b), prop, regime)
            for b in blocks
            for data in present(size.quick)
            for prop in ("CR", "SR", "LR")
            for regime in VERIFIED
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        timeout = 5.0 if place.size.quick else TIMEOUT
        count = QUICK if place.size.quick else BLOCK
        with Oracle(timeout=timeout) as oracle:
            for data, block, prop, regime in keys:
                network = networks(place).network(data, regime, 30)
                images = range(int(block) * count, (int(block) + 1) * count)
                found = statuses(property_of(prop), network, data, images, EPSILON, oracle)
                counts = {s: str(found.count(s)) for s in ("proved", "refuted", "open")}
                place_of = {"data": data, "block": block, "property": prop, "network": regime}
                yield place_of | {"n": str(len(found)), "timeout": f"{timeout:g}"} | counts


@dataclass(frozen=True)
class Security(Measurement):
    """The curves: one row per data set, attacked property, regime and radius."""

    attacks: tuple[str, ...] = ("SR", "SCR", "LR")
    regimes: tuple[str, ...] = tuple(REGIMES)

    name: ClassVar[str] = "security"
    key: ClassVar[tuple[str, ...]] = ("data", "attack", "network", "radius")
    columns: ClassVar[tuple[str, ...]] = ("n", "kept")
    shared: ClassVar[int] = 3
    most: ClassVar[int] = len(RADII)

    def wanted(self, size: Size) -> list[Key]:
        radii = ("0.1",) if size.quick else RADII
        regimes = [r for r in self.regimes if not size.quick or r in VERIFIED]
        return [
            (d, a, r, e) for d in present(size.quick) for r in regimes for a in self.attacks for e in radii
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        count = QUICK if place.size.quick else ATTACKED
        with Oracle(single_verifier("pgd"), timeout=SECONDS) as oracle:
            for data, attack, regime, radius in keys:
                network = networks(place).network(data, regime, 100)
                found = statuses(property_of(attack), network, data, range(count), float(radius), oracle)
                kept = sum(s != "refuted" for s in found)
                where = {"data": data, "attack": attack, "network": regime, "radius": radius}
                yield where | {"n": str(len(found)), "kept": str(kept)}


class Accuracies(Measurement):
    """Table 3."""

    name: ClassVar[str] = "accuracy"
    key: ClassVar[tuple[str, ...]] = ("data", "network")
    columns: ClassVar[tuple[str, ...]] = ("n", "right")

    def wanted(self, size: Size) -> list[Key]:
        return [(d, r) for d in present(size.quick) for r in (VERIFIED if size.quick else REGIMES)]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        import torch

        for data, regime in keys:
            test, module = data_of(data, "test"), networks(place).network(data, regime, 100).module()
            with torch.no_grad():
                classes = module(torch.tensor(test.images, dtype=torch.float32)).argmax(1).numpy()
            right = int(np.sum(classes == test.labels))
            yield {"data": data, "network": regime, "n": str(len(test)), "right": str(right)}
