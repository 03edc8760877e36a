"""Real runs of k-binary search on the paper's grid: queries, cancelled ones, and both clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from verifolio import Asked, current_plugins, distribution

from ..sources import dataset, processor_seconds
from ..study import Key, Measurement, Place, Record, Size
from .brackets import number
from .subjects import FIRST, Subject, subject

GRID = "0.001:0.399:0.002"  # the paper's 200 radii
PARALLEL = (1, 2, 4, 8, 16)  # table 1's
NETWORKS = ("net_256x2", "net", "relu_3_50")  # public ones of three kinds that answer within a minute
IMAGES, QUICK = 20, 1  # training images per network
TIMEOUT, QUICK_TIMEOUT = 60.0, 2.0  # seconds per query; the paper has an hour
UNANSWERED = frozenset({"timeout", "memout", "unknown", "error"})


@dataclass(frozen=True)
class KBinary(Measurement):
    """One row per network, image and k, each with a store of its own, so that nothing is known before."""

    name: ClassVar[str] = "k-binary"
    key: ClassVar[tuple[str, ...]] = ("network", "image", "k")
    columns: ClassVar[tuple[str, ...]] = (
        *("lower", "upper", "queries", "cancelled", "unanswered", "wall", "cpu", "timeout"),
    )

    def wanted(self, size: Size) -> list[Key]:
        images = range(QUICK if size.quick else IMAGES)
        names = NETWORKS[:1] if size.quick else NETWORKS
        many = (1, 2) if size.quick else PARALLEL
        return [(name, str(i), str(k)) for i in images for name in names for k in many]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        for name, image, k in keys:
            one = subject(name, among=FIRST)
            if one is not None:
                yield {"network": name, "image": image, "k": k, **search(one, int(image), int(k), place)}


def search(one: Subject, image: int, k: int, place: Place) -> Record:
    """One search from nothing."""
    timeout = QUICK_TIMEOUT if place.size.quick else TIMEOUT
    store = place.folder / "stores" / "k-binary.db"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.unlink(missing_ok=True)
    before = processor_seconds()
    (found,) = distribution(
        one.onnx,
        dataset("mnist", "train"),
        indices=[image],
        epsilon=GRID,
        search="k-binary",
        k=k,
        timeout=timeout,
        budget=0.0,
        store=store,
        progress=False,
    )
    spent = processor_seconds() - before
    account = current_plugins().readers.get("distribution")().read([store], Asked())
    verdicts = [e.verdict for e in account.events] if account is not None else []
    return {
        "lower": number(found.lower),
        "upper": number(found.upper),
        "queries": str(len(verdicts)),
        "cancelled": str(verdicts.count("cancelled")),
        "unanswered": str(sum(v in UNANSWERED for v in verdicts)),
        "wall": f"{found.seconds:.2f}",
        "cpu": f"{spent:.2f}",
        "timeout": f"{timeout:g}",
    }
