"""The estimator `ensemble-attack`: how well randomized attacks do against an ensemble, with certificates."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Self

from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import Claim, Estimator, OracleLike, Progress, silent
from verifolio.plugin.property import Reference

from .joint import JointOptions
from .lattice import members
from .ledger import EnsembleLedger
from .spot import Float32, Spot
from .survey import Survey


class Method(StrEnum):
    """How to look for the attack: the exact decomposition, one big program, or attacks on single networks."""

    DECOMPOSITION = "decomposition"
    MILP = "milp"
    MAXMILP = "maxmilp"
    MAXMIN = "maxmin"
    SMT = "smt"
    UNIFORM = "uniform"
    DETERMINISTIC = "deterministic"


class GameVerdict(StrEnum):
    """Robust: every randomized attack stays below alpha. Not robust: one reaches it."""

    ROBUST = "robust"
    NOT_ROBUST = "not-robust"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class AttackOptions:
    """How to search.

    method: see `Method`. attacks: number of deterministic attacks of the big programs (0: one per network).
    exact: go on after the verdict until the value is known. seconds: for everything; the oracle's timeout
    is per query. joint: how queries are written. keep: a folder for VNN-LIB files. store: a file that remembers
    every answer.
    """

    method: Method = Method.DECOMPOSITION
    attacks: int = 0
    exact: bool = False
    seconds: float = math.inf
    joint: JointOptions = field(default_factory=JointOptions)
    keep: str = ""
    store: str = ""


@dataclass(frozen=True, eq=False)
class AttackRequest:
    """The networks, the points they are attacked at, and the loss that would be too much (None: any)."""

    networks: tuple[Network, ...]
    references: tuple[Reference, ...]
    alpha: Fraction | None = None

    def __post_init__(self) -> None:
        if not self.networks or not self.references:
            raise InputError("ensemble attack", "at least one network and one point", "none")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise InputError("alpha", "a number from 0 to 1", str(self.alpha))


@dataclass(frozen=True, eq=False)
class DeterministicAttack:
    """One input per point, the set of networks each of them fools, and how likely the attack is."""

    probability: Fraction
    points: tuple[Float32, ...]
    patterns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The value of the game lies in [value_lower, value_upper]; `attacks` reach the former.

    `weights` over networks certify the latter: choosing networks so, no attack does better on average. That rests on
    `proofs` that at a point (its number) the networks of a set (a mask) cannot all be fooled by one input.
    """

    method: Method
    verdict: GameVerdict
    value_lower: Fraction
    value_upper: Fraction
    attacks: tuple[DeterministicAttack, ...]
    weights: tuple[Fraction, ...]
    reason: str = ""
    seconds: float = 0.0
    stats: dict[str, Any] = field(default_factory=dict)
    proofs: tuple[tuple[int, int], ...] = ()


def realised_value(attacks: Sequence[DeterministicAttack], networks: int) -> Fraction:
    """Val(A, P): the least expected share of fooled points over the networks, from replayed patterns."""
    totals = [Fraction(0)] * networks
    for attack in attacks:
        for pattern in attack.patterns:
            for c in members(pattern):
                totals[c] += attack.probability
    points = len(attacks[0].patterns) if attacks else 1
    return min(totals) / points


def judge_value(lower: Fraction, upper: Fraction, alpha: Fraction | None) -> GameVerdict:
    """The verdict from exact bounds; reaching alpha exactly is enough for an attack."""
    if alpha is None:
        return GameVerdict.UNKNOWN
    if lower >= alpha:
        return GameVerdict.NOT_ROBUST
    return GameVerdict.ROBUST if upper < alpha else GameVerdict.UNKNOWN


class EnsembleAttack(Estimator):
    """Randomized attacks on ensembles (Gross et al. 2020)."""

    name = "ensemble-attack"
    Options: ClassVar[type] = AttackOptions
    Request: ClassVar[type] = AttackRequest
    options: AttackOptions

    def run(self, request: AttackRequest, oracle: OracleLike, progress: Progress = silent) -> AttackResult:
        started = time.monotonic()
        deadline = started + self.options.seconds
        ledger = EnsembleLedger(self.options.store or None)
        try:
            survey = Survey(
                request.networks,
                [Spot(r) for r in request.references],
                oracle,
                ledger,
                self.options.joint,
                Path(self.options.keep) if self.options.keep else None,
                lambda: deadline - time.monotonic(),
            )
            result = self._run(survey, request, deadline, progress)
        finally:
            ledger.close()
        stats = asdict(survey.tally) | {"asked": dict(oracle.counts)} | result.stats
        seconds = time.monotonic() - started
        return AttackResult(
            result.method,
            result.verdict,
            result.value_lower,
            result.value_upper,
            result.attacks,
            result.weights,
            result.reason,
            seconds,
            stats,
            tuple((j, mask) for j, lattice in enumerate(survey.lattices) for mask in sorted(lattice.safe)),
        )

    @classmethod
    def about_labels(
        cls, networks: Sequence[Network], reference: Reference, seconds: float
    ) -> tuple[Self, AttackRequest] | None:
        return cls(AttackOptions(exact=True, seconds=seconds)), AttackRequest(tuple(networks), (reference,))

    def claims(self, request: AttackRequest, result: AttackResult) -> tuple[Claim, ...]:
        """With one point, what the weights certify on average holds at every input."""
        if len(request.references) != 1 or result.value_upper >= sum(result.weights):
            return ()
        return (Claim(request.references[0].epsilon, result.weights, result.value_upper),)

    def _run(
        self, survey: Survey, request: AttackRequest, deadline: float, progress: Progress
    ) -> AttackResult:
        method = self.options.method
        if method is Method.DECOMPOSITION:
            from .decompose import decompose

            return decompose(survey, request.alpha, self.options.exact, progress)
        if method in (Method.UNIFORM, Method.DETERMINISTIC):
            from .baselines import baseline

            return baseline(survey, request.alpha, method)
        count = self.options.attacks or len(request.networks)
        seconds = max(0.1, deadline - time.monotonic())
        if method is Method.SMT:
            from .monolith_smt import solve_smt

            return solve_smt(survey, request.alpha, count, seconds)
        from .monolith import solve_milp

        return solve_milp(survey, request.alpha, count, seconds, method)


def zero_attack(survey: Survey) -> DeterministicAttack:
    """The attack that changes nothing."""
    clean = [survey.clean(j) for j in range(len(survey.spots))]
    return DeterministicAttack(Fraction(1), tuple(x for _, x in clean), tuple(p for p, _ in clean))
