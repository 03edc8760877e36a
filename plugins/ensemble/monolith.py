"""The whole game as one mixed-integer program: all attacks, points and networks at once, solved by HiGHS.

Equations (4) to (7) of Gross et al. 2020 with |A| fixed: attack i moves point j to x_ij in the ball,
networks are big-M rows over x_ij, b_ijcl says that network c prefers the wrong label l there, loss_ijc that
some b_ijcl does, and z_ijc = p_i loss_ijc. The order of attacks is free, so p_1 >= p_2 >= ... is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds as ColumnBounds
from scipy.optimize import LinearConstraint, milp

from verifolio.encode.condition import row_expression
from verifolio.encode.model import Model, ModelBuilder
from verifolio.encode.rows import encode
from verifolio.errors import InputError
from verifolio.problem import Problem
from verifolio.registry import installed
from verifolio.vnnlib import make_rows

from .attack import (
    AttackResult,
    DeterministicAttack,
    Method,
    Outcome,
    judge_value,
    realised_value,
    zero_attack,
)
from .survey import Survey

Array = NDArray[np.float64]
Index = NDArray[np.int64]
SEARCH = 1e-4  # wrong labels must win by this much, so that float32 agrees
PROOF = -1e-6  # and may lose by this much before infeasibility proves anything
PRODUCT_M = 2.0


@dataclass(frozen=True, eq=False)
class Part:
    """One point's networks as rows: the model, its inputs, and per network the gaps Y_y - Y_l."""

    model: Model
    inputs: Index
    gaps: tuple[tuple[sparse.csr_array, Array, Array], ...]  # matrix, constant, upper bound


def make_part(survey: Survey, spot: int) -> Part:
    """Big-M rows of the product network on the ball of one point, with the tightest installed bounds."""
    place = survey.spots[spot]
    graph = survey.prover.graph((1 << len(survey.networks)) - 1)
    start, label = graph.input_size, place.reference.label
    groups, first = [], start
    for network in survey.networks:
        wrong = [w for w in range(network.output_size) if w != label]
        groups.append(make_rows([({first + label: 1.0, first + w: -1.0}, 0.0) for w in wrong]))
        first += network.output_size
    problem = Problem(graph, place.domain, tuple(groups))
    bounder = installed().all_bounders().best(problem)
    known = None if bounder is None else bounder.bound([problem])[0]
    encoding = encode(graph, place.domain, known)
    gaps = []
    for rows in groups:
        expression = row_expression(encoding, rows)
        gaps.append((expression.matrix, expression.constant, encoding.interval(expression)[1]))
    return Part(encoding.builder.model(), encoding.inputs, tuple(gaps))


