"""Linear programs at leaves: a network's relaxation as the checker sees it, and its multipliers as a leaf's data.

A program is solved in floating point and its multipliers are rounded to what a certificate can state. What they
prove, the checker computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from verifolio_check.bounds import Domains, Index, Model
from verifolio_check.integers import Linear
from verifolio_check.vnnlib import Row

Array = NDArray[np.float64]
MOST_VALUES, MOST_OPEN = 10_000, 2_000  # of a network, of a leaf: a larger program takes minutes
GAP = 1e-9  # between a neuron and its relaxation, and above 0: solvers reach about that
OUTWEIGH = 1e3  # phases that contradict each other count so much more than what the rows can be
Split = tuple[int, int, float, bool]  # node, neuron, cut, whether the leaf is on its right


@dataclass(frozen=True, eq=False)
class Multipliers:
    """By node the slopes below its open neurons (nan elsewhere), one number per split, one per row."""

    slopes: dict[int, Array]
    moves: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class Program:
    """What a leaf's program came to: multipliers where its value is positive, else the neuron that it misses most.

    Neither: its point is one of the network, and satisfies the condition up to the solver's tolerance.
    """

    multipliers: Multipliers | None
    loosest: tuple[int, int] | None


class Programs:
    """Programs about one network on one region; None where it is too large or not piecewise linear."""

    def __init__(self, model: Model) -> None:
        self.model, self.nodes = model, model.network.nodes
        self.maps = [[(p, matrix(linear)) for p, linear in node.terms] for node in self.nodes]

    @classmethod
    def of(cls, model: Model) -> Programs | None:
        small = sum(node.size for node in model.network.nodes) < MOST_VALUES
        return cls(model) if small and not model.smooth else None

    def solve(self, leaf: Domains, rows: tuple[Row, ...], splits: list[Split]) -> Program | None:
        """The least t such that some point of the relaxation exceeds no row, and no split, by more than t."""
        ends = {
            z: [np.ldexp(e[z][0].astype(float), -self.model.scale[z]) for e in (leaf.low, leaf.high)]
            for z in leaf.low
        }
        free = {z: np.flatnonzero((ends[z][0] < 0) & (ends[z][1] > 0)) for z in self.model.before}
        count = self.nodes[0].size + sum(len(at) for at in free.values())
        if count - self.nodes[0].size > MOST_OPEN:
            return None
        forms, places = self._forms(ends, free, count)
        parts, limits = [], []
        for z, at in free.items():
            low, high = (e[at] for e in ends[z])
            slope, own = high / (high - low), unit(places[z], count)
            below, above = forms[z][0][at], forms[z][1][at]
            parts += [below - own, own - sparse.diags_array(slope) @ below]
            limits += [-above, slope * (above - low)]
        firm = len(np.concatenate([np.zeros(0), *limits]))
        for z, neuron, cut, right in splits:
            sign = -1.0 if right else 1.0
            parts.append(sign * forms[z][0][[neuron]])
            limits.append(np.array([sign * (cut - forms[z][1][neuron])]))
        goal = self._goal(rows, forms, count)
        parts, limits = [*parts, goal[0]], [*limits, goal[1]]
        found = self._run(parts, np.concatenate(limits), firm, ends[0], count)
        return None if found is None else self._read(found, firm, len(splits), free, places, forms)

    def _run(self, parts: list[Any], limits: Array, firm: int, box: list[Array], count: int) -> Any:
        body = sparse.vstack(parts, format="csr")
        on_t = np.zeros((body.shape[0], 1))
        on_t[firm:] = -1.0
        ends = [*zip(*box, strict=True), *[(0.0, None)] * (count - len(box[0])), (None, None)]
        cost = np.zeros(count + 1)
        cost[-1] = 1.0
        whole = sparse.hstack([body, sparse.csr_array(on_t)], format="csr")
        found: Any = linprog(cost, A_ub=whole, b_ub=limits, bounds=ends, method="highs")
        return found if found.status == 0 else None

    def _read(self, found: Any, firm: int, splits: int, free: Any, places: Any, forms: Any) -> Program:
        if found.fun <= GAP:
            return Program(None, self._loosest(found.x[:-1], free, places, forms))
        duals, start, slopes = np.maximum(-np.asarray(found.ineqlin.marginals), 0), 0, {}
        zero = np.maximum(np.asarray(found.lower.marginals), 0)
        for z, at in free.items():
            above, flat = duals[start : start + len(at)], zero[places[z]]
            slopes[z] = np.full(self.nodes[z].size, np.nan)
            share = above / np.maximum(above + flat, 1e-300)
            slopes[z][at] = np.where(above + flat > 0, share, np.nan)
            start += 2 * len(at)
        moves, weights = duals[firm : firm + splits], duals[firm + splits :]
        if weights.sum() < GAP:  # the splits alone contradict each other
            moves, weights = moves * OUTWEIGH / found.fun, np.full(len(weights), 1.0 / len(weights))
        return Program(Multipliers(slopes, moves, weights), None)

    def _loosest(self, x: Array, free: Any, places: Any, forms: Any) -> tuple[int, int] | None:
        """The neuron whose relaxation is farthest from the truth at a point."""
        best, where = GAP, None
        for z, at in free.items():
            value = (forms[z][0] @ x + forms[z][1])[at]
            gap = np.abs(x[places[z]] - np.maximum(value, 0))
            if gap.max(initial=0.0) > best:
                best, where = float(gap.max()), (z, int(at[gap.argmax()]))
        return where

    def _forms(
        self, ends: dict[int, list[Array]], free: dict[int, Index], count: int
    ) -> tuple[list[tuple[Any, Array]], dict[int, Index]]:
        """Every node as a matrix and a constant over the inputs and the outputs of open neurons; where those are."""
        inputs = self.nodes[0].size
        forms = [(unit(np.arange(inputs), count), np.zeros(inputs))]
        places, start = {}, inputs
        for n, node in enumerate(self.nodes[1:], 1):
            z = node.parent
            if node.function:
                if z not in places:
                    places[z], start = np.arange(start, start + len(free[z])), start + len(free[z])
                active = (ends[z][0] >= 0).astype(float)
                body = sparse.diags_array(active) @ forms[z][0]
                lifted = sparse.csr_array(
                    (np.ones(len(free[z])), (free[z], places[z])), shape=(node.size, count)
                )
                forms.append((sparse.csr_array(body + lifted), active * forms[z][1]))
                continue
            total: Any = sparse.csr_array((node.size, count))
            constant = np.zeros(node.size) if node.bias is None else np.asarray(node.bias[0], float)
            for p, weight in self.maps[n]:
                total, constant = total + weight @ forms[p][0], constant + weight @ forms[p][1]
            forms.append((sparse.csr_array(total), constant))
        return forms, places

    def _goal(self, rows: tuple[Row, ...], forms: list[tuple[Any, Array]], count: int) -> tuple[Any, Array]:
        output, parts, limits = self.model.network.output, [], []
        for row in rows:
            total: Any = sparse.csr_array((1, count))
            constant = 0.0
            for node, terms in ((output, row.outputs), (0, row.inputs)):
                for i, c in terms:
                    total = total + float(c) * forms[node][0][[i]]
                    constant += float(c) * float(forms[node][1][i])
            parts.append(total)
            limits.append(float(row.limit) - constant)
        return sparse.vstack(parts, format="csr"), np.array(limits)


def unit(places: Index, count: int) -> Any:
    """Rows of an identity."""
    shape = (len(places), count)
    return sparse.csr_array((np.ones(len(places)), (np.arange(len(places)), places)), shape=shape)


def matrix(linear: Linear) -> Any:
    """The map as a sparse matrix (outputs, inputs)."""
    groups, channels, patches = linear.shape
    index = np.broadcast_to(linear.index[:, None], (groups, channels, *linear.index.shape[1:]))
    weight = np.broadcast_to(linear.ends[0].swapaxes(1, 2)[:, :, None], index.shape)
    row = np.broadcast_to(np.arange(linear.outputs).reshape(groups, channels, patches, 1), index.shape)
    real = index >= 0
    return sparse.csr_array((weight[real], (row[real], index[real])), shape=(linear.outputs, linear.inputs))
