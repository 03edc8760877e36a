"""Accuracy of the public networks on whole splits, and on images that an attack may change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np

from verifolio import Network, attack

from ..sources import dataset
from ..study import Key, Measurement, Place, Record, Size
from .brackets import QUICK_NETWORKS, unique
from .signs import network_file
from .subjects import Subject

CLEAN = "0"  # the radius of no attack
RADII = ("0.2", "0.3")  # of table 14's attacks on MNIST
SMALL = ("4/255", "8/255")  # of tables 15 and 16
ATTACKED, QUICK_ATTACKED = 50, 10  # images; the paper attacks all 10 000
TOGETHER = 1000  # images of one forward pass


@dataclass(frozen=True)
class Accuracy(Measurement):
    """One row per network, split and radius: how many of the images stay right."""

    subjects: tuple[Subject, ...]
    radii: tuple[str, ...] = (CLEAN,)

    name: ClassVar[str] = "accuracy"
    key: ClassVar[tuple[str, ...]] = ("network", "split", "radius")
    columns: ClassVar[tuple[str, ...]] = ("n", "right")

    def wanted(self, size: Size) -> list[Key]:
        splits = ("test",) if size.quick else ("test", "train")
        return [
            (s.key, split, radius)
            for s in unique(self.subjects)
            if not size.quick or s.key in QUICK_NETWORKS
            for radius in self.radii
            for split in (splits if radius == CLEAN else ("test",))
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        by_key = {s.key: s for s in unique(self.subjects)}
        for name, split, radius in keys:
            if radius == CLEAN:
                n, right = clean(network_file(by_key[name], place.folder), by_key[name].data, split)
            else:
                count = QUICK_ATTACKED if place.size.quick else ATTACKED
                path = network_file(by_key[name], place.folder)
                n, right = attacked(path, by_key[name].data, split, float(Fraction(radius)), count)
            yield {"network": name, "split": split, "radius": radius, "n": str(n), "right": str(right)}


def clean(path: Path, name: str, split: str) -> tuple[int, int]:
    """How many there are, and how many are right, by the network's graph in float32."""
    import torch

    data, module = dataset(name, split), Network.load(path).module()
    right = 0
    for start in range(0, len(data), TOGETHER):
        part = data.take(range(start, min(start + TOGETHER, len(data))))
        with torch.no_grad():
            classes = module(torch.tensor(part.images, dtype=torch.float32)).argmax(1).numpy()
        right += int(np.sum(classes == part.labels))
    return len(data), right


def attacked(path: Path, name: str, split: str, radius: float, count: int) -> tuple[int, int]:
    """The first images under attack; a counterexample counts once it is replayed."""
    found = attack(path, dataset(name, split), epsilon=radius, indices=range(count), progress=False)
    return count, sum(v.status == "open" for v in found.verdicts)
