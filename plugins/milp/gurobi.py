"""Gurobi behind the solver interface; its free licence takes models of up to 2000 columns and rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import gurobipy as gp
import numpy as np

from verifolio.encode.model import Array, Model

from .solver import SolveResult, SolverSettings, SolveStatus, Watch

FREE_SIZE = 2000  # columns and rows that the licence in gurobipy's wheel allows
LEAST_TOLERANCE = 1e-9  # the smallest that Gurobi accepts


def _environment() -> Any:
    environment = gp.Env(empty=True)
    environment.setParam("OutputFlag", 0)
    environment.start()
    return environment


@cache
def licence_problem() -> str | None:
    """Why Gurobi cannot start here (no licence, expired), or None."""
    try:
        with _environment():
            return None
    except gp.GurobiError as error:
        return str(error)


@cache
def _size_limit() -> str | None:
    """Why a model beyond the free size is not taken, found by trying one, or None."""
    try:
        with _environment() as environment, gp.Model(env=environment) as model:
            model.addMVar(FREE_SIZE + 1)
            model.optimize()
            return None
    except gp.GurobiError as error:
        return str(error)


class Gurobi:
    """Used where gurobipy is installed and its licence fits."""

    name = "gurobi"

    def refuses(self, model: Model) -> str | None:
        small = model.columns <= FREE_SIZE and model.rows <= FREE_SIZE
        return None if small else _size_limit()

    def solve(self, model: Model, settings: SolverSettings, watch: Watch) -> SolveResult:
        try:
            with _environment() as environment, gp.Model(env=environment) as solver:
                _load(solver, model, settings)
                return _solve(solver, watch)
        except gp.GurobiError as error:
            return SolveResult(SolveStatus.FAILED, -np.inf, message=str(error))


def _load(solver: Any, model: Model, settings: SolverSettings) -> None:
    tolerance = max(settings.tolerance, LEAST_TOLERANCE)
    for name in ("FeasibilityTol", "OptimalityTol", "IntFeasTol"):
        solver.setParam(name, tolerance)
    solver.setParam("MIPGap", 0.0)
    solver.setParam("MIPGapAbs", tolerance)
    solver.setParam("NumericFocus", 2)
    solver.setParam("Threads", max(settings.threads, 1))
    solver.setParam("Seed", settings.seed % 2_000_000_000)
    # without this, an infeasible model may be reported as "infeasible or unbounded"
    solver.setParam("DualReductions", 0)
    if np.isfinite(settings.seconds):
        solver.setParam("TimeLimit", max(settings.seconds, 0.0))
    kinds = np.where(model.integer, "B", "C")
    v = solver.addMVar(model.columns, lb=model.lower, ub=model.upper, obj=model.cost, vtype=kinds)
    for side, sign in ((model.row_upper, 1.0), (model.row_lower, -1.0)):
        rows = np.flatnonzero(np.isfinite(side))
        if len(rows):
            solver.addMConstr(sign * model.matrix[rows], v, "<", sign * side[rows])


def _solve(solver: Any, watch: Watch) -> SolveResult:
    best: list[tuple[float, Array]] = []
    codes = gp.GRB.Callback

    def called(inner: Any, where: int) -> None:
        bound = -np.inf
        stop = False
        if where == codes.MIPSOL:
            objective = float(inner.cbGet(codes.MIPSOL_OBJ))
            point = np.array(inner.cbGetSolution(inner.getVars()), np.float64)
            best[:] = [(objective, point)]
            stop = watch.incumbent(point, objective)
        elif where == codes.MIP:
            bound = float(inner.cbGet(codes.MIP_OBJBND))
        if watch.tick(bound) or stop:
            inner.terminate()

    solver.optimize(called)
    return _result(solver, best)


def _result(solver: Any, best: list[tuple[float, Array]]) -> SolveResult:
    codes = gp.GRB
    nodes = int(solver.NodeCount)
    if solver.SolveStatus == codes.INFEASIBLE:
        return SolveResult(SolveStatus.INFEASIBLE, np.inf, nodes=nodes)
    objective, point = best[0] if best else (np.inf, None)
    bound = float(solver.ObjBound)
    if solver.SolveStatus == codes.OPTIMAL:
        point = np.array(solver.getAttr("X", solver.getVars()), np.float64)
        return SolveResult(SolveStatus.OPTIMAL, bound, float(solver.ObjVal), point, nodes)
    ended = solver.SolveStatus in (codes.INTERRUPTED, codes.TIME_LIMIT)
    message = "" if ended else f"Gurobi status {solver.SolveStatus}"
    return SolveResult(
        SolveStatus.STOPPED if ended else SolveStatus.FAILED, bound, objective, point, nodes, message
    )
