"""The falsifiers fgsm and pgd: options, and what they tell core; the search itself is core's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem, finite
from verifolio.plugin.verifier import Context, Verifier

if TYPE_CHECKING:
    from verifolio.attack import Attacked, AttackSettings

KEPT = 8  # points handed on as evidence


@dataclass(frozen=True)
class FgsmOptions:
    """`steps`: 1 is the classic single step to the far side of the box."""

    steps: int = 1


@dataclass(frozen=True)
class PgdOptions:
    """See `verifolio.attack.AttackSettings`; `samples` and local search apply to few inputs only."""

    rounds: int = 12
    restarts: int = 32
    steps: int = 100
    samples: int = 100_000
    few_inputs: int = 128
    diversify_steps: int = 8


class Falsifier(Verifier):
    """Looks for counterexamples and proves nothing."""

    can_falsify: ClassVar[bool] = True

    @abstractmethod
    def settings(self) -> AttackSettings:
        """How the shared search should go about it."""

    def refuses(self, problem: Problem) -> str | None:
        if not finite(problem.domain):
            return "an input has no finite bounds"
        if not problem.mixes_inputs and problem.domain.is_box:
            return None  # nothing else can be wrong, and importing the search is slow
        from verifolio.attack import unattackable

        return unattackable(problem)

    def run(self, problem: Problem, context: Context) -> Outcome:
        return self.run_many([problem], context)[0]

    def run_many(self, problems: Sequence[Problem], context: Context) -> list[Outcome]:
        """All problems in shared batches, until one has a counterexample."""
        from verifolio.attack import attack_many

        results = attack_many(
            problems,
            lambda _, x: context.check(x),
            context.budget,
            self.settings(),
            seed=context.seed,
            candidates=context.evidence.candidates,
            first=True,
            device=context.device,
        )
        for result in sorted((r for r in results if r.nearest is not None), key=_margin, reverse=True)[
            -KEPT:
        ]:
            if result.point is None and result.nearest is not None:
                context.evidence.add_candidate(result.nearest)
        return [self._outcome(r, context) for r in results]

    def _outcome(self, result: Attacked, context: Context) -> Outcome:
        stats = {"replays": result.replays, "margin": result.margin}
        if result.point is not None:
            return Outcome.found(result.point, stats=stats)
        why = "stopped early" if context.budget.expired() else "gave up"
        near = "" if result.nearest is None else f"; the best point misses a row by {result.margin:.3g}"
        return Outcome.unknown(f"no counterexample found, {why}{near}", stats=stats)


def _margin(result: Attacked) -> float:
    return result.margin


class Fgsm(Falsifier):
    """A signed-gradient step from the middle of the box towards each disjunct (Goodfellow et al. 2015)."""

    name: ClassVar[str] = "fgsm"
    Options: ClassVar[type] = FgsmOptions

    def settings(self) -> AttackSettings:
        from verifolio.attack import AttackSettings

        return AttackSettings(steps=self.options.steps, single=True)


class Pgd(Falsifier):
    """Projected gradient descent from many starts, with sampling and local search where inputs are few."""

    name: ClassVar[str] = "pgd"
    Options: ClassVar[type] = PgdOptions

    def settings(self) -> AttackSettings:
        from verifolio.attack import AttackSettings

        return AttackSettings(**asdict(self.options))
