"""One mixed-integer program in, a solution and a bound out, by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import highspy
import numpy as np
from numpy.typing import NDArray

from verifolio.encode.highs import as_highs, new_solver, run
from verifolio.encode.model import Model

Array = NDArray[np.float64]


class Ending(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"


@dataclass(frozen=True, eq=False)
class Solution:
    """`point` is the best found, if any; `bound` is the solver's claim about what cannot be undercut."""

    ending: Ending
    point: Array | None
    objective: float
    bound: float


def minimise(model: Model, seconds: float, threads: int = 1) -> Solution:
    """The least cost, as far as the time allows."""
    solver = new_solver(threads)
    solver.setOptionValue("mip_rel_gap", 0.0)
    # tolerances stay HiGHS's own: with 1e-8 its presolve has called programs infeasible that have solutions
    if np.isfinite(seconds):
        solver.setOptionValue("time_limit", max(seconds, 0.1))
    solver.passModel(as_highs(model))
    run(solver)
    info, status = solver.getInfo(), solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solution(Ending.INFEASIBLE, None, np.inf, np.inf)
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    point = np.array(solver.getSolution().col_value, np.float64) if found else None
    done = status == highspy.HighsModelStatus.kOptimal
    objective = float(info.objective_function_value) if found else np.inf
    bound = float(info.mip_dual_bound) if model.integer.any() else objective
    return Solution(Ending.OPTIMAL if done else Ending.STOPPED, point, objective, bound)
