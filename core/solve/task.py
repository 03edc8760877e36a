"""The task of one attempt: all that a worker needs to run one verifier on one query."""

from __future__ import annotations

from dataclasses import dataclass, field

from verifolio.model.query import Query
from verifolio.plugin.choice import Choice
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.verifier import Verifier


@dataclass(frozen=True)
class AttemptTask:
    """Everything a worker needs; small, because networks travel as path and hash.

    An `early` one is for a worker that may not have imported torch, and is refused where the network needs it.
    """

    query: Query
    verifier: Choice | Verifier
    evidence: Evidence = field(default_factory=Evidence)
    seed: int = 0
    memory: int | None = None
    cores: int = 1
    device: str = "cpu"
    early: bool = False
