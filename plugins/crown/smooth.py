"""The verifier `smooth`, for networks with smooth functions or products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.verifier import Search, Searcher


@dataclass(frozen=True)
class SmoothOptions:
    """`steps`: gradient steps on the lines of every neuron's own bounds; `iterations`: on those of a piece.

    `batch`: pieces bounded together.
    """

    steps: int = 20
    iterations: int = 10
    batch: int = 0


class Smooth(Searcher):
    """Bounds in float64, then branch and bound on the values of which smooth functions are taken."""

    name = "smooth"
    Options: ClassVar[type] = SmoothOptions
    options: SmoothOptions

    def refuses(self, problem: Problem) -> str | None:
        if problem.graph.piecewise_linear:
            return "every function is piecewise linear (choose crown, which branches on phases)"
        return super().refuses(problem)

    def plan(self, problem: Problem, context: Context) -> list[Search]:
        return [self._on_values]

    def _on_values(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.plugins.crown.value_split import ValueSplit

        return ValueSplit(problem, context, self.options).run()
