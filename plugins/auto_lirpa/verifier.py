"""The verifier `auto_lirpa`: bounds once, no search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context, Verifier
from verifolio.trust.audit import Trust, audited

from .presence import missing


@dataclass(frozen=True)
class AutoLirpaOptions:
    """Options of `auto_lirpa`.

    method: CROWN, or CROWN-Optimized (alpha-CROWN). steps: of the optimisation.
    unsat: its proofs are only reported; `trusted` makes them count. They are made in float64 with an error term for
    rounding, but that auto_LiRPA computes what it says is taken on trust.
    audit_seconds: how long an attack tries to refute a proof before a trusted one counts.
    """

    method: Literal["CROWN", "CROWN-Optimized"] = "CROWN-Optimized"
    steps: int = 20
    unsat: Trust = "untrusted"
    audit_seconds: float = 0.5


class AutoLirpa(Verifier):
    """Incomplete: proves that no output row can be reached, or says how far it is from that."""

    name: ClassVar[str] = "auto_lirpa"
    can_prove = True
    Options = AutoLirpaOptions
    options: AutoLirpaOptions

    @classmethod
    def available(cls) -> str | None:
        return missing()

    def refuses(self, problem: Problem) -> str | None:
        from .bounder import AutoLirpaBounder

        return AutoLirpaBounder().refuses(problem)

    def run(self, problem: Problem, context: Context) -> Outcome:
        from .bounder import AutoLirpaBounder

        if not problem.disjuncts:
            return Outcome.proved(reason="no condition to satisfy")
        if context.budget.expired():
            late = context.budget.remaining <= 0
            return Outcome(Verdict.TIMEOUT if late else Verdict.CANCELLED, reason="stopped before it began")
        bounder = AutoLirpaBounder(self.options.method, self.options.steps)
        bounds = bounder.bound([problem], context.budget)[0]
        worst = bounds.least_margin(problem)
        options = self.options
        if not worst > 0:
            return Outcome.unknown("bounds do not exclude the condition", bound=worst)
        claim = Outcome.proved(bound=worst)
        return audited(claim, options.unsat, problem, context, options.audit_seconds)
