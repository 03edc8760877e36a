"""The verifier `smt` (as Katz et al. 2017, Reluplex): exact rational arithmetic, so ties mean what they say."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context, Verifier


@dataclass(frozen=True)
class SmtOptions:
    """Options of `smt`.

    bounder: name of the bounder that fixes phases; empty takes the tightest willing one.
    max_open: a problem with more ReLUs whose phase bounds do not fix is given up early.
    max_neurons: networks with more ReLUs are refused before any bounds are computed.
    few, pieces: boxes with few inputs are cut until bounds leave at most `few` phases open, into at most so many.
    """

    bounder: str = ""
    max_open: int = 60
    max_neurons: int = 5000
    few: int = 8
    pieces: int = 256


class Smt(Verifier):
    """Complete for small piecewise-linear networks with exact weights; inputs may be unbounded."""

    name: ClassVar[str] = "smt"
    can_prove = True
    can_falsify = True
    Options = SmtOptions
    options: SmtOptions

    @classmethod
    def available(cls) -> str | None:
        return None if find_spec("z3") else "z3 is not installed; pip install z3-solver"

    def refuses(self, problem: Problem) -> str | None:
        from verifolio.encode.exact_forms import why_not_exact

        if problem.domain.ball is not None and problem.domain.ball.norm == 2:
            return "an L2 ball is not linear"
        if problem.graph.neurons > self.options.max_neurons:
            return f"{problem.graph.neurons} neurons, more than max_neurons = {self.options.max_neurons}"
        return why_not_exact(problem.graph)

    def run(self, problem: Problem, context: Context) -> Outcome:
        from .decide import decide

        return decide(problem, context, self.options)
