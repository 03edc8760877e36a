"""The closest counterexample: a point that replays, and a distance within which there is provably none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verifolio.encode.condition import MarginModel, distance_model
from verifolio.encode.expression import down, up
from verifolio.encode.known import chosen_bounder, known_bounds
from verifolio.encode.model import Array
from verifolio.encode.rows import NotLinear, encode
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.run.budget import Budget

from .choose import willing_solver
from .decide import encode_tightly, possible, undecided
from .margin_search import SOLVER_SHARE, TREE
from .nearest import Incumbent, Nearest
from .options import MilpOptions
from .solver import SolverSettings, Watch

FIRST_NODES = 64  # before linear programs tighten the rows: an easy problem ends there; a choice
SHRINK = 0.8  # a point this much closer than the radius makes a smaller ball, with tighter rows, worth encoding anew
FEW = 16  # unstable neurons: with as few, the tree ends before tighter rows would pay
ROUNDS = 6  # balls; each but the last is at most SHRINK of the one before, so that five make it a third
WIDE = 1e-4  # of the radius: a distance between what is proved and what replays that wants a reason


def narrowed(domain: Domain, ball: Ball) -> Domain:
    """The domain within the ball, as far as a box and one ball can say."""
    lower = np.maximum(domain.lower, down(ball.centre - ball.radius))
    upper = np.minimum(domain.upper, up(ball.centre + ball.radius))
    keep = ball if domain.ball is None and ball.norm == 1 else domain.ball
    return replace(domain, lower=lower, upper=upper, ball=keep)


def reach(domain: Domain, ball: Ball) -> float:
    """A radius that covers the whole domain, for balls without one of their own."""
    far = up(np.maximum(np.abs(up(domain.upper - ball.centre)), np.abs(down(domain.lower - ball.centre))))
    return float(far.sum() * (1 + 1e-12) if ball.norm == 1 else far.max(initial=0.0))


def closest(problem: Problem, ball: Ball, context: Context, options: MilpOptions) -> Outcome:
    """SAT with the closest point found, UNSAT where the ball holds none; `distance` is proved either way."""
    if ball.norm not in (1, np.inf):
        return Outcome.unknown("only norms 1 and infinity are linear", distance=0.0)
    search = _Closest(
        problem, replace(ball, radius=min(ball.radius, reach(problem.domain, ball))), context, options
    )
    try:
        search.run()
    except NotLinear as error:
        search.reason = str(error)
    return search.outcome()


class _Closest:
    """Rounds on balls that shrink to the closest point so far; what one round proved holds for good."""

    def __init__(self, problem: Problem, ball: Ball, context: Context, options: MilpOptions) -> None:
        self.problem, self.ball, self.context, self.options = problem, ball, context, options
        self.best = Incumbent(problem, ball, context)
        self.proved, self.empty = 0.0, False
        self.reason = ""
        self.nodes, self.solver = 0, TREE  # `solver`: who ran its own tree, if any did
        self.notes: list[str] = []

    def run(self) -> None:
        """Smaller balls while points come closer, then tighter rows; the last round runs to the end."""
        tightly = self.options.search == "solver"
        for k in range(ROUNDS):
            last = k == ROUNDS - 1
            tightly = tightly or last
            radius = min(self.ball.radius, self.best.distance)
            if self._round(radius, tightly, shrink=not last):
                return
            if self.context.budget.expired():
                break
            tightly = tightly or self.best.distance > SHRINK * radius
        self.reason = "out of time"

    def _round(self, radius: float, tightly: bool, shrink: bool) -> bool:
        """MarginSearch one ball; whether that was the last word."""
        ball = replace(self.ball, radius=radius)
        inner = self.problem.with_domain(narrowed(self.problem.domain, ball))
        if inner.domain.empty:
            self._note(np.inf, radius)
            return True
        bounder = chosen_bounder(inner, self.context, "milp", self.options.bounder)
        bounds = known_bounds(inner, self.context, bounder)
        if tightly:
            encoding = encode_tightly(inner, self.context, bounds, self.options)
        else:
            encoding = encode(inner.graph, inner.domain, bounds, "bigm")
        live, _ = possible(inner, encoding, bounds)
        nearest = Nearest(inner, encoding, live, ball, self.best, self._settings(), self.context)
        if self.options.search == "solver" and self.solver == TREE:
            seconds = SOLVER_SHARE * self.context.budget.remaining / max(len(live), 1)
            for k, rows in enumerate(live):
                target = distance_model(encoding, inner.domain, rows, ball)
                self._ask_solver(nearest, k, target, self.context.budget.share(seconds))
        enough = SHRINK * radius if shrink and encoding.unstable_count > FEW else 0.0
        nearest.run(np.inf if tightly else FIRST_NODES, enough)
        self.nodes += nearest.nodes
        self._note(nearest.lower, radius)
        return nearest.finished

    def _note(self, lower: float, radius: float) -> None:
        self.proved = max(self.proved, min(lower, radius))
        self.empty = lower > radius >= self.ball.radius

    def _ask_solver(self, nearest: Nearest, k: int, target: MarginModel, part: Budget) -> None:
        """Let a solver's own tree find the pattern of the closest point; its bound is not believed."""
        solver, notes = willing_solver(self.options.solver, target.model)
        self.solver, self.notes = solver.name, [*self.notes, *notes]

        def incumbent(point: Array, _: float) -> bool:
            self.best.accept(point[target.inputs])
            return False

        watch = Watch(incumbent, lambda _: part.expired())
        result = solver.solve(target.model, replace(self._settings(), seconds=part.remaining), watch)
        if result.point is not None:
            nearest.try_pattern(k, np.round(result.point[target.binaries]).astype(np.int8))

    def _settings(self) -> SolverSettings:
        budget = self.context.budget
        return SolverSettings(
            self.options.tight, self.options.threads or budget.cores, budget.remaining, self.context.seed
        )

    def outcome(self) -> Outcome:
        stats: dict[str, float | int | str] = {"solver": self.solver, "nodes": self.nodes}
        stats |= {"replays": self.best.replays}
        stats |= {"note": "; ".join(dict.fromkeys(self.notes))} if self.notes else {}
        proved = max(0.0, min(self.proved, self.best.distance, self.ball.radius))
        if self.empty and self.best.point is None:
            return Outcome(Verdict.UNSAT, distance=self.ball.radius, stats=stats)
        wide = self.best.distance - proved > WIDE * self.ball.radius
        reason = self.reason or ("the closest point of the model does not replay" if wide else "")
        if self.best.point is not None:
            return Outcome.found(self.best.point, distance=proved, reason=reason, stats=stats)
        return Outcome(undecided(self.context), reason=reason, distance=proved, stats=stats)
