"""Which published radii are refuted: attacks on the very balls that the records list as verified, image by image."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio import Answer, Atom, Batch, Dataset, Domain, Network, Oracle, Reference, current_plugins
from verifolio.vnnlib import Rows

from ..sources import dataset
from ..study import Key, Measurement, Place, Record, Size
from .brackets import QUICK, number, unique
from .records import IMAGES, known
from .subjects import Subject

SECONDS = 0.25  # of the attack, per image; every image of a network is attacked in one batch


@dataclass(frozen=True)
class Refuted(Measurement):
    """One row per network, split and image: is there a replayed point within the published radius?"""

    subjects: tuple[Subject, ...]
    splits: tuple[str, ...] = ("test", "train")

    name: ClassVar[str] = "refuted"
    key: ClassVar[tuple[str, ...]] = ("network", "split", "image")
    shared: ClassVar[int] = 2
    most: ClassVar[int] = IMAGES
    columns: ClassVar[tuple[str, ...]] = (
        "published_lower",
        "found",
        "distance",
        "margin",
        "label",
        "becomes",
    )

    def wanted(self, size: Size) -> list[Key]:
        splits, count = (self.splits[:1], QUICK) if size.quick else (self.splits, IMAGES)
        return [
            (s.key, split, str(image))
            for split in splits
            for s in unique(self.subjects)
            for image in sorted(known(s, split))
            if image < count
        ]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        by_key = {s.key: s for s in unique(self.subjects)}
        with Oracle() as oracle:
            for (name, split), group in itertools.groupby(keys, key=lambda k: (k[0], k[1])):
                images = [int(image) for _, _, image in group]
                yield from attacked(by_key[name], split, images, oracle)


def attacked(subject: Subject, split: str, images: Sequence[int], oracle: Oracle) -> Iterator[Record]:
    """All images of one network in one batch; a point counts once ONNX Runtime has replayed it."""
    data, theirs = dataset(subject.data, split), known(subject, split)
    network = Network.load(subject.onnx)
    batch = ball_batch(network, data, {i: theirs[i].lower for i in images})
    answers = oracle.attack(batch, SECONDS * len(images))
    for image, answer in zip(images, answers, strict=True):
        label = int(data.labels[image])
        yield {
            "network": subject.key,
            "split": split,
            "image": str(image),
            "published_lower": number(theirs[image].lower),
            "label": str(label),
            **point(answer, data.image(image), label),
        }


def point(answer: Answer, x: NDArray[np.float64], label: int) -> Record:
    """The replayed point, if there is one: how far it is, and what it becomes."""
    if answer.witness is None:
        return {"found": "no", "distance": "", "margin": "", "becomes": ""}
    outputs = np.asarray(answer.witness.y, np.float64).ravel().copy()
    right = float(outputs[label])
    outputs[label] = -np.inf
    distance = float(np.abs(np.asarray(answer.witness.x, np.float64).ravel() - x).max())
    return {
        "found": "yes",
        "distance": number(distance),
        "margin": f"{float(outputs.max()) - right:.4g}",
        "becomes": str(int(outputs.argmax())),
    }


def ball_batch(network: Network, data: Dataset, radii: dict[int, float]) -> Batch:
    """One question per image: another class within its own radius."""
    prop = current_plugins().properties.get("classification")()
    conditions, atoms, domains = list[tuple[Rows, ...]](), list[Atom](), list[Domain]()
    labels: dict[int, int] = {}
    for image, radius in radii.items():
        x, label = data.image(image), int(data.labels[image])
        if label not in labels:
            labels[label] = len(conditions)
            query = prop.query([network], Reference(x, label, radius))
            conditions.append(tuple(query.specification.cases[0].disjuncts))
        atoms.append(Atom((0,), len(domains), labels[label]))
        domains.append(Domain(np.maximum(x - radius, 0.0), np.minimum(x + radius, 1.0)))
    entries = tuple((k,) for k in range(len(atoms)))
    return Batch((network,), tuple(domains), tuple(conditions), tuple(atoms), entries)
