"""The estimator `ensemble-selection`: members that rarely err together (Amir et al. 2022)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.estimator import Claim, Estimator, OracleLike, Progress, silent
from verifolio.plugin.property import Reference

from .accuracy import RobustAccuracy, robust_accuracies
from .balls import Balls
from .fewest import Fewest, fewest_errors
from .joint import JointOptions
from .ledger import EnsembleLedger
from .scores import Interval, MutualErrors, Swap, add_up, replace_members
from .spot import Spot, make_references
from .survey import Survey

LEAST_TOGETHER = 50  # points that are replayed in one job while agreement is looked for
How = Literal["verify", "attack"]


@dataclass(frozen=True)
class SelectionOptions:
    """How to search.

    method: `verify` proves or refutes every mutual error, `attack` only attacks. iterations: replacements
    at most. seconds: for the mutual errors and again for the accuracies. proved_only: replace only where
    intervals do not overlap. reverse: replace the best member by the worst candidate. rank: the epsilon
    whose balls count (None: all). together: how many networks must err at one point. keep: a folder for VNN-LIB
    files. store: a file that remembers every answer.
    """

    method: How = "verify"
    iterations: int = 20
    seconds: float = math.inf
    proved_only: bool = False
    reverse: bool = False
    rank: float | None = None
    together: int = 2
    joint: JointOptions = field(default_factory=JointOptions)
    keep: str = ""
    store: str = ""


@dataclass(frozen=True, eq=False)
class SelectionRequest:
    """Candidates, data in which to look for agreement points, radii, and the first ensemble.

    `limits` are the legal values of inputs. `test` are the positions of the points (of `test_data`) at which whole
    ensembles are verified.
    """

    networks: tuple[Network, ...]
    data: Dataset
    epsilons: tuple[float, ...]
    start: tuple[int, ...]
    points: int = 200
    label: int | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)
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
    accuracies of the whole ensembles (averaged outputs) for each radius. `fewest` is an ensemble of the same size
    with the fewest mutual errors of all.
    """

    points: tuple[int, ...]
    by_epsilon: tuple[MutualErrors, ...]
    errors: MutualErrors
    start: tuple[int, ...]
    final: tuple[int, ...]
    scores: tuple[Interval, ...]
    final_scores: tuple[Interval, ...]
    swaps: tuple[Swap, ...]
    fewest: Fewest
    before: tuple[RobustAccuracy, ...] = ()
    after: tuple[RobustAccuracy, ...] = ()
    seconds: float = 0.0
    stats: dict[str, Any] = field(default_factory=dict)


def agreement_points(
    networks: Sequence[Network], data: Dataset, count: int, oracle: OracleLike, label: int | None = None
) -> tuple[int, ...]:
    """The first points of the data that every network gives the right label, strictly; replayed in batches."""
    wanted = [i for i, y in enumerate(data.labels.tolist()) if y >= 0 and (label is None or y == label)]
    found: list[int] = []
    for start in range(0, len(wanted), max(count, LEAST_TOGETHER)):
        part = wanted[start : start + max(count, LEAST_TOGETHER)]
        spots = [Spot(r) for r in make_references(data, part, 0.0)]
        survey = Survey(networks, spots, oracle)
        found += [i for k, i in enumerate(part) if survey.clean(k)[0] == 0]
        if len(found) >= count:
            break
    found = found[:count]
    if not found:
        raise InputError(f"{data.name}:{data.split}", "points that all networks classify correctly", "none")
    return tuple(found)


class EnsembleSelection(Estimator):
    """Mutual errors of all pairs, uniqueness scores, and iterative replacement."""

    name = "ensemble-selection"
    Options: ClassVar[type] = SelectionOptions
    Request: ClassVar[type] = SelectionRequest
    options: SelectionOptions

    def run(
        self, request: SelectionRequest, oracle: OracleLike, progress: Progress = silent
    ) -> SelectionResult:
        started = time.monotonic()
        self._check(request)
        ledger = EnsembleLedger(self.options.store or None)
        try:
            points = agreement_points(request.networks, request.data, request.points, oracle, request.label)
            balls = self._survey(request, points, oracle, ledger)
            if self.options.method == "verify":
                balls.decide(progress)
            else:
                balls.try_attack()
            by_epsilon = tuple(balls.errors(e) for e in range(len(request.epsilons)))
            errors = self._ranking(request.epsilons, by_epsilon)
            options = self.options
            swaps = replace_members(
                errors, request.start, options.iterations, options.reverse, options.proved_only
            )
            final = swaps[-1].ensemble if swaps else request.start
            ends = (request.start, final)
            curves = {e: self._accuracy(request, e, oracle, ledger, progress) for e in dict.fromkeys(ends)}
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
            fewest_errors(errors, len(request.start)),
            curves[ends[0]],
            curves[ends[1]],
            seconds,
            stats,
        )

    @classmethod
    def about_labels(
        cls, networks: Sequence[Network], reference: Reference, seconds: float
    ) -> tuple[Self, SelectionRequest] | None:
        """Boxes without a range, around a point that all networks get right."""
        x = np.asarray(reference.x, np.float64).reshape(1, -1)
        bounded = bool(np.isfinite(reference.lower).any() or np.isfinite(reference.upper).any())
        wrong = any(int(n.replay(x[0].astype(np.float32)).argmax()) != reference.label for n in networks)
        if len(networks) < 2 or wrong or bounded or not math.isinf(reference.norm):
            return None
        labels = np.array([reference.label])
        data = Dataset("one", "all", x, labels, (x.shape[1],), networks[0].output_size)
        start = tuple(range(len(networks)))
        request = SelectionRequest(
            tuple(networks), data, (reference.epsilon,), start, 1, test_data=data, test=(0,)
        )
        return cls(SelectionOptions(seconds=seconds)), request

    def claims(self, request: SelectionRequest, result: SelectionResult) -> tuple[Claim, ...]:
        """Pairs without a mutual error, and the average of all where it is robust; for one point and radius."""
        (radius,), count = request.epsilons, len(request.networks)
        pairs = [p for p in combinations(range(count), 2) if not any(result.errors.counts(p))]
        found = [Claim(radius, tuple(Fraction(k in p) for k in range(count)), Fraction(1)) for p in pairs]
        if result.before and result.before[0].robust:
            found.append(Claim(radius, (Fraction(1),) * count, averaged=True))
        return tuple(found)

    def _survey(
        self, request: SelectionRequest, points: Sequence[int], oracle: OracleLike, ledger: EnsembleLedger
    ) -> Balls:
        spots = [
            Spot(r)
            for e in request.epsilons
            for r in make_references(request.data, points, e, math.inf, request.limits)
        ]
        keep = Path(self.options.keep) if self.options.keep else None
        survey = Survey(
            request.networks,
            spots,
            oracle,
            ledger if self.options.method == "verify" else EnsembleLedger(),
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
        oracle: OracleLike,
        ledger: EnsembleLedger,
        progress: Progress,
    ) -> tuple[RobustAccuracy, ...]:
        if not request.test:
            return ()
        members = [request.networks[m] for m in ensemble]
        data = request.test_data or request.data
        references = [
            make_references(data, request.test, e, math.inf, request.limits) for e in request.epsilons
        ]
        left = _deadline(self.options.seconds)
        return robust_accuracies(members, references, oracle, ledger, left, progress)


def _deadline(seconds: float) -> Callable[[], float]:
    """How many seconds are left from now on."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()
