"""The small interface behind which MILP solvers stand: one model in, a bound and incumbents out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verifolio.encode.model import Model

Array = NDArray[np.float64]


class SolveStatus(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    ABOVE = "above its cutoff"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class SolverSettings:
    """Tolerances, threads and the clock of one solve."""

    tolerance: float = 1e-7  # of feasibility: HiGHS's default; what it says is proved or replayed by others
    threads: int = 1
    seconds: float = float("inf")
    seed: int = 0


@dataclass(frozen=True)
class Watch:
    """What the caller wants to hear; a True answer stops the solver.

    `incumbent(point, objective)` sees every improving solution, `tick(bound)` is called often with the best
    dual bound so far (-inf at first).
    """

    incumbent: Callable[[Array, float], bool]
    tick: Callable[[float], bool]


@dataclass(frozen=True, eq=False)
class SolveResult:
    """`bound` is the solver's own claim about the optimum, valid up to its tolerances."""

    status: SolveStatus
    bound: float
    objective: float = float("inf")
    point: Array | None = None
    nodes: int = 0
    message: str = ""


class Solver(Protocol):
    """A MILP solver."""

    name: str

    def refuses(self, model: Model) -> str | None:
        """Why this model is out of its reach (a licence's size limit, say), or None."""

    def solve(self, model: Model, settings: SolverSettings, watch: Watch) -> SolveResult:
        """Minimise; never raises for a model that is merely hard."""
