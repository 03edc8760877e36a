"""The verifier `smooth`, for networks with smooth functions or products."""

from __future__ import annotations

from typing import ClassVar

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import SmoothOptions
from verifolio.plugins.crown.verifier import Searcher, SearchFunction

MOST_STEPS = 4096  # each is a column of every piece, and bounds decide nothing while most of them may jump


class Smooth(Searcher):
    """Bounds in float64, then branch and bound on the values of which smooth functions are taken."""

    name = "smooth"
    Options: ClassVar[type] = SmoothOptions
    options: SmoothOptions

    def refuses(self, problem: Problem) -> str | None:
        if problem.graph.piecewise_linear:
            return "every function is piecewise linear (choose crown, which branches on phases)"
        steps = sum(problem.graph.nodes[i].op.size for i in problem.graph.steps)
        if steps > MOST_STEPS:
            return f"{steps} steps, more than {MOST_STEPS} (choose crown, which attacks first)"
        return super().refuses(problem)

    def plan(self, problem: Problem, context: Context) -> list[SearchFunction]:
        return [self._on_values]

    def _on_values(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.plugins.crown.search.values.value_search import ValueSearch

        return ValueSearch(problem, context, self.options).run()
