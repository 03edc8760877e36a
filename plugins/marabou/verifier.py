"""The verifier `marabou`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Literal

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem, finite
from verifolio.plugin.verifier import Context, Verifier
from verifolio.trust.audit import Trust, audited


@dataclass(frozen=True)
class MarabouOptions:
    """Options of `marabou`.

    unsat: Marabou decides in floating point, so its proofs are only reported; `trusted` makes them count.
    audit_seconds: how long an attack tries to refute a proof before a trusted one counts.
    split: which ReLU to branch on. tighten: how bounds are tightened during the search.
    max_neurons: larger networks are refused, because the tableau grows with them.
    """

    unsat: Trust = "untrusted"
    audit_seconds: float = 0.5
    split: Literal["auto", "earliest-relu", "polarity", "largest-interval"] = "auto"
    tighten: Literal["deeppoly", "sbt", "none"] = "deeppoly"
    max_neurons: int = 10_000


class Marabou(Verifier):
    """Complete up to floating-point tolerances for ReLU networks on boxes with linear rows."""

    name: ClassVar[str] = "marabou"
    can_prove = True
    can_falsify = True
    Options = MarabouOptions
    options: MarabouOptions

    @classmethod
    def available(cls) -> str | None:
        return None if find_spec("maraboupy") else "maraboupy is not installed; pip install maraboupy"

    def refuses(self, problem: Problem) -> str | None:
        if not problem.graph.piecewise_linear:
            smooth = sorted(o for o in problem.graph.operators if o.islower() or o == "Product")
            return f"not piecewise linear: {', '.join(smooth)}"
        if problem.domain.ball is not None:
            return "a ball is not linear here"
        if problem.graph.neurons > self.options.max_neurons:
            return f"{problem.graph.neurons} neurons, more than max_neurons = {self.options.max_neurons}"
        return None if finite(problem.domain) else "an input has no finite bounds"

    def run(self, problem: Problem, context: Context) -> Outcome:
        from .decide import decide

        if problem.domain.empty or not problem.disjuncts:
            return Outcome.proved(reason="no input or no condition to satisfy")
        claim, options = decide(problem, context, self.options), self.options
        return audited(claim, options.unsat, problem, context, options.audit_seconds)
