"""Certificates of searches on neurons: a tree of phases per disjunct, whose leaves state their multipliers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.certificates.boxes import CannotWrite, Watching
from verifolio_check.bounds import ROW_BITS, Model
from verifolio_check.tree import INPUT, LEAF, LEVELS, NEURON, NO_CUT, Tree, Walk, Work
from verifolio_check.vnnlib import Row

SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
WEIGHT = 1 << 12  # what the weights of several rows add up to
FEW_INPUTS = 16  # with so few, what a leaf lacks is won by halving inputs
SMALL = 10_000  # values of a network whose neurons are bounded anew where a leaf is split
MOST_REFINED = 20_000  # beyond the search's own; more means that its bounds were of another kind
Phases = NDArray[np.int8]


class PhaseTree(Tree):
    """A tree that grows."""

    def __init__(self) -> None:
        self.data = {}
        self.table = np.zeros((7, 64), np.int64)
        self.count = 0
        self._name()

    def _name(self) -> None:
        self.kind, self.place, self.neuron, self.cut, self.marks, self.left, self.right = self.table
        self.parent = np.full(self.table.shape[1], -1) if self.count == 0 else self.parent

    def add(self, above: int, right: bool) -> int:
        """A new leaf."""
        if self.count == self.table.shape[1]:
            self.table = np.concatenate([self.table, np.zeros_like(self.table)], 1)
            self.parent = np.concatenate([self.parent, np.full(self.count, -1)])
            self._name()
        here, self.count = self.count, self.count + 1
        if above >= 0:
            self.parent[here] = above
            (self.right if right else self.left)[above] = here
        return here

    def split(self, node: int, kind: int, place: int, neuron: int, cut: int = 0) -> tuple[int, int]:
        """Both parts of a leaf: smaller values, larger values."""
        self.kind[node], self.place[node], self.neuron[node], self.cut[node] = kind, place, neuron, cut
        return self.add(node, False), self.add(node, True)

    def text(self, numbers: dict[int, int]) -> list[str]:
        """The nodes in preorder; `numbers` of the ReLUs by the node of their inputs."""
        out, stack = [], [0]
        while stack:
            n = stack.pop()
            star = "*" if self.marks[n] else ""
            if self.kind[n] == LEAF:
                parts = [k + v for k, v in zip("abm", self.data.get(n, ("", "", "")), strict=True) if v]
                out.append(star + (f"[{';'.join(parts)}]" if parts else "") + ".")
                continue
            if self.kind[n] == INPUT:
                out.append(f"{star}{self.place[n]}/")
            else:
                out.append(f"{star}r{numbers[int(self.place[n])]}.{self.neuron[n]}/")
            stack += [int(self.right[n]), int(self.left[n])]
        return out


class PhaseWalk(Walk):
    """Splits leaves that their multipliers leave open in the checker's arithmetic."""

    tree: PhaseTree
    model: Watching
    refined = 0

    def fail(self, work: Work) -> None:
        for k, node in enumerate(int(n) for n in work.node):
            slopes, moves, weights = self.tree.data.pop(node, ("", "", ""))
            width = work.state.upper[k] - work.state.lower[k]
            if len(width) <= FEW_INPUTS and width.max() > 1:
                parts = self.tree.split(node, INPUT, int(width.argmax()), 0, NO_CUT)
            else:
                parts = self.tree.split(node, NEURON, *self._loosest(work.pick(np.array([k]))))
                steps = sum(self.tree.kind[n] == NEURON for n, _ in self.steps(parts[0]))
                moves = ",".join([*(moves.split(",") if moves else ["0"] * (steps - 1)), "0"])
            for part in parts:
                self.tree.marks[part] = sum(len(e) for e in self.model.low) < SMALL
                self.tree.data[part] = (slopes, moves, weights)
        self.refined += len(work.node)
        if self.refined > MOST_REFINED:
            raise CannotWrite("the checker's bounds would need far more subproblems than the search")

    def _loosest(self, work: Work) -> tuple[int, int]:
        """The neuron whose relaxation may cost the most."""
        self.model.seen = {}
        self.bound_stated(work)
        best, where = 0.0, (-1, -1)
        for z, a in self.model.seen.items():
            low, high = (e[z][0].astype(np.float64) for e in (work.state.low, work.state.high))
            open_ = (low < 0) & (high > 0)
            unit = 2.0 ** -float(work.state.scale[z][0])
            gap = np.where(a[0] < 0, -low * high / np.maximum(high - low, 1), np.minimum(-low, high) / 2)
            cost = np.where(open_, np.abs(a[0]) * gap * unit, 0.0)
            if cost.max() > best:
                best, where = float(cost.max()), (z, int(cost.argmax()))
        if where[0] < 0:
            raise CannotWrite("a subproblem without open neurons stays open in the checker's arithmetic")
        return where


