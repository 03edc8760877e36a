"""HiGHS and our models: one way to hand a model over, and one way to run it whatever ran before."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from verifolio.encode.model import Model


def new_solver(threads: int) -> Any:
    """A silent HiGHS object."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", max(threads, 1))
    return solver


def as_highs(model: Model) -> Any:
    """The model as HiGHS reads it."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.columns, model.rows
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = model.columns, model.rows
    lp.a_matrix_.start_ = model.matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = model.matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = model.matrix.data
    if model.integer.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(i)] for i in model.integer]
    return lp


def run(solver: Any) -> None:
    """Solve. HiGHS has one pool of threads per process and fails where another number was used before."""
    if solver.run() == highspy.HighsStatus.kError:
        highspy.Highs.resetGlobalScheduler(True)
        solver.run()
