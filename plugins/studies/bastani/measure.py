"""What is measured of the networks: distances by both estimators, accuracy, one gradient step, and lazy rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from verifolio import attack

from ..sources import dataset
from ..study import Key, Measurement, Place, Record, Size
from .closest import EPSILON, LEVELS, nearest
from .networks import NAMES, QUICK, Family, Training, ways_of

TESTED, QUICK_TESTED = 1000, 6  # test images; the paper has 10 000
MEASURED = {"baseline": 0.15, "lp": 0.0}  # margins while measuring, as in the paper
LAZY, QUICK_LAZY = 5, 1  # images on which lazily added rows are compared with all of them
FULL_SECONDS = 300.0  # for a program with all rows; the paper says more than two minutes
STEPPED, QUICK_STEPPED = 1000, 20  # test images for the single gradient step


def family(place: Place) -> Family:
    return Family(place.folder / "networks", QUICK if place.size.quick else Training())


class Distances(Measurement):
    """One row per network, estimator and test image."""

    name: ClassVar[str] = "distances"
    key: ClassVar[tuple[str, ...]] = ("network", "way", "image")
    shared: ClassVar[int] = 2
    most: ClassVar[int] = 20
    columns: ClassVar[tuple[str, ...]] = ("predicted", "distance", "rounded", "seconds", "learnt", "tuned")

    def wanted(self, size: Size) -> list[Key]:
        """A hundred images of every network before the next hundred of any."""
        count = QUICK_TESTED if size.quick else TESTED
        names = ("lenet", "lp-1") if size.quick else NAMES
        return [
            (name, way, str(image))
            for start in range(0, count, 100)
            for name, way in ways_of(names)
            for image in range(start, min(start + 100, count))
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        made = family(place)
        told = {"learnt": str(made.training.images), "tuned": str(made.training.tuned)}
        for (name, way), group in itertools.groupby(keys, key=lambda k: k[:2]):
            images = [int(image) for *_, image in group]
            network = made.network(name)
            found = nearest(
                network, dataset("mnist", "test"), images, way, MEASURED[way], made.training.timeout
            )
            for image, one in zip(images, found, strict=True):
                yield {
                    "network": name,
                    "way": way,
                    "image": str(image),
                    "predicted": str(one.predicted),
                    "distance": "" if one.distance is None else f"{one.distance:.4f}",
                    "rounded": "" if one.rounded is None else "yes" if one.rounded else "no",
                    "seconds": f"{one.seconds:.2f}",
                    **told,
                }


class Accuracies(Measurement):
    """Every network on the whole test split, and under one signed gradient step of 20 levels."""

    name: ClassVar[str] = "accuracy"
    key: ClassVar[tuple[str, ...]] = ("network",)
    columns: ClassVar[tuple[str, ...]] = ("n", "right", "stepped", "moved")

    def wanted(self, size: Size) -> list[Key]:
        return [(name,) for name in (("lenet", "lp-1") if size.quick else NAMES)]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        import torch

        test, made = dataset("mnist", "test"), family(place)
        count = QUICK_STEPPED if place.size.quick else STEPPED
        for (name,) in keys:
            network = made.network(name)
            module, right = network.module(), 0
            for start in range(0, len(test), 500):
                part = test.take(range(start, start + 500))
                with torch.no_grad():
                    classes = module(torch.tensor(part.images, dtype=torch.float32)).argmax(1).numpy()
                right += int(np.sum(classes == part.labels))
            moved = attack(
                network.path,
                test,
                epsilon=EPSILON / LEVELS,
                indices=range(count),
                verifier="fgsm",
                reference="predicted",
                progress=False,
            )
            found = sum(v.status == "refuted" for v in moved.verdicts)
            counts = {"n": len(test), "right": right, "stepped": count, "moved": found}
            yield {"network": name, **{k: str(v) for k, v in counts.items()}}


class Lazy(Measurement):
    """Linear programs with rows added as they are violated, and with all rows at once."""

    name: ClassVar[str] = "lazy"
    key: ClassVar[tuple[str, ...]] = ("image", "rows")
    columns: ClassVar[tuple[str, ...]] = ("distance", "seconds")

    def wanted(self, size: Size) -> list[Key]:
        return [(str(i), rows) for i in range(QUICK_LAZY if size.quick else LAZY) for rows in ("lazy", "all")]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        network = family(place).network("lenet")
        seconds = 10.0 if place.size.quick else FULL_SECONDS
        for image, rows in keys:
            more = {"lazy": rows == "lazy"}
            (one,) = nearest(network, dataset("mnist", "test"), [int(image)], "lp", 0.0, seconds, more)
            distance = "" if one.distance is None else f"{one.distance:.4f}"
            yield {"image": image, "rows": rows, "distance": distance, "seconds": f"{one.seconds:.2f}"}