def grow_tree(phases: Phases, origin: NDArray[np.int64], model: Model) -> tuple[PhaseTree, dict[int, int]]:
    """The tree whose leaves are rows of phases, and the row of each leaf; splits on a neuron that all rows fix."""
    tree, leaves = PhaseTree(), {}
    before = [model.network.nodes[n].parent for n in model.relus]
    stack = [(tree.add(-1, False), np.arange(len(phases)), np.zeros(phases.shape[1], bool))]
    while stack:
        node, rows, done = stack.pop()
        if not len(rows):
            raise CannotWrite("the subproblems of the search do not cover the input set")
        part = phases[rows]
        finished = np.flatnonzero(((part == 0) | done).all(1))
        if len(finished):
            leaves[node] = int(rows[finished[0]])
            continue
        fixed = np.flatnonzero((part != 0).all(0) & ~done)
        if not len(fixed):
            raise CannotWrite("the subproblems of the search do not cover the input set")
        neuron = int(fixed[0])
        after = done.copy()
        after[neuron] = True
        relu, which = (int(v) for v in origin[neuron])
        parts = tree.split(node, NEURON, before[relu], which)
        for child, sign in zip(parts, (-1, 1), strict=True):
            stack.append((child, rows[part[:, neuron] == sign], after))
    return tree, leaves


def state_leaves(
    model: Model, leaves: dict[int, int], walk: PhaseWalk, trace: dict[str, Any], weights: NDArray[np.float64]
) -> None:
    """Multipliers of the search, rounded; `weights` (leaves, rows) are those of the disjunct's rows here."""
    tree = walk.tree
    places = {(int(r), int(n)): k for k, (r, n) in enumerate(trace["origin"])}
    number = {model.network.nodes[n].parent: k for k, n in enumerate(model.relus)}
    column, default = [], []
    for z, at in walk.open:
        column += [places.get((number[z], int(j)), -1) for j in at]
        default += [SYMBOLS[-1] if model.high[z][j] > -model.low[z][j] else "0" for j in at]
    for leaf, row in leaves.items():
        alpha = np.rint(np.clip(trace["alpha"][row], 0, 1) * LEVELS).astype(int)
        slopes = "".join(d if c < 0 else SYMBOLS[alpha[c]] for c, d in zip(column, default, strict=True))
        factor, text = row_weights(weights[row], walk.disjuncts[0])
        moves = []
        for n, _ in walk.steps(leaf):
            c = places[number[int(tree.place[n])], int(tree.neuron[n])]
            moves.append(str(round(max(float(trace["beta"][row, c]), 0.0) * factor * 2**ROW_BITS)))
        tree.data[leaf] = (slopes, ",".join(moves), text)


def row_weights(weights: NDArray[np.float64], rows: tuple[Row, ...]) -> tuple[float, str]:
    """How many times the search's row the certificate's is, and the weights as they are written."""
    sizes = [max(abs(c) for _, c in (*r.inputs, *r.outputs)) for r in rows]
    shift = [s.denominator.bit_length() - s.numerator.bit_length() for s in sizes]
    if len(rows) == 1:
        return 2.0 ** shift[0] / max(float(weights[0]), 1e-9), ""
    total = max(float(weights.sum()), 1e-9)
    whole = [round(WEIGHT * float(w) / total * 2.0**-s) for w, s in zip(weights, shift, strict=True)]
    if not any(whole):
        raise CannotWrite("weights of rows that vanish when rounded")
    return WEIGHT / total, ",".join(str(w) for w in whole)
