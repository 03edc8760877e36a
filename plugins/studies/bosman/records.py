"""The authors' records: their published radii by image, and the statistics of the paper computed from them again."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from ..sources import shared
from ..statistics import Side, correlation, describe
from ..study import Key, Measurement, Place, Record, Size
from .subjects import ALL, CONVOLUTIONAL, DENSE, FIRST, STEP, Subject

SPLITS = ("test", "train")
IMAGES = 100  # of each split of MNIST, the paper's first ones; later ones are those of table 6


@dataclass(frozen=True)
class Published:
    """What the records say of one image: published as verified, as falsified (nan: not), and seconds."""

    lower: float
    upper: float
    seconds: float


@cache
def records(file: str) -> dict[tuple[str, str, str], list[tuple[int, Published]]]:
    """By network, split and training the images with their radii."""
    found: dict[tuple[str, str, str], list[tuple[int, Published]]] = {}
    with shared("jair", "published", file).open(newline="", encoding="utf-8") as stream:
        for r in csv.DictReader(stream):
            place = (r["network_path"].strip(), r["split"].strip(), r["training"].strip().lower())
            values = (float(r[c] or "nan") for c in ("epsilon_value", "smallest_sat_value", "total_time"))
            found.setdefault(place, []).append((int(float(r["image_id"])), Published(*values)))
    return found


def known(subject: Subject, split: str, more: bool = False) -> dict[int, Published]:
    """The records of one network; of the first part only the paper's 100 images, or (`more`) only the later ones."""
    every = records(subject.records)
    rows = [row for (path, s, _), part in every.items() if (path, s) == (subject.path, split) for row in part]
    found = {i: p for i, p in rows if math.isfinite(p.lower)}
    return {i: p for i, p in found.items() if (i >= IMAGES) == more} if subject in FIRST else found


def place_of(subject: Subject) -> Key:
    """How rows name a network of the paper."""
    return subject.network, subject.training


class Recomputed(Measurement):
    """The paper's statistics from its own records, so that a difference can be told from a misprint."""

    name: ClassVar[str] = "records"
    key: ClassVar[tuple[str, ...]] = ("network", "training", "split")
    shared: ClassVar[int] = 0
    most: ClassVar[int] = len(ALL)
    columns: ClassVar[tuple[str, ...]] = (
        *("n", "lowest", "mean", "deviation", "gap", "critical", "lognormal_p", "splits_p", "sides_ks_p"),
        *("sides_t_p", "above_012", "above_040", "seconds"),
    )

    def wanted(self, size: Size) -> list[Key]:
        return [(s.network, s.training, split) for s in ALL for split in SPLITS]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for subject in ALL:
            for split in SPLITS:
                key = (*place_of(subject), split)
                if key not in keys:
                    continue
                mine = side(subject, split)
                other = side(subject, "train" if split == "test" else "test")
                yield dict(zip(self.key, key, strict=True)) | describe(mine, other, STEP[subject.data])


def side(subject: Subject, split: str, more: bool = False) -> Side:
    """The records of a network as two samples."""
    found = known(subject, split, more)
    return Side(
        [p.lower for p in found.values()],
        [p.upper if math.isfinite(p.upper) else None for p in found.values()],
        [p.seconds for p in found.values() if math.isfinite(p.seconds)],
    )


FIVE = ("least", "first", "middle", "third", "most")  # the five numbers of a box
PLACES = (0, 0.25, 0.5, 0.75, 1)  # the quantiles that FIVE names


