"""Searches over radii: how one declares itself, its question, its log of steps, and the bracket it ends with."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import SoundnessAlarm
from verifolio.model.answer import Flag, Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import Claim, Estimator, OracleLike, Progress, silent
from verifolio.plugin.property import Reference
from verifolio.portfolio.tree import Portfolio
from verifolio.properties.verdict import Finding, PropertyStatus
from verifolio.trust.referee import confirmed, in_ball
from verifolio.vnnlib import write

from .family import Family

KNOWN = "known"
GRID = 8  # radii up to the one that is asked about, and as many beyond
VERDICTS = {PropertyStatus.PROVED: Verdict.UNSAT, PropertyStatus.REFUTED: Verdict.SAT}


class SearchStatus(StrEnum):
    """How an input's search ended."""

    CLOSED = "closed"  # as narrow as was asked for
    OPEN = "open"
    MISCLASSIFIED = "misclassified"
    ERROR = "error"


@dataclass(frozen=True, eq=False)
class SearchStep:
    """One question of a search and what came of it; all of them together are enough to continue."""

    kind: str  # query, squeeze, minimise, or known from another run
    radius: float
    verdict: Verdict
    verifier: str = ""
    seconds: float = field(default=0.0, repr=False)
    timeout: float = field(default=math.inf, repr=False)
    proved: float | None = None  # no counterexample is this close or closer
    distance: float | None = None  # of the witness
    witness: NDArray[np.float32] | None = None
    flags: frozenset[Flag] = frozenset()
    elapsed: float = field(default=0.0, repr=False)  # of the whole search, at the end of this step
    reason: str = ""
    unstable: int | None = None  # values without a sign at the largest radius that was bounded
    reused: bool = False  # an answer of another search or session: its seconds are not this search's


def forget(_: SearchStep) -> None:
    """The log that keeps nothing."""


@dataclass(frozen=True, eq=False)
class RadiusQuestion:
    """How large is the largest radius without a counterexample?

    The grid searches look at `radii`; `bracket` looks anywhere up to `largest` (0: the whole range) until the
    two sides are at most `tolerance` apart. `timeout` is for one query, `budget` for the whole search, in
    seconds. `history` are the steps of an earlier run; `log` is called with every new one; with `keep`, every
    query is written to that folder.
    """

    family: Family
    radii: tuple[float, ...] = ()
    largest: float = 0.0
    tolerance: float = 1e-3
    timeout: float = math.inf
    budget: float = math.inf
    history: tuple[SearchStep, ...] = ()
    log: Callable[[SearchStep], None] = forget
    keep: Path | None = None


@dataclass(frozen=True, eq=False)
class Critical:
    """The critical radius lies in (lower, upper]: `lower` is proved, `upper` is the distance of `witness`.

    On a grid both are grid points, and `distance` is how far the witness really is.
    """

    lower: float
    upper: float | None
    status: SearchStatus
    witness: NDArray[np.float32] | None = None
    distance: float | None = None
    flags: frozenset[Flag] = frozenset()
    seconds: float = 0.0
    queries: int = 0
    cancelled: int = 0
    reason: str = ""
    steps: tuple[SearchStep, ...] = field(default=(), repr=False)

    @property
    def reused(self) -> int:
        """How many answers came from another search or session."""
        return sum(s.reused for s in self.steps)

    @property
    def terminated(self) -> bool:
        """Whether a query without an answer keeps the two sides apart."""
        return self.status is SearchStatus.OPEN and broken_off(self.steps, self.lower, self.upper)

    @property
    def gap(self) -> float | None:
        return None if self.upper is None else self.upper - self.lower


class SearchClock:
    """The time of a search: what earlier sessions spent, and since this one began."""

    question: RadiusQuestion
    before: float
    started: float

    @property
    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.started

    @property
    def left(self) -> float:
        return self.question.budget - self.elapsed


