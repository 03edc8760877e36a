"""Spots: the references of an ensemble as domains, each with its hash."""

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
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.property import Reference

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]


def make_references(
    data: Dataset,
    indices: Sequence[int],
    epsilon: float,
    norm: float = math.inf,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> list[Reference]:
    """The data's points, rounded to float32 as networks see them; `limits` are the legal values of inputs."""
    low, high = limits
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
    """One reference as the domain that attacks move in, and its hash."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.lower, self.upper = reference.box
        self.ball: Ball | None = reference.ball

    @property
    def domain(self) -> Domain:
        return Domain(self.lower, self.upper, None, self.ball)

    @cached_property
    def sha256(self) -> str:
        r = self.reference
        digest = hashlib.sha256(self.lower.tobytes() + self.upper.tobytes())
        digest.update(r.x.tobytes() + repr((r.label, r.epsilon, r.norm)).encode())
        return digest.hexdigest()
