"""Trees of certificates while they are made, and a walk that splits the leaves that the checker leaves open."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from verifolio_check.bounds import Domains, Ends, Index, Model, Sweep
from verifolio_check.certificate import LEAF, NO_CUT, NO_DATA, Data, Goal, Tree, Walk
from verifolio_check.integers import Ints

FEW_INPUTS = 16  # with so few, or where the search did so, what a leaf lacks is won by halving inputs
# levels of halved boxes from one that bounds its neurons anew to the next; a leaf does so where it must. Bounding all
# neurons costs a hundred times a leaf's own rows
APART = 3
SMALL = 10_000  # values of a network whose neurons are bounded anew where a leaf is split
# a part of a box is worth a leaf of its own if it is more than a fifth of the width; where it is cut is rounded to a
# step of one to two hundredths of the width, so that the cut has few digits and bounds on the rest may move a little
WORTHWHILE, SPARE = 0.8, 0.01
COLUMNS = ("place", "neuron", "cut", "star", "parent", "left", "right")


class CannotWrite(Exception):
    """Why there is no certificate."""


class GrowingTree(Tree):
    """A tree whose leaves can be split; node 0 is the root."""

    def __init__(self, count: int = 1) -> None:
        self.count, self.data = count, {}
        for name in COLUMNS:
            setattr(self, name, np.full(max(64, count), 0 if name in ("neuron", "cut", "star") else -1))

    @classmethod
    def of_boxes(cls, trace: dict[str, Any], scale: int) -> GrowingTree:
        """What a search on inputs left behind; boxes of every few levels bound their neurons anew."""
        tree = cls(len(trace["dimension"]))
        inner = np.flatnonzero(trace["dimension"] >= 0)
        tree.place[inner], tree.neuron[inner] = 0, trace["dimension"][inner]
        # cuts have few bits, so this is exact unless the box is very small; the tree is written from these
        tree.cut[inner] = np.floor(np.ldexp(trace["cut"][inner], scale)).astype(np.int64)
        for side in ("left", "right"):
            parts = trace[side][inner]
            getattr(tree, side)[inner], tree.parent[parts] = parts, inner
        level, depth = np.zeros(1, np.int64), 0
        while len(level):
            tree.star[level] = depth % APART == 0
            level = level[tree.place[level] != LEAF]
            level, depth = np.concatenate([tree.left[level], tree.right[level]]), depth + 1
        return tree

    def split(self, nodes: Index, place: Ints, neuron: Ints, cut: Ints, star: bool) -> None:
        """Both parts of leaves."""
        while self.count + 2 * len(nodes) > len(self.place):
            for name in COLUMNS:
                old = getattr(self, name)
                fill = 0 if name in ("neuron", "cut", "star") else -1
                setattr(self, name, np.concatenate([old, np.full_like(old, fill)]))
        self.place[nodes], self.neuron[nodes], self.cut[nodes] = place, neuron, cut
        self.left[nodes] = np.arange(self.count, self.count + len(nodes))
        self.right[nodes] = self.left[nodes] + len(nodes)
        for side in (self.left, self.right):
            self.parent[side[nodes]], self.star[side[nodes]] = nodes, star
        self.count += 2 * len(nodes)

    def text(self, model: Model) -> list[str]:
        """The nodes in preorder."""
        numbers = {model.network.input_of(k): k for k in range(len(model.network.curves))}
        out, stack = [], [0]
        while stack:
            n = stack.pop()
            star, z = "*" if self.star[n] else "", int(self.place[n])
            if z == LEAF:
                parts = [k + v for k, v in zip("abm", self.data.get(n, NO_DATA), strict=True) if v]
                out.append(star + (f"[{';'.join(parts)}]" if parts else "") + ".")
                continue
            cut = int(self.cut[n])
            where = str(self.neuron[n]) if z == 0 else f"r{numbers[z]}.{self.neuron[n]}"
            shown = "" if cut == (NO_CUT if z == 0 else 0) else f"@{dyadic(cut, model.scale[z])}"
            out.append(f"{star}{where}{shown}/")
            stack += [int(self.right[n]), int(self.left[n])]
        return out


class Watched(Sweep):
    """Remembers the rows that met each function."""

    def run(self, start: Any) -> Ints:
        self.met: Ends = {}
        return super().run(start)

    def through_curve(self, n: int) -> None:
        self.met[self.model.network.nodes[n].parent] = self.rows[n][0]
        super().through_curve(n)


Place = tuple[int, int]  # a node of the network, and a neuron
Mend = Callable[[Domains, GrowingTree, list[tuple[int, Index]]], tuple[Data | None, Place | None]]


class Refining(Walk):
    """Finds better multipliers for leaves that the checker's bounds leave open (`mend`), or splits them."""

    tree: GrowingTree
    refined = 0

    def __init__(
        self,
        model: Model,
        tree: GrowingTree,
        goal: Goal,
        unit: int,
        deadline: float,
        most: int,
        mend: Mend | None = None,
        boxes: bool = False,
    ) -> None:
        super().__init__(model, tree, [goal], unit, len(model.network.nodes) - 1)
        self.deadline, self.allowed, self.mend = deadline, most, mend
        self.seen: dict[int, Place | None] = {}  # leaves that were mended, and where to split them
        self.few = boxes or self.first.low[0].shape[1] <= FEW_INPUTS
        self.again = self.first.pick(np.zeros(0, np.intp))

    def step(self, work: Domains) -> Domains:
        if time.process_time() > self.deadline:
            raise CannotWrite("the checker's bounds took too long to follow the search")
        after, again = super().step(work), self.again
        self.again = again.pick(np.zeros(0, np.intp))
        return after.join(again)

    def close(self, leaves: Domains, margin: Ints) -> None:
        work = leaves.pick(margin <= 0)
        if self.few:  # bound the neurons anew first
            bare = self.tree.star[work.node] == 0
            self.tree.star[work.node] = 1
            self.again, work = work.pick(bare), work.pick(~bare)
        work = self._mended(self._shaved(work) if self.few and len(self.goals[0]) == 1 else work)
        self.refined += len(work.node)
        if self.refined > self.allowed:
            raise CannotWrite("the checker's bounds would need far more subproblems than the search")
        if not len(work.node):
            return
        if self.few:
            self._halve(work)
        else:
            for k in range(len(work.node)):
                self._fix(work.pick(np.array([k])))

    def _shaved(self, work: Domains) -> Domains:
        """The leaves of which no row cuts off a part: where a row's bound is too large, there is nothing to find.

        The parts that are cut off are leaves of their own, which the row closes; what is left is bounded anew.
        """
        every = np.arange(len(work.node))
        low, high = (e[0].astype(np.float64) for e in (work.low, work.high))
        step = np.exp2(np.ceil(np.log2(np.maximum(SPARE * (high - low), 1))))
        for start, limit, _ in self.goals[0][0] if len(every) else ():
            sweep = self.sweep(work, every)
            total = sweep.run(
                {n: (v.repeat(len(every), 0), w.repeat(len(every))) for n, (v, w) in start.items()}
            )
            if 0 not in sweep.rows:
                continue
            value, exponent = sweep.rows[0]
            unit = np.exp2((exponent + self.model.scale[0] - self.unit).astype(np.float64))[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.maximum(limit - total, 0)[:, None] * unit / np.abs(value)
            high = np.where(value > 0, np.minimum(high, step * np.ceil((low + reach) / step + 0.5)), high)
            low = np.where(value < 0, np.maximum(low, step * np.floor((high - reach) / step - 0.5)), low)
        kept = (high - low) / np.maximum(work.high[0] - work.low[0], 1)
        for k in every[(kept < WORTHWHILE).any(1)]:
            self._cut_off(int(work.node[k]), work.low[0][k], work.high[0][k], low[k], high[k])
        return work.pick(~(kept < WORTHWHILE).any(1))

    def _cut_off(self, node: int, low: Ints, high: Ints, new_low: Any, new_high: Any) -> None:
        for i in np.flatnonzero((new_high - new_low) < WORTHWHILE * (high - low)).tolist():
            for cut, left in ((int(new_low[i]), False), (int(new_high[i]), True)):
                if low[i] < cut < high[i]:
                    one = np.array([node])
                    self.tree.split(one, np.zeros(1, np.int64), np.array([i]), np.array([cut]), False)
                    self._inherit(node, [])
                    node = int((self.tree.left if left else self.tree.right)[node])
                    self.refined += 1
        self.tree.star[node] = 1

    def _mended(self, work: Domains) -> Domains:
        """The leaves for which no better multipliers are found; the others are looked at again."""
        left = []
        for k, node in enumerate(work.node.tolist()):
            if self.mend is not None and node not in self.seen:
                leaf = work.pick(np.array([k]))
                data, self.seen[node] = self.mend(leaf, self.tree, self.open)
                if data is not None:
                    self.tree.data[node] = data
                    self.again = self.again.join(leaf)
                    continue
            left.append(k)
        return work.pick(np.array(left, np.intp))

    def _halve(self, work: Domains) -> None:
        """Cut the input that matters most to the rows."""
        width, every = work.high[0] - work.low[0], np.arange(len(work.node))
        if (width <= 1).all(1).any():
            raise CannotWrite("a box of the size of the rounding stays open in the checker's arithmetic")
        size = np.zeros(width.shape)
        for rows in self.goals[0]:
            for start, _, _ in rows:
                sweep = self.sweep(work, every)
                sweep.run({n: (v.repeat(len(every), 0), w.repeat(len(every))) for n, (v, w) in start.items()})
                value, exponent = sweep.rows[0]
                size += np.abs(value) * np.exp2(-exponent.astype(np.float64))[:, None]
        place = np.where(width > 1, (size + 1e-9 * size.max() + 1e-300) * width, -1.0).argmax(1)
        self.tree.split(work.node, np.zeros_like(place), place, np.full_like(place, NO_CUT), False)
        for node in work.node.tolist():
            self._inherit(node, [])

    def _fix(self, work: Domains) -> None:
        """Fix the sign of the neuron whose relaxation may cost the most."""
        node = int(work.node[0])
        sweep = Watched(self.model, work, np.zeros(1, np.intp), self.unit)
        stated = self.sweep(work, np.zeros(1, np.intp))
        sweep.slopes, sweep.moves = stated.slopes, stated.moves
        rows = self.goals[0][0]
        sweep.run(rows[0][0])
        best, where = 0.0, self.seen.get(node) or (LEAF, 0)
        for z, a in sweep.met.items() if where[0] == LEAF else ():
            low, high = (e[z][0].astype(np.float64) for e in (work.low, work.high))
            gap = np.where(a[0] < 0, -low * high / np.maximum(high - low, 1), np.minimum(-low, high) / 2)
            free = (low < 0) & (high > 0) & (z in self.model.kinked)
            cost = np.where(free, np.abs(a[0]) * gap * 2.0 ** -float(self.model.scale[z]), 0.0)
            if cost.max() > best:
                best, where = float(cost.max()), (z, int(cost.argmax()))
        if where[0] == LEAF:
            raise CannotWrite("a subproblem without open neurons stays open in the checker's arithmetic")
        small = sum(len(e) for e in self.model.low) < SMALL
        one = np.array([node])
        self.tree.split(one, np.array([where[0]]), np.array([where[1]]), np.zeros(1, np.int64), small)
        self._inherit(node, ["0"])

    def _inherit(self, node: int, more: list[str]) -> None:
        """What a leaf stated, its parts state, and multipliers of one split more."""
        slopes, moves, weights = self.tree.data.pop(node, NO_DATA)
        if more and moves:
            moves = ",".join([moves, *more])
        for side in (self.tree.left, self.tree.right):
            if slopes or moves or weights:
                self.tree.data[int(side[node])] = (slopes, moves, weights)


def dyadic(value: int, exponent: int) -> str:
    """value 2^-exponent in the fewest digits."""
    if value == 0:
        return "0"
    zeros = (value & -value).bit_length() - 1
    value, exponent = value >> zeros, exponent - zeros
    if -60 < exponent < 0:
        return str(value << -exponent)
    return f"{value}p{exponent}" if exponent else str(value)
