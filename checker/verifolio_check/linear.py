"""Linear maps between flat vectors, with weights that lie in dyadic intervals [M, M + error] 2^-exponent.

`pull` takes multipliers (count, outputs) of the map's outputs back to its inputs, `image` takes intervals forward.
Both compute with the integers M; `error` says how much of a weight may be missing.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from verifolio_check.integers import Floats, Ints, Matrix, largest, magnitude, scaled, within

WEIGHT_BITS = 24  # of the largest weight of a map


class Linear(Protocol):
    """outputs = weights @ inputs."""

    inputs: int
    outputs: int
    exponent: int
    error: int
    size: int  # the largest |M|

    def pull(self, d: Ints) -> Ints: ...

    def image(self, low: Ints, high: Ints) -> tuple[Ints, Ints]: ...


def quantised(low: Floats, high: Floats) -> tuple[Ints, int, int]:
    """(M, exponent, error) of weights in [low, high]."""
    exponent = WEIGHT_BITS - max(magnitude(low), magnitude(high))
    value = scaled(low, exponent)
    return value, exponent, largest(scaled(high, exponent, up=True) - value)


class Select:
    """outputs[k] = sign inputs[index[k]], or 0 where the index is -1."""

    def __init__(self, index: Ints, inputs: int, sign: int = 1) -> None:
        self.index, self.sign = index, sign
        self.inputs, self.outputs = inputs, len(index)
        self.exponent, self.error, self.size = 0, 0, 1
        self.plain = len(index) == inputs and bool((index == np.arange(inputs)).all())
        self.distinct = len(np.unique(index)) == len(index)
        self.repeats = int(np.bincount(index + 1, minlength=1)[1:].max(initial=0))

    def pull(self, d: Ints) -> Ints:
        if self.plain:
            return d * self.sign
        within(largest(d) * self.repeats)
        total = np.zeros((len(d), self.inputs + 1), np.int64)
        if self.distinct:
            total[:, self.index] = d
        else:
            np.add.at(total.T, self.index, d.T)
        return total[:, : self.inputs] * self.sign

    def image(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        ends = (np.append(e, 0)[self.index] * self.sign for e in (low, high))
        first, second = ends
        return (first, second) if self.sign > 0 else (second, first)


class Scale:
    """outputs[k] = weight[k] inputs[k]."""

    def __init__(self, low: Floats, high: Floats) -> None:
        self.low, self.high = low, high
        self.weight, self.exponent, self.error = quantised(low, high)
        self.inputs = self.outputs = len(low)
        self.size = largest(self.weight)

    def pull(self, d: Ints) -> Ints:
        within(largest(d) * self.size)
        return d * self.weight

    def image(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        within(max(largest(low), largest(high)) * (self.size + self.error) * self.inputs)
        a, b = low * self.weight, high * self.weight
        return np.minimum(a, b) + self.error * np.minimum(low, 0), np.maximum(a, b) + self.error * np.maximum(
            high, 0
        )


class Product:
    """Patches of the inputs, each multiplied with a matrix: dense maps, and convolutions.

    `index` (groups, patches, entries) says which inputs make a patch (-1: zero), None: the inputs in order. Weights
    are (groups, entries, channels). The outputs are in the order (groups, channels, patches), or (patches, channels).
    """

    def __init__(
        self, low: Floats, high: Floats, inputs: int, index: Ints | None = None, channels_first: bool = False
    ) -> None:
        self.low, self.high = low, high
        weight, self.exponent, self.error = quantised(low, high)
        self.groups, self.entries, self.channels = weight.shape
        self.inputs, self.index, self.channels_first = inputs, index, channels_first
        self.patches = inputs // self.entries if index is None else index.shape[1]
        self.outputs = self.groups * self.patches * self.channels
        self.size = largest(weight)
        self.weight = weight
        self.back = [Matrix(np.ascontiguousarray(w.T)) for w in weight]

    def pull(self, d: Ints) -> Ints:
        count = len(d)
        if self.index is None:
            return self.back[0].times(d.reshape(-1, self.channels)).reshape(count, self.inputs)
        parts = d.reshape(count, self.groups, self.channels, self.patches)
        within(largest(d) * self.size * self.channels * self.entries)
        total = np.zeros((count, self.inputs + 1), np.int64)
        for g, matrix in enumerate(self.back):
            rows = parts[:, g].transpose(0, 2, 1).reshape(-1, self.channels)
            moved = matrix.times(rows).reshape(count, self.patches, self.entries)
            for t in range(self.entries):  # the same entry of two patches is never the same input
                total[:, self.index[g, :, t]] += moved[:, :, t]
        return total[:, : self.inputs]

    def image(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        total = []
        for ends in ((low, high, np.minimum(low, 0)), (high, low, np.maximum(high, 0))):
            first, second, error = ends
            within(max(largest(low), largest(high)) * (self.size + self.error) * self.inputs)
            slack = self.error * int(error.sum())
            total.append(
                self._apply(first, np.maximum(self.weight, 0), second, np.minimum(self.weight, 0)) + slack
            )
        return total[0], total[1]

    def _apply(self, a: Ints, positive: Ints, b: Ints, negative: Ints) -> Ints:
        out = []
        for g in range(self.groups):
            sums = Matrix(positive[g]).times(self.patches_of(a, g)) + Matrix(negative[g]).times(
                self.patches_of(b, g)
            )
            out.append((sums.T if self.channels_first else sums).ravel())
        return np.concatenate(out)

    def patches_of(self, value: Ints, group: int) -> Ints:
        """The patches of one group (patches, entries)."""
        if self.index is None:
            return value.reshape(self.patches, self.entries)
        return np.asarray(np.append(value, 0)[self.index[group]])
