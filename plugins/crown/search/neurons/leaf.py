"""The exact finish: a subproblem whose neurons are all fixed or stable is a linear program.

The program's multipliers are only hints. They go back into the bound as split multipliers and row weights, in
float64 with its own rounding errors; that bound is the proof. A feasible point is only a candidate for replay.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.propagate.program import State
from verifolio.plugins.crown.search.neurons.subproblems import Subproblems
from verifolio.plugins.crown.search.root import Root

Array = NDArray[np.float64]
Signs = dict[int, NDArray[np.int8]]


class LeafSolver:
    """Decides leaves of the search on one (compressed, piecewise-linear) root in float64."""

    def __init__(self, root: Root) -> None:
        self.root, self.graph = root, root.program.graph

    def solve(self, leaf: Subproblems) -> tuple[Variables | None, Array | None]:
        """(the variables that prove it impossible, candidate point) of a single subproblem."""
        signs = {p: s[0].cpu().numpy() for p, s in self.root.signs(leaf.phase).items()}
        fixed, rows, rhs = self._system(signs, leaf)
        region = self.root.state.region
        low, high = (t[0].cpu().numpy() for t in (region.lower, region.upper))
        count = rows[0].shape[0]
        matrix = np.block([[rows[0], -np.ones((count, 1))], [fixed[0], np.zeros((len(fixed[0]), 1))]])
        limits = np.concatenate([rhs - rows[1], -fixed[1]])
        if not (np.isfinite(matrix).all() and np.isfinite(limits).all()):  # an overflow: no program to solve
            return None, None
        cost = np.r_[np.zeros(len(low)), 1.0]
        bounds = [*zip(low, high, strict=True), (None, None)]
        found = linprog(cost, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
        if found.status not in (0, 2):
            return None, None
        if (
            found.status == 2
        ):  # the fixed phases alone contradict each other: minimise their violation instead
            return self._prove_infeasible(leaf, fixed, low, high), None
        duals = -np.asarray(found.ineqlin.marginals)
        point = np.clip(np.asarray(found.x)[:-1], low, high)
        return self._proves(leaf, duals[:count], duals[count:]), point

    def _prove_infeasible(
        self, leaf: Subproblems, fixed: tuple[Array, Array], low: Array, high: Array
    ) -> Variables | None:
        matrix = np.c_[fixed[0], -np.ones(len(fixed[0]))]
        bounds = [*zip(low, high, strict=True), (None, None)]
        found = linprog(
            np.r_[np.zeros(len(low)), 1.0], A_ub=matrix, b_ub=-fixed[1], bounds=bounds, method="highs"
        )
        if found.status != 0 or found.fun is None or not found.fun > 0:
            return None
        duals = -np.asarray(found.ineqlin.marginals)
        size = self.root.goal.rhs.shape[1]
        low_rows, high_rows = self.root.state.interval[self.graph.output]
        span = 1.0 + float(torch.maximum(low_rows.abs(), high_rows.abs()).max())
        # large multipliers outweigh whatever the output rows contribute
        return self._proves(leaf, np.full(size, 1.0 / size), duals * (1e3 * span / found.fun))

    def _proves(self, leaf: Subproblems, mix: Array, duals: Array) -> Variables | None:
        """Variables with these multipliers, if the bound is positive, all rounding included."""
        beta = torch.zeros(leaf.phase.shape, dtype=torch.float64, device=leaf.phase.device)
        beta[leaf.phase != 0] = torch.as_tensor(np.maximum(duals, 0), device=beta.device)
        weights = torch.as_tensor(np.maximum(mix, 0)[None], device=beta.device)
        variables = Variables(torch.zeros_like(beta), beta, weights)
        margin = self.root.prove(leaf.disjunct, leaf.phase, variables).margin
        return variables if bool((margin > 0).any()) else None

    def _system(
        self, signs: Signs, leaf: Subproblems
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """Affine forms over x: -sign z of every fixed neuron, the goal's rows; and the right-hand sides."""
        forms = affine_forms(self.graph, signs, self.root.state)
        weights, offsets = [np.zeros((0, self.graph.input_size))], [np.zeros(0)]
        for p, sign in signs.items():
            j = np.flatnonzero(sign)
            weights.append(-sign[j, None] * forms[p][0][j])
            offsets.append(-sign[j] * forms[p][1][j])
        goal = self.root.goal.pick(leaf.disjunct)
        on_output = goal.rows[0].double().cpu().numpy()
        matrix, bias = forms[self.graph.output]
        fixed = (np.concatenate(weights), np.concatenate(offsets))
        return fixed, (on_output @ matrix, on_output @ bias), goal.rhs[0].double().cpu().numpy()


@np.errstate(over="ignore", invalid="ignore")
def affine_forms(graph: Graph, signs: Signs, state: State) -> list[tuple[Array, Array]]:
    """Every node as (matrix, bias) over x, with each ReLU in the phase that its sign or its interval says."""
    n = graph.input_size
    forms: list[tuple[Array, Array]] = [(np.eye(n), np.zeros(n))]
    for node in graph.nodes[1 : graph.output + 1]:
        parents = [forms[p] for p in node.parents]
        if isinstance(node.op, Relu):
            p = node.parents[0]
            active = state.interval[p][0][0].cpu().numpy() >= 0
            if p in signs:
                active = (signs[p] > 0) | ((signs[p] == 0) & active)
            forms.append((parents[0][0] * active[:, None], parents[0][1] * active))
        elif isinstance(node.op, Constant):
            forms.append((np.zeros((node.op.size, n)), node.op.value))
        else:
            maps = linear_part(node.op, tuple(len(b) for _, b in parents))
            matrix = sum(_dense(m @ w) for m, (w, _) in zip(maps, parents, strict=True))
            bias = offset(node.op) + sum(m @ b for m, (_, b) in zip(maps, parents, strict=True))
            forms.append((np.asarray(matrix), np.asarray(bias)))
    return forms


def _dense(matrix: Array | sparse.csr_array) -> Array:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