class Program:
    """The whole model, and where its variables are."""

    def __init__(self, parts: Sequence[Part], attacks: int, margin: float) -> None:
        self.parts, self.attacks, self.margin = parts, attacks, margin
        self.builder = ModelBuilder()
        self.networks = len(parts[0].gaps)
        self.probability = self.builder.add_columns(np.zeros(attacks), np.ones(attacks))
        self.inputs: dict[tuple[int, int], Index] = {}
        self.products: dict[int, list[Index]] = {c: [] for c in range(self.networks)}
        for i in range(attacks):
            for j, part in enumerate(parts):
                self._add(i, j, part)
        one = sparse.csr_array(np.ones((1, attacks)))
        self.builder.add_rows([(one, self.probability)], np.ones(1), np.ones(1))
        if attacks > 1:
            order = np.eye(attacks)[:-1] - np.eye(attacks)[1:]
            rows = (sparse.csr_array(order), self.probability)
            self.builder.add_rows([rows], np.zeros(attacks - 1), np.full(attacks - 1, np.inf))

    def _add(self, i: int, j: int, part: Part) -> None:
        """A copy of one point's networks, and the losses of one attack there."""
        builder, model = self.builder, part.model
        columns = np.arange(builder.columns, builder.columns + model.columns, dtype=np.int64)
        for k in _runs(model.integer):
            builder.add_columns(model.lower[k], model.upper[k], bool(model.integer[k.start]))
        builder.add_rows([(model.matrix, columns)], model.row_lower, model.row_upper)
        self.inputs[i, j] = columns[part.inputs]
        for c, (matrix, constant, upper) in enumerate(part.gaps):
            count = len(constant)
            prefers = builder.add_columns(np.zeros(count), np.ones(count), integer=True)
            loss = builder.add_columns(np.zeros(1), np.ones(1), integer=True)
            big = np.maximum(upper + self.margin, 0.0) + 1e-9
            rows = [(matrix, columns[: matrix.shape[1]]), (sparse.csr_array(np.diag(big)), prefers)]
            builder.add_rows(rows, np.full(count, -np.inf), big - constant - self.margin)
            some = sparse.csr_array(np.ones((1, count)))
            both = [(some, prefers), (sparse.csr_array([[-1.0]]), loss)]
            builder.add_rows(both, np.zeros(1), np.full(1, np.inf))
            self.products[c].append(self._product(self.probability[i : i + 1], loss))

    def _product(self, a: Index, b: Index) -> Index:
        """c = a b for a in [0, 1] and binary b: c >= a - M (1 - b), c <= a + M (1 - b), c <= M b, c >= 0."""
        c = self.builder.add_columns(np.zeros(1), np.ones(1))
        one, big = sparse.csr_array([[1.0]]), sparse.csr_array([[PRODUCT_M]])
        inf, limit = np.full(1, np.inf), np.full(1, PRODUCT_M)
        self.builder.add_rows([(one, c), (-one, a), (-big, b)], -limit, inf)
        self.builder.add_rows([(one, c), (-one, a), (big, b)], -inf, limit)
        self.builder.add_rows([(one, c), (-big, b)], -inf, np.zeros(1))
        return c

    def demand(self, alpha: float) -> None:
        """(4): every network's expected loss is at least alpha."""
        for c in range(self.networks):
            index = np.concatenate(self.products[c])
            row = sparse.csr_array(np.ones((1, len(index))))
            least = np.array([alpha * len(self.parts) - 1e-9])
            self.builder.add_rows([(row, index)], least, np.full(1, np.inf))

    def best_of_all(self) -> Array:
        """The cost of MaxMILP: minus the sum of all expected losses."""
        cost = np.zeros(self.builder.columns)
        for index in self.products.values():
            cost[np.concatenate(index)] = -1.0
        return cost

    def best_of_least(self) -> Array:
        """The cost of the true game: minus t, where every network's expected loss is at least t."""
        t = self.builder.add_columns(np.zeros(1), np.ones(1))
        for c in range(self.networks):
            index = np.concatenate(self.products[c])
            row = sparse.csr_array(np.ones((1, len(index))))
            share = sparse.csr_array([[-float(len(self.parts))]])
            self.builder.add_rows([(row, index), (share, t)], np.zeros(1), np.full(1, np.inf))
        cost = np.zeros(self.builder.columns)
        cost[t] = -1.0
        return cost

    def solve(self, cost: Array | None, seconds: float) -> Any:
        model = self.builder.model(cost)
        return milp(
            model.cost,
            integrality=model.integer.astype(int),
            bounds=ColumnBounds(model.lower, model.upper),
            constraints=LinearConstraint(model.matrix, model.row_lower, model.row_upper),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )


def _runs(flags: NDArray[np.bool_]) -> list[slice]:
    """Maximal stretches of equal flags."""
    if len(flags) == 0:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(flags.astype(np.int8))) + 1).tolist(), len(flags)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def solve_milp(
    survey: Survey, alpha: Fraction | None, attacks: int, seconds: float, method: Method
) -> AttackResult:
    """Find attacks that reach alpha (or the best ones), or show that so few attacks cannot."""
    if alpha is None and method is not Method.MAXMIN:
        raise InputError(f"method {method}", "--alpha", "none", "give one, or use maxmin or decomposition")
    parts = [make_part(survey, j) for j in range(len(survey.spots))]
    result, program = _solve(parts, attacks, SEARCH, alpha, method, seconds)
    stats = {"columns": program.builder.columns, "attacks": attacks, "milp": str(result.message)}
    if result.x is not None:
        return _found(survey, program, result, alpha, method, stats)
    if result.status == 2:
        proof, _ = _solve(parts, attacks, PROOF, alpha, method, seconds)
        if proof.status == 2:
            return refuted(survey, alpha, attacks, method, stats)
    reason = "out of time" if result.status == 1 else "feasible only within the solver's tolerance"
    return no_attack(survey, method, Outcome.UNKNOWN, Fraction(1), reason, stats)


