"""The falsifiers fgsm and pgd: options, and what they tell core; the search itself is core's."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from verifolio.model.answer import Outcome
from verifolio.model.joint import Joint
from verifolio.model.problem import Problem, finite
from verifolio.plugin.batch import BatchContext, Spot
from verifolio.plugin.options import described
from verifolio.plugin.verifier import Context, Verifier

if TYPE_CHECKING:
    from verifolio.attacks import Attacked, AttackSettings

KEPT = 8  # points handed on as evidence


@dataclass(frozen=True)
class FgsmOptions:
    """Options of `fgsm`."""

    steps: int = described(1, "Gradient steps; 1 is the classic single step to the far side of the box.")


@dataclass(frozen=True)
class PgdOptions:
    """Options of `pgd`."""

    rounds: int = described(12, "How often the search starts again, each time from other points.")
    restarts: int = described(32, "Starting points per round.")
    steps: int = described(100, "Gradient steps from each of them.")
    samples: int = described(100_000, "Random points to try first, where there are few inputs.")
    few_inputs: int = described(128, "What counts as few inputs: these are also searched locally.")
    diversify_steps: int = described(
        8, "Steps that spread the outputs of the starting points before the attack."
    )


class Falsifier(Verifier):
    """Looks for counterexamples and proves nothing."""

    can_falsify: ClassVar[bool] = True
    can_attack_many: ClassVar[bool] = True

    @abstractmethod
    def settings(self) -> AttackSettings:
        """How the shared search should go about it."""

    def refuses(self, problem: Problem) -> str | None:
        if not finite(problem.domain):
            return "an input has no finite bounds"
        if not problem.mixes_inputs and problem.domain.is_box:
            return None  # nothing else can be wrong, and importing the search is slow
        from verifolio.attacks import unattackable

        return unattackable(problem)

    def run(self, problem: Problem, context: Context) -> Outcome:
        return self.run_many([problem], context)[0]

    def run_many(self, problems: Sequence[Problem], context: Context) -> list[Outcome]:
        """All problems in shared batches, until one has a counterexample."""
        from verifolio.attacks import attack_many

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

    def attack_many(self, questions: Sequence[Joint], context: BatchContext) -> None:
        """All questions in shared batches, each from the points that are known to be near."""
        from verifolio.attacks import attack_many

        groups: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
        for k, question in enumerate(questions):
            if question.problem is not None:
                groups[tuple(x.tobytes() for x in context.starts.get(k, ()))].append(k)
        for members in groups.values():
            attack_many(
                [p for k in members if (p := questions[k].problem) is not None],
                lambda i, x, members=members: context.offer(members[i], x),  # type: ignore[misc]
                context.budget,
                self.brief(context.effort),
                seed=context.seed,
                candidates=context.starts.get(members[0], ()),
                device=context.device,
            )

    def brief(self, effort: int) -> AttackSettings:
        """How the search should go about many questions."""
        return self.settings()

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
        from verifolio.attacks import AttackSettings

        return AttackSettings(steps=self.options.steps, single=True)


class Pgd(Falsifier):
    """Projected gradient descent from many starts, with sampling and local search where inputs are few."""

    name: ClassVar[str] = "pgd"
    can_approach_many: ClassVar[bool] = True
    Options: ClassVar[type] = PgdOptions

    def settings(self) -> AttackSettings:
        from verifolio.attacks import AttackSettings

        return AttackSettings(**asdict(self.options))

    def brief(self, effort: int) -> AttackSettings:
        """A few rounds of few descents: what they miss is mostly not there, and later queries attack again."""
        full = self.settings()
        few = {"rounds": 1 + effort, "restarts": 8, "steps": 40}
        least = {name: min(most, getattr(full, name)) for name, most in few.items()}
        return replace(full, samples=0, few_inputs=0, **least)

    def approach_many(self, spots: Sequence[Spot], gain: float, context: BatchContext) -> None:
        from verifolio.attacks.approach import approach

        approach(spots, context.offer, gain, context.budget, context.device)
