"""The falsifiers of Bastani et al. 2016: the nearest counterexample in one linear region, and L-BFGS-B."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Literal

from verifolio.model.answer import Outcome
from verifolio.model.problem import Ball, Problem
from verifolio.plugin.verifier import Context, Verifier


@dataclass(frozen=True)
class PointwiseLpOptions:
    """Options of `pointwise-lp`.

    targets: only the disjunct closest to holding at the reference point, or all of them.
    alpha: by how much every output row must hold; where a replay fails, more is asked for.
    lazy: add the rows of the activation pattern as they are violated, rather than all at once.
    """

    targets: Literal["runner-up", "all"] = "runner-up"
    alpha: float = 0.0
    lazy: bool = True


@dataclass(frozen=True)
class LbfgsOptions:
    """Options of `lbfgs`: required margin, rounds of the search over the weight c, iterations per round."""

    targets: Literal["runner-up", "all"] = "runner-up"
    alpha: float = 0.15
    rounds: int = 12
    iterations: int = 100


def _shape_refusal(problem: Problem) -> str | None:
    if problem.domain.ball is not None and problem.domain.ball.norm == 2:
        return "an L2 ball is not linear"
    return None


class PointwiseLp(Verifier):
    """Fixes the activation pattern at the reference point; exact there, blind elsewhere: never a proof."""

    name: ClassVar[str] = "pointwise-lp"
    can_falsify = True
    can_minimise = True
    Options = PointwiseLpOptions
    options: PointwiseLpOptions

    @classmethod
    def available(cls) -> str | None:
        return None if find_spec("highspy") else "highspy is not installed; pip install highspy"

    def refuses(self, problem: Problem) -> str | None:
        if not problem.graph.piecewise_linear:
            return "not piecewise linear: an activation pattern makes no linear program"
        return _shape_refusal(problem)

    def run(self, problem: Problem, context: Context) -> Outcome:
        from .attack import closest, reference

        return closest(problem, reference(problem), context, self.options)

    def minimise(self, problem: Problem, ball: Ball, context: Context) -> Outcome:
        from .attack import closest

        return closest(problem, ball, context, self.options)


class Lbfgs(Verifier):
    """Minimises loss + c * distance by L-BFGS-B, with the largest c that still gives a counterexample."""

    name: ClassVar[str] = "lbfgs"
    can_falsify = True
    can_minimise = True
    Options = LbfgsOptions
    options: LbfgsOptions

    def refuses(self, problem: Problem) -> str | None:
        if problem.domain.rows is not None and problem.domain.rows.count:
            return "L-BFGS-B keeps to boxes, not to linear input rows"
        return _shape_refusal(problem)

    def run(self, problem: Problem, context: Context) -> Outcome:
        from .attack import reference
        from .lbfgs import descend

        return descend(problem, reference(problem), context, self.options)

    def minimise(self, problem: Problem, ball: Ball, context: Context) -> Outcome:
        from .lbfgs import descend

        return descend(problem, ball, context, self.options)
