"""The verifier interface: what a backend declares, and the one method in which it works."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome
from verifolio.model.problem import Ball, Problem
from verifolio.plugin.bounder import Bounders
from verifolio.plugin.evidence import Evidence
from verifolio.run.budget import Budget

if TYPE_CHECKING:
    from verifolio.model.query import Query

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NoOptions:
    """For verifiers that have nothing to set."""


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
