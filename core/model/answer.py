"""Verdicts, what a verifier returns (Outcome) and what core tells the user (Answer)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Stats = Mapping[str, float | int | str]


class Verdict(StrEnum):
    """SAT: a counterexample exists. UNSAT: proved that none does. The rest: undecided, and why."""

    SAT = "sat"
    UNSAT = "unsat"
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    MEMOUT = "memout"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def decided(self) -> bool:
        return self in (Verdict.SAT, Verdict.UNSAT)


class Flag(StrEnum):
    """What a reader of an answer should know beyond the verdict."""

    INPUT_ULP = "input_ulp"  # an input interval contains no float32; the nearest one was used
    FLOAT_ONLY = "float_only"  # the rows hold in ONNX Runtime but not in exact arithmetic
    NUMERICAL = "numerical"  # members disagree within rounding error
    TIE = "tie"  # some row of the witness holds with equality
    UNCHECKED_EXACT = "unchecked_exact"  # rounding error too large to say what exact arithmetic would say
    FUSED = "fused"  # a step decides otherwise without ONNX Runtime's graph optimisations
    ALARM = "alarm"  # a member claimed a proof that this witness refutes in exact arithmetic
    EMPTY = "empty"  # no input can be a counterexample, whatever the network is
    INFERRED = "inferred"  # follows from a stored answer about a larger or smaller input set
    CERTIFIED = "certified"  # the independent checker has accepted what proves it


@dataclass(frozen=True, eq=False)
class Witness:
    """A replayed counterexample: float32 inputs and ONNX Runtime's outputs, flat and concatenated.

    The outputs are doubles where the network's are doubles or long integers.
    """

    x: NDArray[np.float32]
    y: NDArray[np.floating]
    margins: tuple[float, ...]
    flags: frozenset[Flag] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """What one verifier says about one problem. A point is only a claim: core replays it.

    `bound` is the best proved lower bound on how far the condition is from being reachable (negative:
    not yet proved); `distance` is the proved minimal distance of a closest counterexample, where asked.
    """

    verdict: Verdict
    point: NDArray[np.float64] | None = None
    reason: str = ""
    bound: float | None = None
    distance: float | None = None
    stats: Stats = field(default_factory=dict)

    @classmethod
    def proved(cls, **more: object) -> Outcome:
        return cls(Verdict.UNSAT, **more)  # type: ignore[arg-type]

    @classmethod
    def found(cls, point: NDArray[np.float64], **more: object) -> Outcome:
        return cls(Verdict.SAT, point=point, **more)  # type: ignore[arg-type]

    @classmethod
    def unknown(cls, reason: str, **more: object) -> Outcome:
        return cls(Verdict.UNKNOWN, reason=reason, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Answer:
    """The final word on one query, validated by core."""

    verdict: Verdict
    verifier: str = ""
    reason: str = ""
    witness: Witness | None = None
    flags: frozenset[Flag] = frozenset()
    seconds: float = 0.0
    bound: float | None = None
    stats: Stats = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    reused: bool = False  # served from memory or a store: its seconds were spent at another time


@dataclass(frozen=True)
class Attempt:
    """One member's try at a query, kept in the answer and in the store."""

    verifier: str
    verdict: Verdict
    reason: str
    seconds: float
    peak_memory: int = 0
    stats: Stats = field(default_factory=dict)
    log: str = ""
    refused: bool = False  # it did not want the query, in any form


@dataclass(frozen=True)
class Closest:
    """No counterexample is closer than `lower`, which is proved; `witness` is one at `distance`, if any."""

    lower: float
    distance: float
    witness: Witness | None
    verifier: str
    reason: str = ""
    seconds: float = 0.0
