"""What a user may set of the verifiers `crown` and `smooth`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CrownOptions:
    """`split`: what to branch on; `none` is the incomplete mode. `batch`: boxes or subproblems bounded together; 0:
    as many as suit the network. `iterations`: gradient steps of a subproblem; fewer bound more of them, each more
    loosely. `steps`: of every neuron's own slopes at the root. `memory`: bytes for a pass, and for a certificate.

    `certificate`: a file for what proves the end of a search on neurons, see `certificate.check`. `trace`: a folder
    for the trees of searches that proved something, of which certificates are made.
    """

    split: Literal["auto", "input", "neuron", "none"] = "auto"
    batch: int = 0
    iterations: int = 12
    steps: int = 10
    memory: int = 1 << 30
    certificate: str = ""
    trace: str = ""


@dataclass(frozen=True)
class SmoothOptions:
    """`steps`: gradient steps on the lines of every neuron's own bounds; `iterations`: on those of a piece. Twice the
    steps of `crown`, because bounds at the root decide most of these problems.

    `batch`: pieces bounded together; 0: as many as suit the network.
    """

    steps: int = 20
    iterations: int = 10
    batch: int = 0
