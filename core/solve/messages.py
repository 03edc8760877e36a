"""What a worker tells the driver while it works: replayed counterexamples and progress."""

from __future__ import annotations

from dataclasses import dataclass

from verifolio.model.answer import Witness


@dataclass(frozen=True)
class Found:
    """Message: a replayed counterexample; its exact evaluation may still be missing.

    `claimed`: its finder had claimed a proof, which the witness refutes.
    """

    witness: Witness
    claimed: bool = False


@dataclass(frozen=True)
class Note:
    """Message: a line for people; a warning is for everybody."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Hit(Found):
    """Message: a replayed counterexample to question number `entry` of a batch."""

    entry: int = 0


@dataclass(frozen=True)
class Margin:
    """Message: question number `entry` is at least this far from a counterexample; a positive margin is a proof."""

    entry: int
    value: float


@dataclass(frozen=True)
class FalseProof(Found):
    """Message: `prover` claimed question number `entry` (within `radius`), and the witness refutes it."""

    entry: int = 0
    prover: str = ""
    radius: float = 0.0


@dataclass(frozen=True)
class ProvedRadius:
    """Message: bounds alone prove this radius around input number `entry`."""

    entry: int
    radius: float
