"""The L-BFGS-B baseline: minimise loss(x) + c * ||x - centre||, searching for the largest c that succeeds."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from verifolio.graph.module import GraphModule
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Ball, Problem, dense_rows
from verifolio.plugin.verifier import Context

from .verifier import LbfgsOptions

Array = NDArray[np.float64]
# decimal logarithms of the smallest and largest weight c: with the first the distance hardly counts, with the last
# nothing else does
WEIGHTS = (-6.0, 4.0)
TINY = 1e-12  # under the root of a distance, which has no gradient at nought


class _Target:
    """Loss of one disjunct: the sum of softplus(row - rhs + alpha), zero only far inside."""

    def __init__(self, problem: Problem, module: GraphModule, disjunct: int, alpha: float) -> None:
        sizes = problem.graph.input_size, problem.graph.output_size
        a, b, rhs = dense_rows(problem.disjuncts[disjunct], *sizes)
        self.a, self.b, self.rhs = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(rhs.copy())
        self.module, self.alpha = module, alpha

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.module(x[None])[0]
        return self.a @ x + self.b @ y - self.rhs

    def margin(self, x: Array) -> float:
        """The largest row - rhs; no rows at all hold everywhere."""
        with torch.no_grad():
            return max(self.rows(torch.from_numpy(x)).tolist(), default=-np.inf)

    def reached(self, x: Array) -> bool:
        with torch.no_grad():
            return bool((self.rows(torch.from_numpy(x)) <= -self.alpha).all())

    def objective(self, x: Array, centre: Array, c: float) -> tuple[float, Array]:
        point = torch.from_numpy(x.copy()).requires_grad_(True)
        gap = point - torch.from_numpy(centre)
        distance = torch.sqrt((gap * gap).sum() + TINY)
        value = torch.nn.functional.softplus(self.rows(point) + self.alpha).sum() + c * distance
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()


def descend(problem: Problem, ball: Ball, context: Context, options: LbfgsOptions) -> Outcome:
    """The closest counterexample found; `distance` stays 0, nothing is proved."""
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.unknown("no input or no condition to satisfy", distance=0.0)
    module = GraphModule(problem.graph, torch.float64)
    centre = np.clip(ball.centre, problem.domain.lower, problem.domain.upper)
    everyone = [_Target(problem, module, d, options.alpha) for d in range(len(problem.disjuncts))]
    order = sorted(everyone, key=lambda t: t.margin(centre))
    best: tuple[float, Array] | None = None
    for target in order if options.targets == "all" else order[:1]:
        found = _search(target, problem, ball, centre, context, options)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    if best is None:
        return Outcome.unknown("no weight gave a counterexample", distance=0.0)
    return Outcome(Verdict.SAT, point=best[1], distance=0.0)


def _search(
    target: _Target, problem: Problem, ball: Ball, centre: Array, context: Context, options: LbfgsOptions
) -> tuple[float, Array] | None:
    """Bisect log c: a larger weight gives a closer point, until none is a counterexample any more."""
    low, high = WEIGHTS
    best: tuple[float, Array] | None = None
    for k in range(options.rounds):
        if context.budget.expired():
            break
        exponent = low if k == 0 else (low + high) / 2
        x = _minimise(target, problem, centre, 10.0**exponent, context, options.iterations)
        distance = ball.distance(x)
        good = target.reached(x) and distance <= ball.radius and context.check(x)
        if good and (best is None or distance < best[0]):
            best = (distance, x)
        if k == 0 and not good:
            break
        low, high = (exponent, high) if good else (low, exponent)
    return best


def _minimise(
    target: _Target, problem: Problem, centre: Array, c: float, context: Context, iterations: int
) -> Array:
    domain = problem.domain

    def stop(xk: Array) -> None:
        if context.budget.expired():
            raise StopIteration

    def objective(x: Array) -> tuple[float, Array]:
        return target.objective(x, centre, c)

    answer = minimize(
        objective,
        centre.copy(),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(domain.lower, domain.upper, strict=True)),
        callback=stop,
        options={"maxiter": iterations},
    )
    return np.clip(np.asarray(answer.x, np.float64), domain.lower, domain.upper)
