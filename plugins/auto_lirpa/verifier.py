"""The verifier `auto_lirpa`: bounds once, no search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from verifolio.answer import Outcome, Verdict
from verifolio.audit import audited
from verifolio.problem import Problem
from verifolio.verifier import Context, Verifier

from .presence import missing


@dataclass(frozen=True)
class AutoLirpaOptions:
    """Options of `auto_lirpa`.

    method: CROWN, or CROWN-Optimized (alpha-CROWN). steps: of the optimisation.
    unsat: `untrusted` only reports its proofs. They are made in float64 with an error term for rounding, but that
    auto_LiRPA computes what it says is taken on trust, so an attack of `audit_seconds` tries to refute them.
    """

    method: Literal["CROWN", "CROWN-Optimized"] = "CROWN-Optimized"
    steps: int = 20
    unsat: Literal["trusted", "untrusted"] = "trusted"
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
        if self.options.unsat == "untrusted":
            said = "excludes the condition, which is not trusted" if worst > 0 else "bounds do not exclude it"
            return Outcome.unknown(said)
        context.evidence.add_bounds(bounds)
        if not worst > 0:
            return Outcome.unknown("bounds do not exclude the condition", bound=worst)
        return audited(Outcome.proved(bound=worst), problem, context, self.options.audit_seconds)
