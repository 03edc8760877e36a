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

from verifolio.encode.condition import row_expression
from verifolio.encode.model import Model, ModelBuilder, diagonal
from verifolio.encode.rows import encode
from verifolio.errors import InputError
from verifolio.model.joint import shared_product
from verifolio.run.budget import Budget
from verifolio.vnnlib import make_rows

from .attack import (
    AttackResult,
    DeterministicAttack,
    GameVerdict,
    Method,
    realised_value,
    zero_attack,
)
from .highs import Ending, Solution, minimise
from .joint import joint_query
from .survey import Survey

Array = NDArray[np.float64]
Index = NDArray[np.int64]
PROOF = -1e-6  # wrong labels may lose by this much: what is infeasible then is so beyond tolerances
SEARCH = 1e-4  # and must win by this much, so that float32 agrees
# probabilities are at most 1, and so are their products; twice that leaves room for tolerances
PRODUCT_M = 2.0
UNPROVED = "HiGHS finds no attack that reaches alpha; this is no proof, use decomposition or smt"


@dataclass(frozen=True, eq=False)
class Part:
    """One point's networks as rows: the model, its inputs, and the gaps Y_y - Y_l of all networks.

    A gap is `gaps` @ columns + `constant`, at most `upper`, and belongs to network `owner`.
    """

    model: Model
    inputs: Index
    gaps: sparse.csr_array
    constant: Array
    upper: Array
    owner: Index


def make_part(survey: Survey, spot: int) -> Part:
    """Big-M rows of the product network on the ball of one point, with the tightest bounds there are."""
    place = survey.spots[spot]
    graph = shared_product(tuple(n.graph for n in survey.networks))
    start, label = graph.input_size, place.reference.label
    groups, first = [], start
    for network in survey.networks:
        wrong = [w for w in range(network.output_size) if w != label]
        groups.append(make_rows([({first + label: 1.0, first + w: -1.0}, 0.0) for w in wrong]))
        first += network.output_size
    query = joint_query(survey.networks, place.reference, groups, "game")
    known = survey.oracle.neuron_bounds(query, survey.left())
    encoding = encode(graph, place.domain, known)
    parts = [row_expression(encoding, rows) for rows in groups]
    return Part(
        encoding.builder.model(),
        encoding.inputs,
        sparse.csr_array(sparse.vstack([e.matrix for e in parts])),
        np.concatenate([e.constant for e in parts]),
        np.concatenate([encoding.interval(e)[1] for e in parts]),
        np.repeat(np.arange(len(parts), dtype=np.int64), [e.size for e in parts]),
    )


