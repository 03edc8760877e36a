"""The branch-and-bound tree of a search on inputs, box by box."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
MOST_NODES = 1 << 24  # what the checker reads, and half a gigabyte here


class BoxTree:
    """The boxes of a search on inputs; box 0 is the whole input set."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ids, Ids, Array, Ids]] = []
        self.count = 1

    def split(self, node: Ids, dimension: NDArray[np.intp], cut: Array) -> Ids:
        """Numbers of the parts of split boxes: all lower parts, then all upper parts."""
        left = np.arange(self.count, self.count + len(node))
        self.count += 2 * len(node)
        if self.count < MOST_NODES:
            self.parts.append((node, dimension.astype(np.int64), cut, left))
        return np.concatenate([left, left + len(node)])

    def arrays(self) -> dict[str, Any]:
        """Per box: the input along which it was cut (-1: closed) and where, its parts; nothing if too many."""
        if self.count >= MOST_NODES:
            return {}
        table, cuts = np.full((3, self.count), -1, np.int64), np.zeros(self.count)
        for node, dimension, cut, left in self.parts:
            table[:, node], cuts[node] = (dimension, left, left + len(node)), cut
        return {"dimension": table[0], "left": table[1], "right": table[2], "cut": cuts}


def short(middle: Array, width: Array) -> Array:
    """The middle of intervals, moved by less than a sixteenth of the width to numbers of few bits."""
    exponent = np.frexp(width)[1] - 4
    return np.asarray(np.ldexp(np.rint(np.ldexp(middle, -exponent)), exponent))
