"""The estimator `ensemble-selection`: members that rarely err together (Amir et al. 2022)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from verifolio.data import Dataset
from verifolio.errors import InputError
from verifolio.estimator import Estimator, Progress, silent
from verifolio.network import Network

from .accuracy import RobustAccuracy, robust_accuracy
from .falsify import Plan
from .joint import JointOptions
from .lattice import Status
from .ledger import Ledger
from .replay import Referee, Spot, make_references
from .scores import Interval, MutualErrors, Swap, replace_members
from .survey import Survey

if TYPE_CHECKING:
    from verifolio.oracle import Oracle

How = Literal["verify", "ga1", "ga2", "ga3"]


@dataclass(frozen=True)
class SelectionOptions:
    """How to search.

    method: `verify` proves or refutes every mutual error, the others only attack. iterations: replacements
    at most. seconds: for the mutual errors and again for the accuracies. certified: replace only where
    intervals do not overlap. reverse: replace the best member by the worst candidate. rank: the epsilon
    whose balls count (None: all). keep: a folder for VNN-LIB files. store: a file that remembers every
    answer.
    """

    method: How = "verify"
    iterations: int = 20
    seconds: float = math.inf
    certified: bool = False
    reverse: bool = False
    rank: float | None = None
    joint: JointOptions = field(default_factory=JointOptions)
    plan: Plan = field(default_factory=Plan)
    keep: str = ""
    store: str = ""


@dataclass(frozen=True, eq=False)
class SelectionRequest:
    """Candidates, data in which to look for agreement points, radii, and the first ensemble.

    `test` are the positions of the points (of `test_data`) at which whole ensembles are verified.
    """

    networks: tuple[Network, ...]
    data: Dataset
    epsilons: tuple[float, ...]
    start: tuple[int, ...]
    points: int = 200
    label: int | None = None
    clip: bool = False
    test_data: Dataset | None = None
    test: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.epsilons or sorted(set(self.epsilons)) != list(self.epsilons):
            raise InputError("epsilons", "different radii in ascending order", str(self.epsilons))
        if len(self.start) < 2 or len(set(self.start)) < len(self.start):
            raise InputError("ensemble", "at least two different members", str(self.start))
        if not all(0 <= m < len(self.networks) for m in self.start):
            raise InputError("ensemble", f"members below {len(self.networks)}", str(self.start))


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """`by_epsilon` are the mutual errors of each radius, `errors` those that ranked the members.

    `scores` belong to the first ensemble, `final_scores` to the last; `before` and `after` are the robust
    accuracies of the whole ensembles (averaged outputs) for each radius.
    """

    points: tuple[int, ...]
    by_epsilon: tuple[MutualErrors, ...]
    errors: MutualErrors
    start: tuple[int, ...]
    final: tuple[int, ...]
    scores: tuple[Interval, ...]
    final_scores: tuple[Interval, ...]
    swaps: tuple[Swap, ...]
    before: tuple[RobustAccuracy, ...] = ()
    after: tuple[RobustAccuracy, ...] = ()
    seconds: float = 0.0
    stats: dict[str, Any] = field(default_factory=dict)


def agreement_points(
    networks: Sequence[Network], data: Dataset, count: int, label: int | None = None
) -> tuple[int, ...]:
    """The first points of the data that every network gives the right label."""
    referee, found = Referee(networks), []
    for i in range(len(data)):
        y = int(data.labels[i])
        if y < 0 or (label is not None and y != label):
            continue
        if referee.pattern(data.image(i).astype(np.float32), y) == 0:
            found.append(i)
        if len(found) == count:
            break
    if not found:
        raise InputError(f"{data.name}:{data.split}", "points that all networks classify correctly", "none")
    return tuple(found)


class Balls:
    """The survey of all pairs in all balls; ball e * points + p is the one of point p with radius e."""

    def __init__(self, survey: Survey, points: int, radii: int) -> None:
        self.survey, self.points, self.radii = survey, points, radii
        count = len(survey.networks)
        self.singles = [1 << a for a in range(count)]
        self.pairs = [1 << a | 1 << b for a, b in combinations(range(count), 2)]

    def questions(self, radius: int, masks: Sequence[int]) -> list[tuple[int, int]]:
        first = radius * self.points
        return [(j, mask) for j in range(first, first + self.points) for mask in masks]

    def spread(self) -> None:
        """A point that fools serves every larger ball, a proof every smaller one."""
        lattices, m = self.survey.lattices, self.points
        for p in range(m):
            for e in range(1, self.radii):
                for pattern, x in lattices[(e - 1) * m + p].fooled.items():
                    lattices[e * m + p].add_witness(pattern, x)
            for e in range(self.radii - 1, 0, -1):
                for mask in lattices[e * m + p].safe:
                    lattices[(e - 1) * m + p].add_proof(mask)

    def attack(self, method: Literal["ga1", "ga2", "ga3", "search"]) -> None:
        """From the smallest radius on, so that what is found serves the larger ones."""
        for e in range(self.radii):
            if method == "search":
                self.survey.attack(self.questions(e, self.singles), method)
            self.survey.attack(self.questions(e, self.pairs), method)
            if method == "search":
                self.spread()

    def prove(self) -> None:
        """Bounds, from the largest radius on: single networks first, then pairs."""
        for masks in (self.singles, self.pairs):
            for e in range(self.radii - 1, -1, -1):
                self.survey.bound(self.questions(e, masks))
                self.spread()

    def verify(self, progress: Progress) -> None:
        """The oracle decides the rest, radius by radius from the middle: each answer serves on one side."""
        order = sorted(range(self.radii), key=lambda e: abs(e - self.radii // 2))
        for k, e in enumerate(order):
            left = self.survey.open(self.questions(e, self.pairs))
            progress(k, self.radii, f"{len(left)} open pairs at radius {e}")
            self.survey.verify(left)
            self.spread()

    def errors(self, radius: int) -> MutualErrors:
        count = len(self.survey.networks)
        found, left = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
        for a, b in combinations(range(count), 2):
            mask = 1 << a | 1 << b
            for j, _ in self.questions(radius, [mask]):
                status = self.survey.status(j, mask)
                found[a, b] += status is Status.SAT
                left[a, b] += status in (Status.OPEN, Status.UNKNOWN)
        return MutualErrors(found + found.T, left + left.T, self.points)


class EnsembleSelection(Estimator):
    """Mutual errors of all pairs, uniqueness scores, and iterative replacement."""

    name = "ensemble-selection"
    Options: ClassVar[type] = SelectionOptions
    Request: ClassVar[type] = SelectionRequest
    options: SelectionOptions

    def run(self, request: SelectionRequest, oracle: Oracle, progress: Progress = silent) -> SelectionResult:
        started = time.monotonic()
        ledger = Ledger(self.options.store or None)
        try:
            points = agreement_points(request.networks, request.data, request.points, request.label)
            balls = self._survey(request, points, oracle, ledger)
            self._decide(balls, progress)
            by_epsilon = tuple(balls.errors(e) for e in range(len(request.epsilons)))
            errors = self._ranking(request.epsilons, by_epsilon)
            options = self.options
            swaps = replace_members(
                errors, request.start, options.iterations, options.reverse, options.certified
            )
            final = swaps[-1].ensemble if swaps else request.start
            ends = (request.start, final)
            curves = [self._accuracy(request, e, oracle, ledger, progress) for e in ends]
        finally:
            ledger.close()
        stats = asdict(balls.survey.tally) | {"asked": dict(oracle.counts)}
        scores = [tuple(errors.uniqueness(m, e) for m in e) for e in ends]
        seconds = time.monotonic() - started
        return SelectionResult(
            points,
            by_epsilon,
            errors,
            request.start,
            final,
            scores[0],
            scores[1],
            tuple(swaps),
            curves[0],
            curves[1],
            seconds,
            stats,
        )

    def _survey(
        self, request: SelectionRequest, points: Sequence[int], oracle: Oracle, ledger: Ledger
    ) -> Balls:
        spots = [
            Spot(r)
            for e in request.epsilons
            for r in make_references(request.data, points, e, math.inf, request.clip)
        ]
        keep = Path(self.options.keep) if self.options.keep else None
        survey = Survey(
            request.networks,
            spots,
            oracle,
            ledger if self.options.method == "verify" else Ledger(),
            self.options.plan,
            self.options.joint,
            keep,
            _deadline(self.options.seconds),
        )
        return Balls(survey, len(points), len(request.epsilons))

    def _decide(self, balls: Balls, progress: Progress) -> None:
        if self.options.method != "verify":
            balls.attack(self.options.method)
            return
        balls.spread()
        progress(0, 0, "attacks")
        balls.attack("search")
        progress(0, 0, "bounds")
        balls.prove()
        balls.verify(progress)

    def _ranking(self, epsilons: Sequence[float], errors: Sequence[MutualErrors]) -> MutualErrors:
        """The mutual errors of one radius, or of all balls together."""
        if self.options.rank is not None:
            if self.options.rank not in epsilons:
                raise InputError("rank", f"one of the radii {list(epsilons)}", str(self.options.rank))
            return errors[epsilons.index(self.options.rank)]
        found, left = sum(e.found for e in errors), sum(e.open for e in errors)
        return MutualErrors(np.asarray(found), np.asarray(left), sum(e.balls for e in errors))

    def _accuracy(
        self,
        request: SelectionRequest,
        ensemble: Sequence[int],
        oracle: Oracle,
        ledger: Ledger,
        progress: Progress,
    ) -> tuple[RobustAccuracy, ...]:
        if not request.test:
            return ()
        members = [request.networks[m] for m in ensemble]
        data = request.test_data or request.data
        stop = _deadline(self.options.seconds)
        found = []
        for k, epsilon in enumerate(request.epsilons):
            progress(k, len(request.epsilons), f"robust accuracy at {epsilon:g}")
            references = make_references(data, request.test, epsilon, math.inf, request.clip)
            found.append(robust_accuracy(members, references, oracle, ledger, stop))
        return tuple(found)


def _deadline(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