class RadiusSearch(Estimator):
    """An estimator that commands take as `--search NAME`: a radius question in, a bracket out.

    `grid`: it looks at the radii of a grid only, which the user then has to give. `continues`: it starts from what
    other runs proved or refuted, and from a quick look at the input together with its neighbours.
    """

    Request: ClassVar[type] = RadiusQuestion
    grid: ClassVar[bool] = False
    continues: ClassVar[bool] = False

    @property
    def lanes(self) -> int:
        """How many queries it asks at a time."""
        return 1

    def check(self, family: Family, portfolio: Portfolio) -> None:
        """Say (InputError) what about this input or this portfolio makes the search impossible; shows at once."""

    @abstractmethod
    def run(self, request: RadiusQuestion, oracle: OracleLike, progress: Progress = silent) -> Critical:
        """Search; every step goes to `request.log` as soon as it is known."""

    @classmethod
    def about_labels(
        cls, networks: Sequence[Network], reference: Reference, seconds: float
    ) -> tuple[Self, RadiusQuestion] | None:
        if len(networks) != 1 or np.ndim(reference.lower) or np.ndim(reference.upper):
            return None
        low, high = float(reference.lower), float(reference.upper)
        family = Family(networks[0], reference.x, reference.label, reference.norm, low, high)
        radii = tuple(reference.epsilon * k / GRID for k in range(1, 2 * GRID + 1))
        tolerance = reference.epsilon / 100
        return cls(), RadiusQuestion(family, radii, radii[-1], tolerance, seconds, seconds)

    def claims(self, request: RadiusQuestion, result: Critical) -> tuple[Claim, ...]:
        return (Claim(result.lower, (Fraction(1),)),) if result.lower > 0 else ()


def make_step(
    family: Family, radius: float, finding: Finding, timeout: float, elapsed: float, kind: str = "query"
) -> SearchStep:
    """A logged finding; a radius counts as proved only by a proof, a distance only by a replayed violation."""
    answer, witness = finding.answer, finding.witness
    verdict = VERDICTS.get(finding.status, Verdict.UNKNOWN if answer.verdict.decided else answer.verdict)
    return SearchStep(
        kind,
        radius,
        verdict,
        answer.verifier,
        sum(a.seconds for a in finding.answers),
        timeout,
        radius if verdict is Verdict.UNSAT else None,
        None if witness is None else family.distance(witness.x),
        None if witness is None else witness.x,
        answer.flags | (frozenset() if witness is None else witness.flags),
        elapsed,
        finding.reason or answer.reason,
        reused=any(a.reused for a in finding.answers),
    )


def broken_off(steps: Sequence[SearchStep], lower: float, upper: float | None) -> bool:
    """A critical termination: some query strictly between the two sides was asked and had no answer."""
    top = math.inf if upper is None else upper
    between = [s for s in steps if s.kind == "query" and lower < s.radius < top]
    return any(not s.verdict.decided for s in between)


def conflict(family: Family, proved: float, distance: float, witness: Witness | None) -> None:
    """A witness inside a proved radius: an alarm, unless it is one in floating point only.

    Distances are rounded, so it is the proved region itself that decides, exactly.
    """
    if witness is None or (confirmed(witness) and inside(family.query(proved), witness)):
        message = f"no counterexample within {proved:.9g} was proved, but one is {distance:.9g} away"
        raise SoundnessAlarm(message)


def inside(query: Query, witness: Witness) -> bool:
    """Whether a witness is a counterexample to a query about the same network."""
    held = query.specification.check(witness.x, witness.y).holds
    return held and (query.ball is None or in_ball(query.ball, witness.x))


def keep_query(folder: Path | None, query: Query) -> None:
    """Write a query as VNN-LIB; a ball has no such form, and the file says so."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    stem = "".join(c if c.isalnum() or c in "._-" else "_" for c in query.name)
    if query.ball is None:
        (folder / f"{stem}.vnnlib").write_text(write(query.specification))
        return
    note = (
        f"; VNN-LIB 1.0 has no form for an L{query.ball.norm:g} ball: this file holds its bounding box only\n"
        f"; radius {query.ball.radius!r}, centre {query.ball.centre.tolist()}\n"
    )
    (folder / f"{stem}.box.vnnlib").write_text(note + write(query.specification))
