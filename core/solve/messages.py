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
    """Message: a line of progress."""

    text: str
