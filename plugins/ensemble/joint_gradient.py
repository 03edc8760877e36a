"""The verifier `joint-gradient`: gradient attacks on many sets of networks at once, GA1 to GA3 and a stronger search.

GA1 is one step of FGSM on the sum of the members' cross-entropies, GA2 iterates it, GA3 iterates on the
members that are not fooled yet, from random starts too (Goodfellow et al. 2014, Kurakin et al. 2016,
extended to several networks); each tries the weaker ones first, so what they find is nested. `search` goes for
the least fooled member's margin: in boxes by `climb`, in other balls by steps that shrink. Questions that are not
about labels are attacked as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome
from verifolio.model.joint import Joint
from verifolio.model.problem import Problem
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.options import described
from verifolio.plugin.verifier import Context, Verifier

Array = NDArray[np.float64]
Method = Literal["ga1", "ga2", "ga3", "search"]


@dataclass(frozen=True)
class GradientOptions:
    """Options of `joint-gradient`."""

    method: Method = described("search", "How it descends: search, or the papers' ga1, ga2, ga3.")
    steps: int = described(20, "Steps per descent.")
    restarts: int = described(4, "Random starts beside the point itself.")


class JointGradient(Verifier):
    """Looks for one input that several networks give a wrong label; proves nothing."""

    name: ClassVar[str] = "joint-gradient"
    can_falsify: ClassVar[bool] = True
    can_attack_many: ClassVar[bool] = True
    Options: ClassVar[type] = GradientOptions
    options: GradientOptions

    def refuses(self, problem: Problem) -> str | None:
        from verifolio.attacks import unattackable

        return unattackable(problem)

    def run(self, problem: Problem, context: Context) -> Outcome:
        found: list[Array] = []

        def offer(_: int, x: Array) -> bool:
            if context.check(x):
                found.append(x)
            return bool(found)

        near = context.evidence.candidates
        batch = BatchContext(context.budget, context.seed, context.device, offer, {0: near})
        self.attack_many([Joint((problem,))], batch)
        return Outcome.found(found[0]) if found else Outcome.unknown("no counterexample found")

    def attack_many(self, questions: Sequence[Joint], context: BatchContext) -> None:
        from .gradient import attack_questions

        attack_questions(questions, self.options, context)
