"""Which inputs around an input are meant: a radius, legal values, features that move differently or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError, near
from verifolio.model.problem import Ball
from verifolio.plugin.property import Reference

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scaled:
    """A box whose sides differ: at radius r, feature i moves by at most r times `reach[i]`; rounded outward."""

    x: Array
    reach: Array

    def box(self, radius: float) -> tuple[Array, Array]:
        step = np.nextafter(radius * self.reach, np.inf) * (self.reach > 0)
        lower = np.where(step > 0, np.nextafter(self.x - step, -np.inf), self.x)
        return lower, np.where(step > 0, np.nextafter(self.x + step, np.inf), self.x)

    def ball(self, radius: float) -> Ball | None:
        return None


@dataclass(frozen=True, eq=False)
class Around:
    """All inputs within `epsilon` of an input, inside `low` and `high`.

    With a `reach`, feature i moves by at most epsilon times `reach[i]`, and radii are measured in these units.
    `integers` are the positions of features that only have whole values.
    """

    epsilon: float
    norm: float = math.inf
    low: Array | float = 0.0
    high: Array | float = 1.0
    reach: Array | None = None
    integers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.reach is not None and not math.isinf(self.norm):
            raise InputError(
                "norm", "linf where features have radii of their own", repr(self.norm), "leave it out"
            )

    def reference(self, x: Array, label: int, origin: Mapping[str, str] | None = None) -> Reference:
        """The reference of one input."""
        flat = np.asarray(x, np.float64).ravel()
        geometry = None if self.reach is None else Scaled(flat, self.reach)
        place = (flat, label, self.epsilon, self.norm, self.low, self.high)
        return Reference(*place, geometry=geometry, origin=origin or {})

    def distance(self, x: Array, other: NDArray[np.floating]) -> float:
        """How far two inputs are apart, in the units of the radius."""
        gap = np.asarray(other, np.float64).ravel() - np.asarray(x, np.float64).ravel()
        if self.reach is not None:
            gap = np.divide(gap, self.reach, out=np.zeros_like(gap), where=self.reach > 0)
        return float(np.linalg.norm(gap, self.norm))


@dataclass(frozen=True)
class Features:
    """What is said about features by name or position: radii, legal values, which are whole or may not change."""

    names: tuple[str, ...] = ()
    size: int = 0
    fixed: Sequence[str | int] = ()
    integers: Sequence[str | int] = ()
    epsilon: float | Mapping[str, float] | Sequence[float] = 0.0
    range: tuple[float, float] | Mapping[str, tuple[float, float]] = field(default=(-math.inf, math.inf))

    def position(self, feature: str | int) -> int:
        """Where a feature stands."""
        if isinstance(feature, str) and feature in self.names:
            return self.names.index(feature)
        if isinstance(feature, int) and 0 <= feature < self.size:
            return feature
        known = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        expected = f"one of {known}" if self.names else f"a position from 0 to {self.size - 1}"
        raise InputError(
            "feature", expected, repr(feature), "check the name" + near(str(feature), self.names)
        )

    def around(self, norm: float = math.inf) -> Around:
        """The neighbourhood that they describe."""
        radius, reach = self._radii()
        low, high = self._limits()
        if self.fixed:
            reach = np.ones(self.size) if reach is None else reach
            reach[[self.position(f) for f in self.fixed]] = 0.0
        integers = tuple(self.position(f) for f in self.integers)
        return Around(radius, norm, low, high, reach, integers)

    def _radii(self) -> tuple[float, Array | None]:
        """One radius for all features; or 1, and how far each moves then."""
        if isinstance(self.epsilon, int | float):
            return float(self.epsilon), None
        reach = np.zeros(self.size)
        if isinstance(self.epsilon, Mapping):
            for name, value in self.epsilon.items():
                reach[self.position(name)] = float(value)
        else:
            try:
                given = np.asarray(self.epsilon, np.float64).ravel()
            except ValueError:
                remedy = "write numbers without quotes, such as 8 / 255"
                raise InputError(
                    "epsilon", "a number, or one for each feature", repr(self.epsilon), remedy
                ) from None
            if len(given) != self.size:
                raise InputError(
                    "epsilon", f"one number, or one for each of {self.size} features", str(len(given))
                )
            reach = given.copy()
        if not (np.isfinite(reach).all() and (reach >= 0).all()):
            raise InputError("epsilon", "finite numbers, none negative", repr(self.epsilon))
        return 1.0, reach

    def _limits(self) -> tuple[Array | float, Array | float]:
        """Both sides, as the numbers of single precision that stand for them in the data."""
        if not isinstance(self.range, Mapping):
            low, high = self.range
            return float(np.float32(low)), float(np.float32(high))
        lower, upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        for name, (low, high) in self.range.items():
            k = self.position(name)
            lower[k], upper[k] = np.float32(low), np.float32(high)
        return lower, upper
