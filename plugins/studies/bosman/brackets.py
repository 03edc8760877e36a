"""Brackets of critical radii on the paper's own networks and images, each beside what its authors published."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from verifolio import CriticalRadius, Dataset, distribution

from ..sources import dataset, processor_seconds
from ..statistics import Side
from ..study import Key, Measurement, Place, Record, Size, Tables
from .records import IMAGES, Published, known
from .signs import network_file
from .subjects import ALL, Subject, measurable

TOLERANCE = 1e-3  # half a step of the paper's grid
BUDGET, QUICK_BUDGET = 60.0, 4.0  # seconds per image; the paper has an hour per query
BUDGETS = {"cifar10": 300.0}  # where a minute proves little
# images, of the test split only: three networks of CIFAR-10 take half a day at five minutes each
FEWER = {"cifar10": 50, "gtsrb": 50}
BLOCK = 10  # images of one call, so that neighbours are bounded and attacked together
QUICK = 3  # images of a quick run
# networks of a quick run: easy ones, and each kind of training
QUICK_NETWORKS = (
    "mnist-net_256x2",
    "mnist-net",
    "mnist_nn",
    "mnist_nn_fgsm_02",
    "mnist_nn_pgd",
    "convSmallRELU__DiffAI",
)


@dataclass(frozen=True)
class Brackets(Measurement):
    """One row per network, split and image."""

    subjects: tuple[Subject, ...]
    splits: tuple[str, ...] = ("test", "train")

    name: ClassVar[str] = "brackets"
    key: ClassVar[tuple[str, ...]] = ("network", "split", "image")
    shared: ClassVar[int] = 2
    most: ClassVar[int] = BLOCK
    columns: ClassVar[tuple[str, ...]] = (
        *("label", "status", "lower", "upper", "becomes", "seconds", "cpu", "budget"),
        *("published_lower", "published_upper", "published_seconds"),
    )

    def wanted(self, size: Size) -> list[Key]:
        """Blocks of images in turn, so that every network has some before any has all."""
        splits = self.splits[:1] if size.quick else self.splits
        count = QUICK if size.quick else IMAGES
        return [
            (subject.key, split, str(image))
            for split in splits
            for start in range(0, count, BLOCK)
            for subject in unique(self.subjects)
            if not size.quick or subject.key in QUICK_NETWORKS
            if subject.data not in FEWER or (split == "test" and start < FEWER[subject.data])
            for image in range(start, min(start + BLOCK, count))
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        by_key = {s.key: s for s in unique(self.subjects)}
        for (name, split), group in itertools.groupby(keys, key=lambda k: (k[0], k[1])):
            yield from block(by_key[name], split, [int(image) for _, _, image in group], place)


def unique(subjects: tuple[Subject, ...]) -> list[Subject]:
    """One subject for each file that can be measured: the first, whose records are about the images they name."""
    first = {s.key: s for s in reversed(measurable(ALL))}
    return [first[key] for key in dict.fromkeys(s.key for s in measurable(subjects))]


def block(subject: Subject, split: str, images: Sequence[int], place: Place) -> Iterator[Record]:
    """A few images of one network; what an interrupted run has found is in the store."""
    data = dataset(subject.data, split)
    theirs = known(subject, split) if subject.data == "mnist" else {}  # other ids follow another order
    budget = QUICK_BUDGET if place.size.quick else BUDGETS.get(subject.data, BUDGET)
    before = processor_seconds()
    found = bracket(subject, data, images, budget, place)
    spent = (processor_seconds() - before) / max(1, sum(r.lower is not None for r in found))
    for radius in found:
        yield row(subject, split, radius, spent, budget, theirs.get(radius.index))


def bracket(
    subject: Subject, data: Dataset, images: Sequence[int], budget: float, place: Place
) -> list[CriticalRadius]:
    store = place.folder / "stores" / f"{subject.key}.db"
    store.parent.mkdir(parents=True, exist_ok=True)
    found = distribution(
        network_file(subject, place.folder),
        data,
        indices=images,
        tolerance=TOLERANCE,
        budget=budget,
        store=store,
        progress=False,
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return list(found)


def row(
    subject: Subject,
    split: str,
    radius: CriticalRadius,
    spent: float,
    budget: float,
    theirs: Published | None,
) -> Record:
    near = radius.counterexample
    measured = radius.lower is not None
    return {
        "network": subject.key,
        "split": split,
        "image": str(radius.index),
        "label": radius.label,
        "status": radius.status,
        "lower": number(radius.lower),
        "upper": number(radius.upper),
        "becomes": "" if near is None else near.prediction,
        "seconds": f"{radius.seconds:.2f}" if measured else "",
        "cpu": f"{spent:.2f}" if measured else "",
        "budget": f"{budget:g}",
        "published_lower": number(None if theirs is None else theirs.lower),
        "published_upper": number(None if theirs is None else theirs.upper),
        "published_seconds": "" if theirs is None else f"{theirs.seconds:.0f}",
    }


def number(value: float | None) -> str:
    """The shortest text that reads back as the same number; nothing where there is none."""
    return "" if value is None or math.isnan(value) else repr(float(value))


def maybe(text: str) -> float | None:
    """The reverse of `number`."""
    return float(text) if text else None


def measured(tables: Tables, subject: Subject, split: str) -> list[Record]:
    """The rows of a network that have a bracket."""
    return [r for r in tables.of("brackets", network=subject.key, split=split) if r["lower"]]


def ours(tables: Tables, subject: Subject, split: str) -> Side:
    """Our rows of a network as samples."""
    found = measured(tables, subject, split)
    return Side(
        [float(r["lower"]) for r in found],
        [maybe(r["upper"]) for r in found],
        [float(r["seconds"]) for r in found],
    )


def theirs_on_ours(tables: Tables, subject: Subject, split: str) -> Side:
    """The published radii of the very images that we have rows of."""
    found = [r for r in measured(tables, subject, split) if r["published_lower"]]
    return Side(
        [float(r["published_lower"]) for r in found],
        [maybe(r["published_upper"]) for r in found],
        [float(r["published_seconds"]) for r in found],
    )
