"""The verifier interface: what a backend declares, and the one method in which it works."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome
from verifolio.model.joint import Joint
from verifolio.model.problem import Ball, Problem
from verifolio.plugin.batch import BatchContext, Spot
from verifolio.plugin.bounder import Bounders
from verifolio.plugin.evidence import Bounds, Evidence
from verifolio.plugin.options import NoOptions
from verifolio.run.budget import Budget

if TYPE_CHECKING:
    from verifolio.model.query import Query

Array = NDArray[np.float64]


def _accept_nothing(_: Array) -> bool:
    return False


def _tell_nobody(_: str) -> None:
    return


@dataclass(frozen=True)
class Context:
    """What core hands to a verifier besides the problem.

    `check(x)` replays a point on the original files and says whether it is a valid counterexample: a search
    should go on when it is not. `report(text)` is for whoever wants to know more, `warn(text)` for everybody: plugins
    hear both (`query_reported`), the command line shows warnings, and with `--verbose` what was reported. `query`
    is what the user asked, for tools that read files; it is missing where the problem is a rewritten one.
    """

    budget: Budget = field(default_factory=Budget)
    evidence: Evidence = field(default_factory=Evidence)
    bounders: Bounders = field(default_factory=lambda: Bounders({}))
    seed: int = 0
    check: Callable[[Array], bool] = _accept_nothing
    report: Callable[[str], None] = _tell_nobody
    warn: Callable[[str], None] = _tell_nobody
    device: str = "cpu"
    query: Query | None = None


class Verifier(ABC):
    """A backend. Subclasses declare themselves and write `run`; clock, isolation and replay are core's."""

    name: ClassVar[str]
    can_prove: ClassVar[bool] = False
    can_falsify: ClassVar[bool] = False
    can_minimise: ClassVar[bool] = False
    can_attack_many: ClassVar[bool] = False
    can_approach_many: ClassVar[bool] = False
    can_bound_many: ClassVar[bool] = False
    leaves_trace: ClassVar[bool] = (
        False  # whether an option `trace` names a folder for what certificates are made of
    )
    Options: ClassVar[type] = NoOptions

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @classmethod
    def available(cls) -> str | None:
        """Why this verifier cannot be used here, or None; must not import heavy modules."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Why this problem is out of scope, or None."""
        return None

    @abstractmethod
    def run(self, problem: Problem, context: Context) -> Outcome:
        """Decide the problem as far as the budget allows. A failed attack is UNKNOWN, never UNSAT."""

    def run_many(self, problems: Sequence[Problem], context: Context) -> list[Outcome]:
        """Decide several problems of one query; stops at the first counterexample. Override to batch."""
        outcomes: list[Outcome] = []
        for problem in problems:
            outcomes.append(self.run(problem, context))
            if outcomes[-1].point is not None:
                break
        return outcomes

    def minimise(self, problem: Problem, ball: Ball, context: Context) -> Outcome:
        """The closest counterexample to `ball.centre` in `ball.norm`, not farther than `ball.radius`.

        `Outcome.point` is the best found, `Outcome.distance` a proved lower bound on any counterexample's
        distance (0 if nothing is proved). Only offered where `can_minimise` is set.
        """
        raise TypeError(f"verifier {self.name} does not minimise; choose one that does")

    def attack_many(self, questions: Sequence[Joint], context: BatchContext) -> None:
        """Look for a counterexample to each of many questions in one go; they may share graphs.

        Every point goes to `context.offer`. Only offered where `can_attack_many` is set.
        """
        raise TypeError(f"verifier {self.name} does not attack many questions at once; choose one that does")

    def approach_many(self, spots: Sequence[Spot], gain: float, context: BatchContext) -> None:
        """Look for the closest counterexample to each of many spots of one graph, in the maximum norm.

        A spot may be left when a round gains less than `gain`. Only offered where `can_approach_many` is set.
        """
        raise TypeError(f"verifier {self.name} does not approach many spots at once; choose one that does")

    def bound_many(self, problems: Sequence[Problem], context: BatchContext) -> list[Bounds]:
        """Bounds of each problem's output rows; rows that are out of reach are a proof, which core looks at again.

        Only offered where `can_bound_many` is set.
        """
        raise TypeError(f"verifier {self.name} does not bound many problems at once; choose one that does")
