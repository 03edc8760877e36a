"""Run one verifier on one query in this process, as a worker would, and keep everything it said."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.model.answer import Outcome
from verifolio.model.problem import Domain, Problem, dense_rows
from verifolio.model.query import Query
from verifolio.plugin.evidence import Bounds, Evidence
from verifolio.plugin.verifier import Context, Verifier
from verifolio.run import Link
from verifolio.solve.attempt import AttemptTask, Report, run_attempt
from verifolio.solve.sharing import Learned

Array = NDArray[np.float64]
TOLERANCE = 1e-5  # how far a claimed point may miss, relative to the size of the numbers: float32 and more


@dataclass(frozen=True)
class Trial:
    """What core concluded (`report`), what the verifier claimed of which problem, and what it shared.

    `replayed` are the points that core accepted when the verifier asked, as keys (`point_key`).
    """

    report: Report
    claims: tuple[tuple[Problem, Outcome], ...]
    evidence: Evidence
    seconds: float
    replayed: frozenset[bytes] = frozenset()


@dataclass
class _Notes:
    claims: list[tuple[Problem, Outcome]] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    replayed: list[bytes] = field(default_factory=list)

    def deliver(self, message: object) -> None:
        if isinstance(message, Learned):
            self.evidence.merge(message.evidence)


class _Recorder(Verifier):
    """A verifier that passes everything on to another one and notes its claims."""

    name = "recorder"

    def __init__(self, inner: Verifier, notes: _Notes) -> None:
        super().__init__()
        self.inner, self.notes = inner, notes
        self.can_prove, self.can_falsify = inner.can_prove, inner.can_falsify  # type: ignore[misc]

    def refuses(self, problem: Problem) -> str | None:
        return self.inner.refuses(problem)

    def _watched(self, context: Context) -> Context:
        """The context, noting which points core has replayed (perhaps after moving them into a ball)."""

        def check(x: Array) -> bool:
            accepted = context.check(x)
            if accepted:
                self.notes.replayed.append(point_key(x))
            return accepted

        return replace(context, check=check)

    def run(self, problem: Problem, context: Context) -> Outcome:
        outcome = self.inner.run(problem, self._watched(context))
        self.notes.claims.append((problem, outcome))
        return outcome

    def run_many(self, problems: Sequence[Problem], context: Context) -> list[Outcome]:
        outcomes = self.inner.run_many(problems, self._watched(context))
        self.notes.claims += zip(problems, outcomes, strict=False)
        return outcomes


def attempt(
    verifier: Verifier,
    query: Query,
    seconds: float = math.inf,
    seed: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
    evidence: Evidence | None = None,
) -> Trial:
    """Reductions, replay and all; nothing is isolated and nothing is killed."""
    notes = _Notes()
    started = time.monotonic()
    link = Link(started + seconds, cancelled, notes.deliver)
    known = Evidence() if evidence is None else evidence
    report = run_attempt(AttemptTask(query, _Recorder(verifier, notes), known, seed), link)
    seconds_used = time.monotonic() - started
    return Trial(report, tuple(notes.claims), notes.evidence, seconds_used, frozenset(notes.replayed))


def point_key(x: Array) -> bytes:
    """The bytes of a point."""
    return np.asarray(x, np.float64).ravel().tobytes()


def evaluate(graph: Graph, points: Array) -> list[Array]:
    """The value of every node at every point, in float64: one (points, size) array per node."""
    import torch

    from verifolio.graph.module import GraphModule

    with torch.no_grad():
        values = GraphModule(graph, torch.float64).values(torch.as_tensor(np.atleast_2d(points)))
    return [np.broadcast_to(v.numpy(), (len(points), v.shape[-1])) for v in values]


def attained_margin(problem: Problem, rounds: int = 12, seed: int = 0) -> tuple[float, Array | None]:
    """The least margin of any point that sampling finds, ever closer to the best one; and that point."""
    rng, domain = np.random.default_rng(seed), problem.domain
    points, best, margin = sample(domain, seed=seed), None, math.inf
    reach = (domain.upper - domain.lower) / 2
    for _ in range(rounds):
        if len(points):
            margins = _margins(problem, points)
            k = int(margins.argmin())
            if margins[k] < margin:
                best, margin = points[k], float(margins[k])
        if best is None:
            break
        near = best + reach * rng.uniform(-1, 1, (200, domain.size))
        near = np.clip(near, domain.lower, domain.upper)
        points, reach = near[[_in_rows(domain, p) for p in near]], reach / 2
    return margin, best


def _margins(problem: Problem, points: Array) -> Array:
    """The least margin of any disjunct at each point: the largest of its rows minus their right-hand sides."""
    graph = problem.graph
    outputs = evaluate(graph, points)[graph.output]
    parts = [dense_rows(rows, graph.input_size, graph.output_size) for rows in problem.disjuncts]
    found = [(points @ i.T + outputs @ o.T - rhs).max(1) for i, o, rhs in parts]
    return np.asarray(np.min(found, axis=0))


def sample(domain: Domain, count: int = 200, seed: int = 0) -> Array:
    """Points of a domain, corners and faces among them; those outside its rows or ball are left out."""
    rng = np.random.default_rng(seed)
    low, high = np.clip(domain.lower, -1e6, 1e6), np.clip(domain.upper, -1e6, 1e6)
    inner = rng.uniform(low, high, (count, domain.size))
    corners = np.where(rng.random((count, domain.size)) < 0.5, low, high)
    faces = np.where(rng.random((count, domain.size)) < 0.3, corners, inner)
    points = np.concatenate([inner, corners, faces])
    if domain.ball is not None:
        ball = domain.ball
        distance = np.linalg.norm(points - ball.centre, ord=ball.norm, axis=1, keepdims=True)
        shrink = np.minimum(1.0, ball.radius / np.maximum(distance, 1e-300) * (1 - 1e-9))
        points = np.clip(ball.centre + (points - ball.centre) * shrink, low, high)
        points = points[[ball.distance(p) <= ball.radius for p in points]]
    return points[[_in_rows(domain, p) for p in points]]


def _in_rows(domain: Domain, point: Array) -> bool:
    if domain.rows is None or not domain.rows.count:
        return True
    matrix, _, rhs = dense_rows(domain.rows, domain.size, 0)
    return bool((matrix @ point <= rhs).all())


def miss(problem: Problem, point: Array) -> float:
    """How far a point is from being a counterexample of a problem, relative to the numbers involved."""
    x = np.asarray(point, np.float64).ravel()
    domain = problem.domain
    if x.shape != domain.lower.shape or not np.isfinite(x).all():
        return math.inf
    outside = float(np.maximum(np.maximum(domain.lower - x, x - domain.upper), 0.0).max(initial=0.0))
    if domain.ball is not None:
        outside = max(outside, domain.ball.distance(x) - domain.ball.radius)
    values = np.concatenate([x, evaluate(problem.graph, x[None])[problem.graph.output][0]])
    gaps = [_gap(*dense_rows(rows, len(values), 0)[::2], values) for rows in problem.disjuncts]
    if domain.rows is not None and domain.rows.count:
        outside = max(outside, _gap(*dense_rows(domain.rows, len(values), 0)[::2], values))
    return max(outside, min(gaps, default=math.inf)) / (1.0 + float(np.abs(values).max(initial=0.0)))


def _gap(matrix: Array, rhs: Array, values: Array) -> float:
    return float(np.maximum(matrix @ values - rhs, 0.0).max(initial=0.0))


def untrue(bounds: Bounds, problem: Problem, points: Array) -> str:
    """How bounds are wrong at some of the points, or nothing.

    Only what holds for all inputs is checked: bounds that assume a condition or splits are left out.
    """
    if bounds.assumptions.condition or bounds.assumptions.splits or not len(points):
        return ""
    values = evaluate(problem.graph, points)
    for node in bounds.lower:
        # float64 evaluation rounds as well; bounds that are tight to the last bit may miss it by that much
        slack = 1e-12 * (1.0 + np.abs(values[node]).max(initial=0.0))
        below = float((bounds.lower[node] - values[node]).max(initial=-np.inf))
        above = float((values[node] - bounds.upper[node]).max(initial=-np.inf))
        if max(below, above) > slack:
            return f"node {node} takes a value {max(below, above):.3g} outside its bounds"
    return _untrue_margins(bounds, problem, points, values[problem.graph.output])


def _untrue_margins(bounds: Bounds, problem: Problem, points: Array, outputs: Array) -> str:
    columns = np.concatenate([points, outputs], axis=1)
    for rows, margins in zip(problem.disjuncts, bounds.margins_of(problem), strict=True):
        matrix, _, rhs = dense_rows(rows, columns.shape[1], 0)
        least = (columns @ matrix.T - rhs).min(axis=0, initial=np.inf)
        slack = 1e-12 * (1.0 + np.abs(columns).max() * np.abs(matrix).sum(axis=1) + np.abs(rhs))
        wrong = np.asarray(margins) > least + slack
        if wrong.any():
            return f"the margin of row {int(np.argmax(wrong))} is larger than a value that was found"
    return ""
