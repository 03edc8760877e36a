"""Certificates of searches on inputs: the tree of boxes, refined wherever the checker's own bounds leave one open."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from verifolio_check.bounds import Choice, Index, Model, Rows, State
from verifolio_check.integers import Ints
from verifolio_check.tree import INPUT, LEAF, NO_CUT, Tree, Walk, Work
from verifolio_check.vnnlib import Row

BOTH_MARKS = 3  # "*!": neurons are bounded anew on every box, and the box is narrowed
MOST_REFINED = 1 << 22


class CannotWrite(Exception):
    """Why there is no certificate."""


class Watching(Model):
    """Remembers the rows that last met each ReLU, and ends the writing when it takes too long."""

    seen: dict[int, Ints]
    deadline = math.inf

    def _relu(self, z: int, state: State, at: Index, row: Rows, choice: Choice | None) -> tuple[Ints, Ints]:
        if time.monotonic() > self.deadline:
            raise CannotWrite("the checker's bounds took too long to follow the search")
        self.seen[z] = row.value
        return super()._relu(z, state, at, row, choice)


class BoxTree(Tree):
    """A tree that grows, made of what a search left behind."""

    def __init__(self, trace: dict[str, Any], scale: int) -> None:
        self.count = len(trace["dimension"])
        inner = trace["dimension"] >= 0
        self.kind = np.where(inner, INPUT, LEAF).astype(np.int64)
        self.place = np.where(inner, trace["dimension"], 0)
        # cuts have few bits, so this is exact unless the box is very small; the tree is written from these
        self.cut = np.where(inner, np.floor(np.ldexp(trace["cut"], scale)), NO_CUT).astype(np.int64)
        self.left, self.right = trace["left"].copy(), trace["right"].copy()
        self.neuron = np.zeros(self.count, np.int64)
        self.marks = np.full(self.count, BOTH_MARKS)
        self.data = {}

    def grow(self, node: np.ndarray, place: np.ndarray, cut: np.ndarray) -> None:
        """Split leaves."""
        while self.count + 2 * len(node) > len(self.kind):
            self._double()
        if self.count > MOST_REFINED + len(self.kind):
            raise CannotWrite("the checker's bounds would need far more boxes than the search")
        left = np.arange(self.count, self.count + len(node))
        self.kind[node], self.place[node], self.cut[node] = INPUT, place, cut
        self.left[node], self.right[node] = left, left + len(node)
        self.count += 2 * len(node)

    def _double(self) -> None:
        size = len(self.kind)
        for name, fill in (("kind", LEAF), ("place", 0), ("cut", NO_CUT), ("left", -1), ("right", -1)):
            setattr(self, name, np.concatenate([getattr(self, name), np.full(size, fill, np.int64)]))
        self.neuron = np.zeros(2 * size, np.int64)
        self.marks = np.full(2 * size, BOTH_MARKS)

    def text(self, scale: int) -> list[str]:
        """The nodes in preorder."""
        kind, place, cut, left, right = (
            getattr(self, name).tolist() for name in ("kind", "place", "cut", "left", "right")
        )
        out, stack = [], [0]
        while stack:
            n = stack.pop()
            if kind[n] == LEAF:
                out.append("*!.")
                continue
            out.append(f"*!{place[n]}@{dyadic(cut[n], scale)}/")
            stack += [right[n], left[n]]
        return out


class BoxWalk(Walk):
    """Splits leaves that the checker's bounds leave open."""

    tree: BoxTree

    def __init__(self, model: Model, tree: BoxTree, disjuncts: list[tuple[Row, ...]]) -> None:
        super().__init__(model, tree, disjuncts)
        self.refined = 0

    def fail(self, work: Work) -> None:
        state, every = work.state, np.arange(len(work.node))
        width = state.upper - state.lower
        if (width <= 1).all(1).any():
            raise CannotWrite("a box of the size of the rounding stays open in the checker's arithmetic")
        size = np.zeros(width.shape)
        for _, _, over, _ in self.margins(state, every):
            size += np.abs(over.value) * np.exp2(-over.exponent.astype(np.float64))[:, None]
        place = np.where(width > 1, (size + 1e-9 * size.max() + 1e-300) * width, -1.0).argmax(1)
        cut = (state.lower[every, place] + state.upper[every, place]) >> 1
        self.tree.grow(work.node, place, cut)
        self.refined += len(every)


def dyadic(value: int, exponent: int) -> str:
    """value 2^-exponent in the fewest digits."""
    if value == 0:
        return "0"
    zeros = (value & -value).bit_length() - 1
    value, exponent = value >> zeros, exponent - zeros
    if exponent < 0 and exponent > -60:
        return str(value << -exponent)
    return f"{value}p{exponent}" if exponent else str(value)