class Program:
    """The whole model, and where its variables are."""

    def __init__(self, parts: Sequence[Part], attacks: int, margin: float) -> None:
        self.parts, self.attacks, self.margin = parts, attacks, margin
        self.builder = ModelBuilder()
        self.networks = int(parts[0].owner.max()) + 1
        self.probability = self.builder.add_columns(np.zeros(attacks), np.ones(attacks))
        self.inputs: dict[tuple[int, int], Index] = {}
        losses = [self._add(i, j, part) for i in range(attacks) for j, part in enumerate(parts)]
        every = np.repeat(self.probability, len(parts) * self.networks)
        products = self._products(every, np.concatenate(losses))
        self.products = [products[c :: self.networks] for c in range(self.networks)]
        one = sparse.csr_array(np.ones((1, attacks)))
        self.builder.add_rows([(one, self.probability)], np.ones(1), np.ones(1))
        if attacks > 1:
            order = np.eye(attacks)[:-1] - np.eye(attacks)[1:]
            rows = (sparse.csr_array(order), self.probability)
            self.builder.add_rows([rows], np.zeros(attacks - 1), np.full(attacks - 1, np.inf))

    def _add(self, i: int, j: int, part: Part) -> Index:
        """A copy of one point's networks; gives the losses of one attack there, one per network."""
        builder, model = self.builder, part.model
        columns = np.arange(builder.columns, builder.columns + model.columns, dtype=np.int64)
        for k in _runs(model.integer):
            builder.add_columns(model.lower[k], model.upper[k], bool(model.integer[k.start]))
        builder.add_rows([(model.matrix, columns)], model.row_lower, model.row_upper)
        self.inputs[i, j] = columns[part.inputs]
        count = len(part.constant)
        prefers = builder.add_columns(np.zeros(count), np.ones(count), integer=True)
        loss = builder.add_columns(np.zeros(self.networks), np.ones(self.networks), integer=True)
        big = np.maximum(part.upper + self.margin, 0.0) + 1e-9
        rows = [(part.gaps, columns[: part.gaps.shape[1]]), (diagonal(big), prefers)]
        builder.add_rows(rows, np.full(count, -np.inf), big - part.constant - self.margin)
        some = sparse.csr_array(part.owner[None] == np.arange(self.networks)[:, None], dtype=np.float64)
        both = [(some, prefers), (diagonal(-np.ones(self.networks)), loss)]
        builder.add_rows(both, np.zeros(self.networks), np.full(self.networks, np.inf))
        return loss

    def _products(self, a: Index, b: Index) -> Index:
        """c = a b for a in [0, 1] and binary b: c >= a - M (1 - b), c <= a + M (1 - b), c <= M b, c >= 0."""
        count = len(b)
        c = self.builder.add_columns(np.zeros(count), np.ones(count))
        one, big = diagonal(np.ones(count)), diagonal(np.full(count, PRODUCT_M))
        inf, limit = np.full(count, np.inf), np.full(count, PRODUCT_M)
        self.builder.add_rows([(one, c), (-one, a), (-big, b)], -limit, inf)
        self.builder.add_rows([(one, c), (-one, a), (big, b)], -inf, limit)
        self.builder.add_rows([(one, c), (-big, b)], -inf, np.zeros(count))
        return c

    def demand(self, alpha: float) -> None:
        """(4): every network's expected loss is at least alpha."""
        for c in range(self.networks):
            index = self.products[c]
            row = sparse.csr_array(np.ones((1, len(index))))
            least = np.array([alpha * len(self.parts) - 1e-9])
            self.builder.add_rows([(row, index)], least, np.full(1, np.inf))

    def best_of_all(self) -> Array:
        """The cost of MaxMILP: minus the sum of all expected losses."""
        cost = np.zeros(self.builder.columns)
        for index in self.products:
            cost[index] = -1.0
        return cost

    def best_of_least(self) -> Array:
        """The cost of the true game: minus t, where every network's expected loss is at least t."""
        t = self.builder.add_columns(np.zeros(1), np.ones(1))
        for c in range(self.networks):
            index = self.products[c]
            row = sparse.csr_array(np.ones((1, len(index))))
            share = sparse.csr_array([[-float(len(self.parts))]])
            self.builder.add_rows([(row, index), (share, t)], np.zeros(1), np.full(1, np.inf))
        cost = np.zeros(self.builder.columns)
        cost[t] = -1.0
        return cost

    def solve(self, cost: Array | None, seconds: float) -> Solution:
        return minimise(self.builder.model(cost), seconds)


