"""The verifier `milp`: a network as mixed-integer rows (Tjeng et al. 2019), decided by minimising the margin."""

from __future__ import annotations

from importlib.util import find_spec
from typing import ClassVar

from verifolio.model.answer import Outcome
from verifolio.model.problem import Ball, Problem, finite
from verifolio.plugin.verifier import Context, Verifier

from .options import MilpOptions


class Milp(Verifier):
    """Complete for piecewise-linear networks on boxes, L1 and Linf balls and linear input rows."""

    name: ClassVar[str] = "milp"
    can_prove = True
    can_falsify = True
    can_minimise = True
    leaves_trace = True
    Options = MilpOptions
    options: MilpOptions

    @classmethod
    def available(cls) -> str | None:
        return None if find_spec("highspy") else "highspy is not installed; pip install highspy"

    def refuses(self, problem: Problem) -> str | None:
        if not problem.graph.piecewise_linear:
            smooth = sorted(o for o in problem.graph.operators if o.islower() or o == "Product")
            return f"not piecewise linear: {', '.join(smooth)}"
        if problem.domain.ball is not None and problem.domain.ball.norm == 2:
            return "an L2 ball has no linear rows"
        return None if finite(problem.domain) else "an input is unbounded; big-M constants need finite boxes"

    def run(self, problem: Problem, context: Context) -> Outcome:
        from .decide import decide

        return decide(problem, context, self.options)

    def minimise(self, problem: Problem, ball: Ball, context: Context) -> Outcome:
        from .minimise import closest

        return closest(problem, ball, context, self.options)
