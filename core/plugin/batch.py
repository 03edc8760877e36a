"""What core hands to a verifier that works on many questions at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Problem
from verifolio.run.budget import Budget

Array = NDArray[np.float64]


def _accept_nothing(_: int, __: Array) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class BatchContext:
    """What a batch ability may use, and how it tells what it found.

    `offer(k, x)` replays a point for question number k and says whether it is a counterexample: this is the only
    way to report one, and a search should go on when it is not. `starts` are points to begin with, by question.
    `effort` says how hard to try: 1 is a brief look, for thousands of questions.
    """

    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    device: str = "cpu"
    offer: Callable[[int, Array], bool] = _accept_nothing
    starts: Mapping[int, Sequence[Array]] = field(default_factory=dict)
    effort: int = 1


@dataclass(frozen=True, eq=False)
class Spot:
    """Where to look for the closest point: around `centre`, in the box of `problem`, in units of `scale`.

    `reach` is how far the search may go, `start` a known counterexample, `seed` makes the lanes' own noise, and
    `guess` is a radius to begin with.
    """

    problem: Problem
    centre: Array
    scale: Array
    reach: float
    start: NDArray[np.float32] | None = None
    seed: int = 0
    guess: float = 0.0
