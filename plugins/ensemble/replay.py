"""Concrete points: snapped to float32 inside the ball, run through ONNX Runtime, and what they fool."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verifolio.data import check_range
from verifolio.errors import InputError
from verifolio.model.problem import Ball, Domain
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.property import Reference
from verifolio.trust.referee import in_ball

from .joint import class_counts

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
SHRINK = (0.0, 2.0**-22, 2.0**-18, 2.0**-14, 2.0**-10)


def make_references(
    data: Dataset, indices: Sequence[int], epsilon: float, norm: float = math.inf, clip: bool = False
) -> list[Reference]:
    """The data's points, rounded to float32 as networks see them; without `clip` no pixel range is kept."""
    low, high = (0.0, 1.0) if clip else (-math.inf, math.inf)
    check_range(data, indices, low, high)
    found = []
    for i in indices:
        x = data.image(i).astype(np.float32).astype(np.float64)
        label = int(data.labels[i])
        if label < 0:
            raise InputError(f"{data.name}:{data.split}", "labelled points", f"point {i} without a label")
        found.append(Reference(x, label, epsilon, norm, low, high))
    return found


class Spot:
    """One reference as the domain that attacks move in; knows its float32 points and its hash."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.lower, self.upper = reference.box
        self.ball: Ball | None = reference.ball

    @property
    def domain(self) -> Domain:
        return Domain(self.lower, self.upper, None, self.ball)

    @cached_property
    def inner(self) -> tuple[Float32, Float32]:
        """The largest float32 box inside; the point itself is a float32, so there always is one."""
        low, high = self.lower.astype(np.float32), self.upper.astype(np.float32)
        low = np.where(low.astype(np.float64) < self.lower, np.nextafter(low, np.float32(np.inf)), low)
        high = np.where(high.astype(np.float64) > self.upper, np.nextafter(high, np.float32(-np.inf)), high)
        return low.astype(np.float32), high.astype(np.float32)

    @cached_property
    def sha256(self) -> str:
        r = self.reference
        digest = hashlib.sha256(self.lower.tobytes() + self.upper.tobytes())
        digest.update(r.x.tobytes() + repr((r.label, r.epsilon, r.norm)).encode())
        return digest.hexdigest()

    def snap(self, x: NDArray[np.floating]) -> Float32 | None:
        """The float32 point nearest to x that lies in box and ball exactly, if one is near."""
        low, high = self.inner
        centre = self.reference.x
        for shrink in SHRINK:
            moved = centre + (1 - shrink) * (np.asarray(x, np.float64) - centre)
            point: Float32 = np.clip(moved.astype(np.float32), low, high)
            if self.ball is None or in_ball(self.ball, point):
                return point
        return None


class Referee:
    """Runs points through the original files and says which networks they fool."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = list(networks)

    def check(self, reference: Reference) -> None:
        """Raise if data and networks do not fit together."""
        class_counts(self.networks, reference)

    def fools(self, network: int, x: Float32, label: int) -> bool:
        """Whether one network's label is wrong or tied."""
        y = self.networks[network].replay(x)
        return not bool(np.delete(y, label).max() < y[label])

    def pattern(self, x: Float32, label: int) -> int:
        """The set of networks that x fools."""
        return sum(1 << c for c in range(len(self.networks)) if self.fools(c, x, label))

    def seen(self, spot: Spot, x: NDArray[np.floating]) -> tuple[int, Float32] | None:
        """A point near x inside the ball and the set it fools; None where no float32 point is inside."""
        point = spot.snap(x)
        return None if point is None else (self.pattern(point, spot.reference.label), point)
