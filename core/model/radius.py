"""Critical radii of inputs: what is known before a look at them, and after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Witness
from verifolio.model.neighbourhood import Neighbourhood


@dataclass(frozen=True, eq=False)
class RadiusStart:
    """An input and what is known about it: `lower` is proved, `upper` has a witness or is where to look."""

    around: Neighbourhood
    lower: float
    upper: float
    seed: int = 0
    witness: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class RadiusBounds:
    """No counterexample within `lower`, `witness` is the closest found, `unstable` neurons have no sign.

    `finder` attacked and `prover` bounded; "" where the portfolio has nobody who can.
    """

    lower: float
    witness: Witness | None = None
    unstable: int | None = None
    reason: str = ""
    finder: str = ""
    prover: str = ""
    seconds: float = 0.0
