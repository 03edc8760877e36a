"""One mixed-integer program in, a solution and a bound out, by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from verifolio.encode.model import Model

Array = NDArray[np.float64]
TOLERANCE = 1e-8


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
    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", threads)
    solver.setOptionValue("mip_rel_gap", 0.0)
    for name in ("mip_feasibility_tolerance", "primal_feasibility_tolerance"):
        solver.setOptionValue(name, TOLERANCE)
    if np.isfinite(seconds):
        solver.setOptionValue("time_limit", max(seconds, 0.1))
    solver.passModel(_program(model))
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solution(Ending.INFEASIBLE, None, np.inf, np.inf)
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    point = np.array(solver.getSolution().col_value, np.float64) if found else None
    done = status == highspy.HighsModelStatus.kOptimal
    objective = float(info.objective_function_value) if found else np.inf
    bound = float(info.mip_dual_bound) if model.integer.any() else objective
    return Solution(Ending.OPTIMAL if done else Ending.STOPPED, point, objective, bound)


def _program(model: Model) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.columns, model.rows
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = model.matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = model.matrix.data
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(i)] for i in model.integer]
    return lp