def _runs(flags: NDArray[np.bool_]) -> list[slice]:
    """Maximal stretches of equal flags."""
    if len(flags) == 0:
        return []
    cuts = [0, *(np.flatnonzero(np.diff(flags.astype(np.int8))) + 1).tolist(), len(flags)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def solve_milp(
    survey: Survey, alpha: Fraction | None, attacks: int, seconds: float, method: Method
) -> AttackResult:
    """Find attacks that reach alpha (or the best ones).

    That there are none is HiGHS's word alone: it is reported (`claimed` in the stats), and no verdict and no
    upper value follows from it.
    """
    if alpha is None and method is not Method.MAXMIN:
        raise InputError(f"method {method}", "--alpha", "none", "give one, or use maxmin or decomposition")
    budget = Budget(seconds)
    parts = [make_part(survey, j) for j in range(len(survey.spots))]
    stats = dict[str, Any](attacks=attacks)
    if method is Method.MAXMIN:
        loose, program = _solve(parts, attacks, PROOF, alpha, method, budget.remaining / 2)
        if loose.ending is Ending.OPTIMAL:
            stats["objective"] = -loose.objective
        if attacks >= len(survey.networks) and np.isfinite(loose.bound):
            stats["claimed"] = f"a value of at most {-loose.bound:.6g}"
        if loose.point is not None:
            found = _found(survey, program, loose.point, alpha, method, stats)
            if float(found.value_lower) >= -loose.objective - 1e-6:
                return found
    firm, program = _solve(parts, attacks, SEARCH, alpha, method, budget.remaining)
    stats |= {"columns": program.builder.columns, "milp": firm.ending.value}
    if firm.point is not None:
        return _found(survey, program, firm.point, alpha, method, stats)
    if firm.ending is Ending.INFEASIBLE and not budget.expired():
        loose, _ = _solve(parts, attacks, PROOF, alpha, method, budget.remaining)
        if loose.ending is Ending.INFEASIBLE:
            stats["claimed"] = "no attack of this size reaches alpha"
            return no_attack(survey, method, UNPROVED, stats)
    late = firm.ending is Ending.STOPPED or budget.expired()
    reason = "out of time" if late else "feasible only within the solver's tolerance"
    return no_attack(survey, method, reason, stats)


def _solve(
    parts: Sequence[Part], attacks: int, margin: float, alpha: Fraction | None, method: Method, seconds: float
) -> tuple[Solution, Program]:
    program = Program(parts, attacks, margin)
    if method is Method.MAXMIN:
        return program.solve(program.best_of_least(), seconds), program
    program.demand(float(alpha or 0))
    cost = program.best_of_all() if method is Method.MAXMILP else None
    return program.solve(cost, seconds), program


def _found(
    survey: Survey,
    program: Program,
    solved: Array,
    alpha: Fraction | None,
    method: Method,
    stats: dict[str, Any],
) -> AttackResult:
    """Replay every point; the probabilities are the solver's, as fractions that add up."""
    chances = probabilities([float(v) for v in solved[program.probability]])
    places = range(len(survey.spots))
    moved = [[solved[program.inputs[i, j]] for j in places] for i in range(len(chances))]
    found = replayed(survey, chances, moved)
    count = len(survey.networks)
    value = realised_value(found, count)
    verdict = GameVerdict.NOT_ROBUST if alpha is not None and value >= alpha else GameVerdict.UNKNOWN
    reason = ""
    if verdict is GameVerdict.UNKNOWN and alpha is not None:
        reason = "the attack that was found does not replay to alpha"
    weights = tuple(Fraction(1, count) for _ in range(count))
    return AttackResult(method, verdict, value, Fraction(1), tuple(found), weights, reason, 0.0, stats)


def replayed(
    survey: Survey, chances: Sequence[Fraction], moved: Sequence[Sequence[Array]]
) -> list[DeterministicAttack]:
    """The attacks of a program that have a chance, each with what its points fool when they are replayed."""
    kept = [(chance, points) for chance, points in zip(chances, moved, strict=True) if chance > 0]
    flat = [(j, x.astype(np.float32)) for _, points in kept for j, x in enumerate(points)]
    seen = iter(survey.see(flat))
    found = []
    for chance, points in kept:
        pairs = [
            next(seen) or (0, survey.spots[j].reference.x.astype(np.float32)) for j in range(len(points))
        ]
        found.append(DeterministicAttack(chance, tuple(x for _, x in pairs), tuple(p for p, _ in pairs)))
    return found


def probabilities(values: Sequence[float]) -> list[Fraction]:
    """Floating-point probabilities as short fractions that add up to one."""
    near = [Fraction(max(v, 0.0)).limit_denominator(10_000) for v in values]
    total = sum(near, Fraction(0))
    return [p / total for p in near]


def no_attack(survey: Survey, method: Method, reason: str, stats: dict[str, Any]) -> AttackResult:
    """Undecided: nothing is known but what the points themselves fool."""
    return without_attack(survey, method, GameVerdict.UNKNOWN, Fraction(1), reason, stats)


def without_attack(
    survey: Survey, method: Method, verdict: GameVerdict, upper: Fraction, reason: str, stats: dict[str, Any]
) -> AttackResult:
    count = len(survey.networks)
    idle = zero_attack(survey)
    value = realised_value([idle], count)
    weights = tuple(Fraction(1, count) for _ in range(count))
    return AttackResult(method, verdict, value, max(upper, value), (idle,), weights, reason, 0.0, stats)
