"""What a user may set of the verifiers `crown` and `smooth`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verifolio.plugin.options import described


@dataclass(frozen=True)
class CrownOptions:
    """Options of `crown`."""

    split: Literal["auto", "input", "neuron", "none"] = described(
        "auto", "What to branch on; `none` is the incomplete mode."
    )
    batch: int = described(0, "Boxes or subproblems bounded together; 0: as many as suit the network.")
    iterations: int = described(
        12, "Gradient steps of a subproblem; fewer bound more of them, each more loosely."
    )
    steps: int = described(10, "Gradient steps on every neuron's own slopes at the root.")
    memory: int = described(1 << 30, "Bytes for a pass, and for a certificate.")
    trace: str = described(
        "", "A folder for the trees of searches that proved something, of which certificates are made."
    )


@dataclass(frozen=True)
class SmoothOptions:
    """Options of `smooth`. Twice the steps of `crown`, because bounds at the root decide most of these problems."""

    steps: int = described(20, "Gradient steps on the lines of every neuron's own bounds.")
    iterations: int = described(10, "Gradient steps on the lines of a piece.")
    batch: int = described(0, "Pieces bounded together; 0: as many as suit the network.")
