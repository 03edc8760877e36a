"""The closest counterexample: minimise the distance to a centre subject to the output condition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verifolio.answer import Outcome, Verdict
from verifolio.encode.condition import MarginModel, distance_model
from verifolio.encode.expression import down, up
from verifolio.encode.model import Array
from verifolio.encode.rows import Encoding, NotLinear, box
from verifolio.problem import Ball, Domain, Problem
from verifolio.verifier import Context
from verifolio.vnnlib import Rows

from .choose import choose_solver
from .decide import encode_tightly, known_bounds, possible, undecided
from .highs import Highs, Lp
from .options import MilpOptions
from .search import unit_slack
from .solver import Result, Settings, Status, Watch

# rows are loosened by this much where a lower bound is wanted, and tightened by these where a point is
LOOSEN = 1e-6
MARGINS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
POLISH_SECONDS = 10.0


def narrowed(domain: Domain, ball: Ball) -> Domain:
    """The domain within the ball, as far as a box and one ball can say."""
    lower = np.maximum(domain.lower, down(ball.centre - ball.radius))
    upper = np.minimum(domain.upper, up(ball.centre + ball.radius))
    keep = ball if domain.ball is None and ball.norm == 1 else domain.ball
    return replace(domain, lower=lower, upper=upper, ball=keep)


def closest(problem: Problem, ball: Ball, context: Context, options: MilpOptions) -> Outcome:
    """SAT with the closest point found, UNSAT where the ball holds none; `distance` is proved either way."""
    if ball.norm not in (1, np.inf):
        return Outcome.unknown("only norms 1 and infinity are linear", distance=0.0)
    inner = problem.with_domain(narrowed(problem.domain, ball))
    if inner.domain.empty:
        return Outcome.proved(reason="the ball does not meet the domain", distance=ball.radius)
    bounds = known_bounds(inner, context, options.bounder)
    try:
        encoding = encode_tightly(inner, context, bounds, options)
    except NotLinear as error:
        return Outcome.unknown(str(error), distance=0.0)
    search = _Closest(inner, encoding, ball, context, options)
    for rows in possible(inner, encoding, bounds)[0]:
        search.improve(rows)
    return search.outcome()


class _Closest:
    """The closest counterexample so far and the distance below which there is none."""

    def __init__(
        self, problem: Problem, encoding: Encoding, ball: Ball, context: Context, options: MilpOptions
    ) -> None:
        self.problem, self.encoding, self.ball = problem, encoding, ball
        self.context, self.options = context, options
        self.best, self.proved = ball.radius, ball.radius
        self.point: Array | None = None
        self.reason = ""
        self._box = box(problem.domain)

    def outcome(self) -> Outcome:
        proved = max(0.0, min(self.proved, self.best))
        if self.point is not None:
            return Outcome.found(self.point, distance=proved, reason=self.reason)
        if self.reason:
            return Outcome(undecided(self.context), reason=self.reason, distance=proved)
        return Outcome(Verdict.UNSAT, distance=self.ball.radius)

    def improve(self, rows: Rows) -> None:
        """Look for a closer counterexample of one disjunct, and lower the proved distance to its bound."""
        if self.context.budget.expired():
            self.proved, self.reason = 0.0, "out of time"
            return
        loose = self._model(rows, self.best, -LOOSEN)
        result = self._solve(loose)
        if result.status is Status.INFEASIBLE:
            return
        slack = self.options.tight * unit_slack(loose, np.zeros(0))
        bound = result.bound - slack if np.isfinite(result.bound) else 0.0
        self.proved = min(self.proved, max(bound, 0.0))
        if result.point is not None:
            self._polish(rows, loose, result.point)
        if result.status is not Status.OPTIMAL:
            self.reason = "out of time" if self.context.budget.expired() else result.message
        elif self.point is None:
            self.reason = "the closest point of the model does not replay"

    def accept(self, point: Array) -> bool:
        """Keep the point if it replays and is closer than the best."""
        x = np.clip(point[self.encoding.inputs], *self._box)
        distance = self.ball.distance(x)
        if distance > self.ball.radius or (self.point is not None and distance >= self.best):
            return False
        if not self.context.check(x):
            return False
        self.point, self.best = x, distance
        return True

    def _model(self, rows: Rows, radius: float, margin: float) -> MarginModel:
        scale = 1.0 + float(np.abs(rows.coefficient).max(initial=0.0))
        ball = replace(self.ball, radius=radius)
        return distance_model(self.encoding, self.problem.domain, rows, ball, margin * scale)

    def _settings(self) -> Settings:
        budget = self.context.budget
        return Settings(self.options.tight, self.options.threads or budget.cores, budget.remaining)

    def _solve(self, target: MarginModel) -> Result:
        def incumbent(point: Array, _: float) -> bool:
            self.accept(point)
            return False

        solver, _ = choose_solver(self.options.solver)
        if solver.refuses(target.model) is not None:
            solver = Highs()
        watch = Watch(incumbent, lambda _: self.context.budget.expired())
        return solver.solve(target.model, self._settings(), watch)

    def _polish(self, rows: Rows, loose: MarginModel, point: Array) -> None:
        """The optimum lies on a tie: keep its phases, and ask for a little more until a point replays."""
        columns, phases = loose.binaries.tolist(), np.round(point[loose.binaries]).tolist()
        for margin in MARGINS:
            target = self._model(rows, self.ball.radius, margin)
            fixed = target.model.with_bounds(columns, phases, phases)
            result = Lp(fixed, self._settings(), self.context.budget).solve(POLISH_SECONDS)
            if result.point is None or self.accept(result.point):
                return