def _solve(
    parts: Sequence[Part], attacks: int, margin: float, alpha: Fraction | None, method: Method, seconds: float
) -> tuple[Any, Program]:
    program = Program(parts, attacks, margin)
    if method is Method.MAXMIN:
        return program.solve(program.best_of_least(), seconds), program
    program.demand(float(alpha or 0))
    cost = program.best_of_all() if method is Method.MAXMILP else None
    return program.solve(cost, seconds), program


def _found(
    survey: Survey,
    program: Program,
    result: Any,
    alpha: Fraction | None,
    method: Method,
    stats: dict[str, Any],
) -> AttackResult:
    """Replay every point; the probabilities are the solver's, as fractions that add up."""
    chances = probabilities([float(v) for v in result.x[program.probability]])
    found = []
    for i, chance in enumerate(chances):
        points, patterns = [], []
        for j, spot in enumerate(survey.spots):
            seen = survey.referee.seen(spot, result.x[program.inputs[i, j]])
            pattern, x = (0, spot.reference.x.astype(np.float32)) if seen is None else seen
            points.append(x)
            patterns.append(pattern)
        if chance > 0:
            found.append(DeterministicAttack(chance, tuple(points), tuple(patterns)))
    count = len(survey.networks)
    value = realised_value(found, count)
    upper = Fraction(1)
    if method is Method.MAXMIN and result.status == 0:
        stats = stats | {"objective": float(-result.fun)}
        if program.attacks >= count:
            upper = max(value, min(upper, Fraction(float(-result.mip_dual_bound)) + Fraction(1, 10**6)))
    verdict = judge_value(value, upper if upper < 1 else upper + 1, alpha)
    reason = "up to the solver's tolerances" if verdict is Outcome.ROBUST else ""
    if verdict is Outcome.UNKNOWN and alpha is not None:
        reason = "the attack that was found does not replay to alpha"
    weights = tuple(Fraction(1, count) for _ in range(count))
    return AttackResult(method, verdict, value, upper, tuple(found), weights, reason, 0.0, stats)


def probabilities(values: Sequence[float]) -> list[Fraction]:
    """Floating-point probabilities as short fractions that add up to one."""
    near = [Fraction(max(v, 0.0)).limit_denominator(10_000) for v in values]
    total = sum(near, Fraction(0))
    return [p / total for p in near]


def refuted(
    survey: Survey, alpha: Fraction | None, attacks: int, method: Method, stats: dict[str, Any]
) -> AttackResult:
    """No attack of this size reaches alpha: a proof if as many attacks as networks, or one for alpha = 1."""
    enough = attacks >= len(survey.networks) or alpha == 1
    upper = alpha if enough and alpha is not None else Fraction(1)
    verdict = Outcome.ROBUST if enough else Outcome.UNKNOWN
    size = f"no randomized attack with {attacks} deterministic ones reaches alpha"
    how = "in exact arithmetic" if method is Method.SMT else "up to the solver's tolerances"
    reason = how if enough else f"{size}, but {len(survey.networks)} may be needed"
    return no_attack(survey, method, verdict, upper, reason, stats)


def no_attack(
    survey: Survey, method: Method, verdict: Outcome, upper: Fraction, reason: str, stats: dict[str, Any]
) -> AttackResult:
    count = len(survey.networks)
    idle = zero_attack(survey)
    value = realised_value([idle], count)
    weights = tuple(Fraction(1, count) for _ in range(count))
    return AttackResult(method, verdict, value, max(upper, value), (idle,), weights, reason, 0.0, stats)
