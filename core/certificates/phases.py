"""Certificates of searches on neurons: a tree of phases per disjunct, whose leaves state their multipliers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.certificates.programs import Multipliers, Programs
from verifolio.certificates.trees import CannotWrite, GrowingTree
from verifolio_check.bounds import ROW_BITS, Domains, Index, Model
from verifolio_check.certificate import LEVELS, SYMBOLS, Data
from verifolio_check.vnnlib import Row

ALPHABET = np.frombuffer(SYMBOLS, np.uint8)
WEIGHT = 1 << 12  # what the weights of several rows add up to
MOST_MOVES = (
    2.0**27
)  # what the multipliers of splits may add up to: the checker has 62 bits for their products
Phases = NDArray[np.int8]


def tree_of_phases(
    phases: Phases, origin: NDArray[np.int64], model: Model
) -> tuple[GrowingTree, dict[int, int]]:
    """The tree whose leaves are rows of phases, and the row of each leaf; splits on a neuron that all rows fix."""
    tree, leaves = GrowingTree(), {}
    stack = [(0, np.arange(len(phases)), np.zeros(phases.shape[1], bool))]
    while stack:
        node, rows, done = stack.pop()
        part = phases[rows]
        finished = np.flatnonzero(((part == 0) | done).all(1))
        if len(finished):
            leaves[node] = int(rows[finished[0]])
            continue
        fixed = np.flatnonzero((part != 0).all(0) & ~done)
        if not len(rows) or not len(fixed):
            raise CannotWrite("the subproblems of the search do not cover the input set")
        neuron, after = int(fixed[0]), done.copy()
        after[neuron] = True
        relu, which = (int(v) for v in origin[neuron])
        one = np.array([node])
        tree.split(
            one, np.array([model.network.input_of(relu)]), np.array([which]), np.zeros(1, np.int64), False
        )
        for child, sign in ((tree.left[node], -1), (tree.right[node], 1)):
            stack.append((int(child), rows[part[:, neuron] == sign], after))
    return tree, leaves


class Leaves:
    """How leaves of a search state their multipliers; `origin` (kept, 2) names its neurons by ReLU and number."""

    def __init__(
        self, model: Model, open_neurons: list[tuple[int, Index]], origin: NDArray[np.int64]
    ) -> None:
        self.places = {(int(r), int(n)): k for k, (r, n) in enumerate(origin)}
        self.number = {model.network.input_of(k): k for k in range(len(model.network.curves))}
        column = [self.places.get((self.number[z], int(j)), -1) for z, at in open_neurons for j in at]
        default = [LEVELS * (model.high[z][at] > -model.low[z][at]) for z, at in open_neurons]
        self.column = np.array(column, np.intp)
        self.default = np.concatenate([np.zeros(0, np.int64), *default])

    def state(
        self,
        tree: GrowingTree,
        leaves: dict[int, int],
        alpha: NDArray[Any],
        beta: NDArray[Any],
        weigh: Callable[[int], tuple[float, str]] = lambda _: (1.0, ""),
    ) -> None:
        """Slopes in steps of 1 / LEVELS, and multipliers; `weigh` as `row_weights`, by the number of a subproblem."""
        for leaf, row in leaves.items():
            chosen = np.where(self.column < 0, self.default, np.append(alpha[row], 0)[self.column])
            factor, weights = weigh(row)
            moves = []
            for n, _ in tree.steps(leaf):
                c = self.places[self.number[int(tree.place[n])], int(tree.neuron[n])]
                moves.append(str(round(max(float(beta[row, c]), 0.0) * factor * 2**ROW_BITS)))
            tree.data[leaf] = (ALPHABET[chosen].tobytes().decode(), ",".join(moves), weights)


class Mending:
    """Multipliers of single leaves of one disjunct by linear programs."""

    def __init__(self, model: Model, rows: tuple[Row, ...]) -> None:
        self.model, self.rows, self.programs = model, rows, Programs.of(model)

    def __call__(
        self, leaf: Domains, tree: GrowingTree, open_neurons: list[tuple[int, Index]]
    ) -> tuple[Data | None, tuple[int, int] | None]:
        """A leaf's data, or None and the neuron to split."""
        steps = [(n, right) for n, right in tree.steps(int(leaf.node[0])) if tree.place[n] > 0]
        splits = []
        for n, right in steps:
            z = int(tree.place[n])
            splits.append((z, int(tree.neuron[n]), float(tree.cut[n]) * 2.0 ** -self.model.scale[z], right))
        found = None if self.programs is None else self.programs.solve(leaf, self.rows, splits)
        if found is None:
            return None, None
        if found.multipliers is None:
            if found.loosest is None:
                raise CannotWrite("a point satisfies the condition, up to rounding")
            return None, found.loosest
        return self._data(found.multipliers, open_neurons), None

    def _data(self, found: Multipliers, open_neurons: list[tuple[int, Index]]) -> Data:
        chosen = []
        for z, at in open_neurons:
            default = (self.model.high[z][at] > -self.model.low[z][at]).astype(np.float64)
            slope = found.slopes[z][at]
            chosen.append(np.rint(LEVELS * np.where(np.isnan(slope), default, slope)).astype(np.int64))
        factor, weights = row_weights(found.weights, self.rows)
        moves = found.moves * factor * 2.0**ROW_BITS
        moves *= min(1.0, MOST_MOVES / max(float(moves.sum()), 1.0))
        text = ALPHABET[np.concatenate([np.zeros(0, np.int64), *chosen])].tobytes().decode()
        return text, ",".join(str(round(float(m))) for m in moves), weights


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
