"""HiGHS behind the solver interface, and a hot-started linear program for bounds and branching."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np

from verifolio.encode.highs import as_highs, new_solver, run
from verifolio.encode.model import Array, Model
from verifolio.run.budget import Budget

from .solver import SolveResult, SolverSettings, SolveStatus, Watch

LEAST_TOLERANCE = 1e-10  # the smallest that HiGHS accepts
# seconds within which a cancellation is noticed; every slice costs a restart from the last basis
SLICE = 0.25


def load(model: Model, settings: SolverSettings, presolve: bool) -> Any:
    """A HiGHS object holding the model."""
    solver = new_solver(settings.threads)
    solver.setOptionValue("random_seed", settings.seed % (2**31 - 1))
    solver.setOptionValue("presolve", "choose" if presolve else "off")
    tolerance = max(settings.tolerance, LEAST_TOLERANCE)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance"):
        solver.setOptionValue(name, tolerance)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", tolerance)
    if np.isfinite(settings.seconds):
        solver.setOptionValue("time_limit", max(settings.seconds, 0.0))
    solver.passModel(as_highs(model))
    return solver


class Highs:
    """The default solver: free, and in the wheel."""

    name = "highs"

    def refuses(self, model: Model) -> str | None:
        return None

    def solve(self, model: Model, settings: SolverSettings, watch: Watch) -> SolveResult:
        solver = load(model, settings, presolve=True)
        best: list[tuple[float, Array]] = []

        def improving(event: Any) -> None:
            point = np.array(event.data_out.mip_solution, np.float64)
            objective = float(event.data_out.objective_function_value)
            best[:] = [(objective, point)]
            if watch.incumbent(point, objective):
                stopped.append(True)

        def interrupt(event: Any) -> None:
            bound = float(getattr(event.data_out, "mip_dual_bound", -np.inf))
            if stopped or watch.tick(bound):
                stopped.append(True)
                event.interrupt()

        def simplex(event: Any) -> None:
            if stopped or watch.tick(-np.inf):
                stopped.append(True)
                event.interrupt()

        stopped: list[bool] = []
        solver.cbMipImprovingSolution.subscribe(improving)
        solver.cbMipInterrupt.subscribe(interrupt)
        solver.cbSimplexInterrupt.subscribe(simplex)
        run(solver)
        return _result(solver, best, bool(stopped))


def _result(solver: Any, best: list[tuple[float, Array]], stopped: bool) -> SolveResult:
    status = solver.getModelStatus()
    info = solver.getInfo()
    kinds = highspy.HighsModelStatus
    nodes = int(info.mip_node_count)
    if status == kinds.kInfeasible:
        return SolveResult(SolveStatus.INFEASIBLE, float("inf"), nodes=nodes)
    bound = float(info.mip_dual_bound)
    if not np.isfinite(bound):
        bound = -np.inf
    objective, point = best[0] if best else (float("inf"), None)
    if status == kinds.kOptimal:
        point = np.array(solver.getSolution().col_value, np.float64)
        objective = float(info.objective_function_value)
        return SolveResult(SolveStatus.OPTIMAL, min(bound, objective), objective, point, nodes)
    ended = stopped or status in (kinds.kTimeLimit, kinds.kInterrupt)
    message = "" if ended else solver.modelStatusToString(status)
    return SolveResult(
        SolveStatus.STOPPED if ended else SolveStatus.FAILED, bound, objective, point, nodes, message
    )


@dataclass(frozen=True, eq=False)
class LpResult:
    """`duals` belong to an optimum or to a bound above the cutoff, `ray` proves infeasibility.

    Either may be missing; `point` is an optimum's.
    """

    status: SolveStatus
    objective: float = float("nan")
    point: Array | None = None
    duals: Array | None = None
    ray: Array | None = None


class Lp:
    """The relaxation of a model, solved again and again with other bounds or costs.

    `cutoff`: stop as soon as the dual objective exceeds it, which spares most of the work of closed branches.
    """

    def __init__(
        self,
        model: Model,
        settings: SolverSettings,
        budget: Budget | None = None,
        cutoff: float | None = None,
    ) -> None:
        self.model = model.relaxed()
        self._budget = budget if budget is not None else Budget()
        self._solver = load(self.model, replace(settings, seconds=float("inf")), presolve=False)
        self._cutoff = np.inf
        if cutoff is not None:
            self.set_cutoff(cutoff)

    def set_cutoff(self, cutoff: float) -> None:
        if cutoff != self._cutoff:
            self._cutoff = cutoff
            self._solver.setOptionValue("objective_bound", cutoff)

    def set_bounds(self, lower: Array, upper: Array) -> None:
        """Change the bounds of all columns that differ."""
        changed = np.flatnonzero((lower != self.model.lower) | (upper != self.model.upper))
        if len(changed):
            columns = changed.astype(np.int32)
            self._solver.changeColsBounds(len(columns), columns, lower[changed], upper[changed])
            self.model = replace(self.model, lower=lower, upper=upper)

    def set_cost(self, cost: Array) -> None:
        columns = np.arange(len(cost), dtype=np.int32)
        self._solver.changeColsCost(len(cost), columns, cost)
        self.model = self.model.minimising(cost)

    def solve(self, seconds: float = float("inf")) -> LpResult:
        """Solve from the last basis, in slices of time, so that a cancelled budget is noticed."""
        solver, limit = self._solver, highspy.HighsModelStatus.kTimeLimit
        part = self._budget.share(seconds)
        while True:
            # HiGHS adds up the time of all runs of one object
            solver.setOptionValue("time_limit", solver.getRunTime() + max(min(part.remaining, SLICE), 1e-3))
            run(solver)
            status = solver.getModelStatus()
            if status != limit or part.expired():
                return self._read(status)

    def _read(self, status: Any) -> LpResult:
        kinds = highspy.HighsModelStatus
        found = self._solver.getSolution()
        objective = float(self._solver.getInfo().objective_function_value)
        duals = np.array(found.row_dual, np.float64) if found.dual_valid else None
        if status == kinds.kOptimal:
            return LpResult(SolveStatus.OPTIMAL, objective, np.array(found.col_value, np.float64), duals)
        if status == kinds.kObjectiveBound:
            return LpResult(SolveStatus.ABOVE, objective, duals=duals)
        if status == kinds.kInfeasible:
            return LpResult(SolveStatus.INFEASIBLE, objective, duals=duals, ray=self._ray())
        ended = status in (kinds.kTimeLimit, kinds.kInterrupt)
        return LpResult(SolveStatus.STOPPED if ended else SolveStatus.FAILED)

    def _ray(self) -> Array | None:
        answer = self._solver.getDualRay()
        if len(answer) < 3 or not answer[1] or answer[2] is None:
            return None
        ray = np.array(answer[2], np.float64)
        return ray if len(ray) == self.model.rows else None
