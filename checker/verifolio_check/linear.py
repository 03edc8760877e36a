"""Linear maps between flat vectors, with weights that lie in dyadic intervals [M, M + error] 2^-exponent."""

from __future__ import annotations

import numpy as np

from verifolio_check.integers import Floats, Ints, largest, magnitude, scaled, times, within

WEIGHT_BITS, FINE_BITS = 24, 30  # of the largest weight of a map, and of one whose inputs may be negative
MOST_MASS = 38  # bits of a sum of weights: with those of a row that is below 62


class Linear:
    """Patches of the inputs, each multiplied with a matrix: dense maps, convolutions, selections, factors.

    `index` (groups, patches, entries) says which inputs make a patch; -1 is zero. Weights between `low` and `high`
    are (groups, entries, channels). The outputs are in the order (groups, channels, patches).
    """

    def __init__(self, low: Floats, high: Floats, inputs: int, index: Ints, fine: bool) -> None:
        self.low, self.high = low, high
        self.inputs, self.index, self.shape = inputs, index, (low.shape[0], low.shape[2], index.shape[1])
        self.outputs = int(np.prod(self.shape))
        sums = [np.abs(low).sum(axis) for axis in (1, 2)]
        bits = min(FINE_BITS, MOST_MASS - magnitude(*sums) + magnitude(low, high)) if fine else WEIGHT_BITS
        self.exponent = max(bits, WEIGHT_BITS) - magnitude(low, high)
        weight = scaled(low, self.exponent)
        self.error = repeats(index) * largest(-scaled(-high, self.exponent) - weight)
        self.weight = weight.astype(np.float64)
        self.back = np.ascontiguousarray(self.weight.transpose(0, 2, 1))
        # no sum of magnitudes of weights over the entries, or over the channels, is larger; errors included
        self.mass = max(
            int((np.abs(weight) + self.error).sum(axis, np.int64).max(initial=0)) for axis in (1, 2)
        )
        flat = index.ravel()
        self.plain = flat.size == inputs and bool((flat == np.arange(inputs)).all())
        self.order = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]
        place = flat[self.order]
        self.starts = np.flatnonzero(np.diff(place, prepend=-1))
        self.targets = place[self.starts]
        self.repeats = int(np.diff(self.starts, append=len(place)).max(initial=0))

    def pull(self, d: Ints) -> Ints:
        """Multipliers (count, outputs) of the outputs as multipliers of the inputs, by the weights M."""
        groups, channels, patches = self.shape
        parts = d.reshape(len(d), groups, channels, patches).swapaxes(2, 3)
        moved = times(parts, self.back, self.mass).reshape(len(d), -1)
        if self.plain:
            return moved
        total = np.zeros((len(d), self.inputs), np.int64)
        if self.repeats <= 1:
            total[:, self.targets] = moved[:, self.order]
        else:
            within(largest(moved) * self.repeats)
            total[:, self.targets] = np.add.reduceat(moved[:, self.order], self.starts, axis=1)
        return total

    def image(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Intervals of the outputs in units of 2^-exponent times those of the inputs."""
        within(4 * (largest(low, high) + 1) * self.mass)
        middle, spread = (
            self.apply(v, w) for v, w in ((low + high, self.weight), (high - low, abs(self.weight)))
        )
        below, above = (
            self.error * self.patches(e(v, 0)).sum(2) for e, v in ((np.minimum, low), (np.maximum, high))
        )
        ends = (middle - spread >> 1) + below[:, None], -(-middle - spread >> 1) + above[:, None]
        return ends[0].ravel(), ends[1].ravel()

    def patches(self, value: Ints) -> Ints:
        return np.asarray(np.append(value, 0)[self.index])

    def apply(self, value: Ints, weight: Floats) -> Ints:
        """Values of the outputs (groups, channels, patches)."""
        return times(self.patches(value), weight, self.mass).swapaxes(1, 2)


def repeats(index: Ints) -> int:
    """How often an input stands in one patch, or more: the errors of its weights add up."""
    ordered = np.sort(index, -1)
    again = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
    return 1 + int(again.sum(-1).max(initial=0))
