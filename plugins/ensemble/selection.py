"""The estimator `ensemble-selection`: members that rarely err together (Amir et al. 2022)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.estimator import Estimator, Progress, silent

from .accuracy import RobustAccuracy, robust_accuracies
from .balls import Balls
from .falsify import Plan
from .joint import JointOptions
from .ledger import Ledger
from .replay import Referee, Spot, make_references
from .scores import Interval, MutualErrors, Swap, add_up, replace_members
from .survey import Survey

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle

How = Literal["verify", "ga1", "ga2", "ga3"]


@dataclass(frozen=True)
class SelectionOptions:
    """How to search.

    method: `verify` proves or refutes every mutual error, the others only attack. iterations: replacements
    at most. seconds: for the mutual errors and again for the accuracies. certified: replace only where
    intervals do not overlap. reverse: replace the best member by the worst candidate. rank: the epsilon
    whose balls count (None: all). together: how many networks must err at one point. keep: a folder for VNN-LIB
    files. store: a file that remembers every answer.
    """

    method: How = "verify"
    iterations: int = 20
    seconds: float = math.inf
    certified: bool = False
    reverse: bool = False
    rank: float | None = None
    together: int = 2
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


class EnsembleSelection(Estimator):
    """Mutual errors of all pairs, uniqueness scores, and iterative replacement."""

    name = "ensemble-selection"
    Options: ClassVar[type] = SelectionOptions
    Request: ClassVar[type] = SelectionRequest
    options: SelectionOptions

    def run(self, request: SelectionRequest, oracle: Oracle, progress: Progress = silent) -> SelectionResult:
        started = time.monotonic()
        self._check(request)
        ledger = Ledger(self.options.store or None)
        try:
            points = agreement_points(request.networks, request.data, request.points, request.label)
            balls = self._survey(request, points, oracle, ledger)
            if self.options.method == "verify":
                balls.decide(progress)
            else:
                balls.try_attack(self.options.method)
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
        return Balls(survey, len(points), len(request.epsilons), self.options.together)

    def _check(self, request: SelectionRequest) -> None:
        rank, together = self.options.rank, self.options.together
        if rank is not None and rank not in request.epsilons:
            raise InputError("rank", f"one of the radii {list(request.epsilons)}", str(rank))
        if not 2 <= together <= len(request.start):
            raise InputError("together", f"from 2 to the {len(request.start)} members", str(together))

    def _ranking(self, epsilons: Sequence[float], errors: Sequence[MutualErrors]) -> MutualErrors:
        """The mutual errors of one radius, or of all balls together."""
        if self.options.rank is not None:
            return errors[epsilons.index(self.options.rank)]
        return add_up(errors)

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
        references = [
            make_references(data, request.test, e, math.inf, request.clip) for e in request.epsilons
        ]
        stop = _deadline(self.options.seconds)
        return robust_accuracies(members, references, oracle, ledger, stop, progress)


def _deadline(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