class Boxes(Measurement):
    """The boxes of the figures from the records: five numbers of the radii and of the gaps."""

    name: ClassVar[str] = "record-boxes"
    key: ClassVar[tuple[str, ...]] = ("network", "training", "split")
    columns: ClassVar[tuple[str, ...]] = ("n", *FIVE, "upper", *(f"gap_{c}" for c in FIVE))

    def wanted(self, size: Size) -> list[Key]:
        return [(*place_of(s), split) for s in ALL for split in SPLITS if side(s, split).lower]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        by_place = {place_of(s): s for s in reversed(ALL)}
        for network, training, split in keys:
            found = side(by_place[network, training], split)
            upper = [b for _, b in found.pairs]
            yield {
                "network": network,
                "training": training,
                "split": split,
                "n": str(len(found.lower)),
                "upper": f"{float(np.median(upper)):.5g}" if upper else "",
                **five(found.lower, ""),
                **five([b - a for a, b in found.pairs], "gap_"),
            }


def five(values: Sequence[float], prefix: str) -> dict[str, str]:
    """Least, quartiles and most; empty texts where there are no values."""
    found = [f"{float(v):.5g}" for v in np.quantile(values, PLACES)] if len(values) else [""] * len(FIVE)
    return {f"{prefix}{name}": value for name, value in zip(FIVE, found, strict=True)}


class SameImages(Measurement):
    """Whether the test records of sections 5 and 6 are about test images: ids and radii beside the training ones."""

    name: ClassVar[str] = "record-ids"
    key: ClassVar[tuple[str, ...]] = ("network", "training")
    columns: ClassVar[tuple[str, ...]] = ("n_train", "n_test", "both", "equal")

    def wanted(self, size: Size) -> list[Key]:
        return [place_of(s) for s in (*DENSE, *CONVOLUTIONAL)]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for subject in (*DENSE, *CONVOLUTIONAL):
            if place_of(subject) not in keys:
                continue
            train, test = known(subject, "train"), known(subject, "test")
            both = train.keys() & test.keys()
            counts = (len(train), len(test), len(both), sum(train[i].lower == test[i].lower for i in both))
            yield dict(zip((*self.key, *self.columns), (*place_of(subject), *map(str, counts)), strict=True))


class Pairs(Measurement):
    """Figure 6 from the records: Spearman's correlation of the radii of two networks on the same images."""

    name: ClassVar[str] = "record-pairs"
    key: ClassVar[tuple[str, ...]] = ("split", "first", "second")
    shared: ClassVar[int] = 0
    most: ClassVar[int] = 100
    columns: ClassVar[tuple[str, ...]] = ("n", "spearman")

    def wanted(self, size: Size) -> list[Key]:
        names = [s.network for s in FIRST]
        return [(split, a, b) for split in SPLITS for k, a in enumerate(names) for b in names[k + 1 :]]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        by_name = {s.network: s for s in FIRST}
        for split, a, b in keys:
            one, two = ({i: p.lower for i, p in known(by_name[n], split).items()} for n in (a, b))
            count, value = correlation(one, two)
            yield {"split": split, "first": a, "second": b, "n": str(count), "spearman": f"{value:.4f}"}


class Larger(Measurement):
    """Table 6 from the records: the first 100 training images beside up to 400 others."""

    name: ClassVar[str] = "record-samples"
    key: ClassVar[tuple[str, ...]] = ("network",)
    columns: ClassVar[tuple[str, ...]] = (
        *(
            "n_100",
            "mean_100",
            "deviation_100",
            "n_400",
            "mean_400",
            "deviation_400",
            "ks_p",
            "lognormal_p_400",
        ),
    )

    def wanted(self, size: Size) -> list[Key]:
        return [(n,) for n in ("relu_9_200", "net_256x4", "net_256x6", "nn", "net_256x2")]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        by_name = {s.network: s for s in FIRST}
        for (name,) in keys:
            few, many = (side(by_name[name], "train", more) for more in (False, True))
            one, two = describe(few, many, STEP["mnist"]), describe(many, few, STEP["mnist"])
            yield {
                "network": name,
                **{f"{c}_100": one[c] for c in ("n", "mean", "deviation")},
                **{f"{c}_400": two[c] for c in ("n", "mean", "deviation")},
                "ks_p": one["splits_p"],
                "lognormal_p_400": two["lognormal_p"],
            }
