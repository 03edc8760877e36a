"""A problem as Marabou's input query, one disjunct after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verifolio.answer import Outcome, Verdict
from verifolio.evidence import Bounds
from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.matrix import linear_part, offset
from verifolio.problem import Problem
from verifolio.verifier import Context
from verifolio.vnnlib import Rows

if TYPE_CHECKING:
    from .verifier import MarabouOptions

Array = NDArray[np.float64]


def decide(problem: Problem, context: Context, options: MarabouOptions) -> Outcome:
    """All disjuncts refuted, a point that replays, or why not."""
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.proved(reason="no input or no condition to satisfy")
    reason, bounds = "", known_bounds(problem, context)
    for number, rows in enumerate(problem.disjuncts):
        left = context.budget.remaining / (len(problem.disjuncts) - number)
        said, values = _solve(problem, rows, bounds, context, options, left)
        if said == "sat":
            point = np.array([values[k] for k in range(problem.graph.input_size)])
            point = np.clip(point, problem.domain.lower, problem.domain.upper)
            if context.check(point):
                return Outcome.found(point)
            reason = reason or "its point does not replay"
        elif said != "unsat":
            reason = reason or f"Marabou says {said}"
        if context.budget.expired():
            return Outcome(Verdict.TIMEOUT, reason=reason or "out of time")
    if reason:
        return Outcome.unknown(reason)
    if options.unsat != "trusted":
        return Outcome.unknown("says unsat, which is not trusted")
    return Outcome.proved()


def known_bounds(problem: Problem, context: Context) -> Bounds | None:
    """What other members found out about the neurons, and what the best bounder says."""
    known = context.evidence.bounds_for(problem)
    bounder = context.bounders.best(problem)
    if bounder is None:
        return known
    found = bounder.bound([problem], context.budget, known)[0]
    context.evidence.add_bounds(found)
    return found if known is None else found.intersect(known)


def _solve(
    problem: Problem,
    rows: Rows,
    bounds: Bounds | None,
    context: Context,
    options: MarabouOptions,
    seconds: float,
) -> tuple[str, dict[int, float]]:
    from maraboupy import MarabouCore as Core

    query = make_query(problem, rows, bounds, Core)
    settings = Core.Options()
    settings._verbosity = 0
    settings._timeoutInSeconds = max(1, int(min(seconds, 1e6)))
    settings._numBlasThreads = context.budget.cores
    settings._splittingStrategy = options.split
    settings._tighteningStrategy = options.tighten
    said, values, _ = Core.solve(query, settings, "")
    return str(said).lower(), dict(values)


def make_query(problem: Problem, rows: Rows, bounds: Bounds | None, core: Any) -> Any:
    """Variables of all nodes in order (inputs first), equations, ReLUs, and one disjunct's rows."""
    graph, domain = problem.graph, problem.domain
    starts = np.cumsum([0, *(n.op.size for n in graph.nodes)])
    query = core.InputQuery()
    query.setNumberOfVariables(int(starts[-1]))
    for k in range(graph.input_size):
        query.setLowerBound(k, float(domain.lower[k]))
        query.setUpperBound(k, float(domain.upper[k]))
        query.markInputVariable(k, k)
    for k in range(graph.output_size):
        query.markOutputVariable(int(starts[graph.output]) + k, k)
    _add_nodes(query, graph, starts, core)
    if bounds is not None:
        _add_bounds(query, bounds, starts)
    columns = [*range(graph.input_size), *(int(starts[graph.output]) + k for k in range(graph.output_size))]
    _add_rows(query, rows, columns, core)
    if domain.rows is not None:
        _add_rows(query, domain.rows, columns, core)
    return query


def _add_nodes(query: Any, graph: Graph, starts: NDArray[np.int64], core: Any) -> None:
    for i, node in enumerate(graph.nodes):
        own, parents = int(starts[i]), [int(starts[p]) for p in node.parents]
        if i == 0:
            continue
        if isinstance(node.op, Relu):
            for k in range(node.op.size):
                core.addReluConstraint(query, parents[0] + k, own + k)
                query.setLowerBound(own + k, 0.0)
        elif isinstance(node.op, Constant):
            for k, value in enumerate(node.op.value.tolist()):
                _add_equation(query, [(1.0, own + k)], value, core)
        else:
            sizes = tuple(graph.nodes[p].op.size for p in node.parents)
            _add_affine(query, linear_part(node.op, sizes), offset(node.op), own, parents, core)


def _add_bounds(query: Any, bounds: Bounds, starts: NDArray[np.int64]) -> None:
    for node in bounds.lower.keys() - {0}:
        for k, (low, high) in enumerate(zip(bounds.lower[node], bounds.upper[node], strict=True)):
            if np.isfinite(low) and np.isfinite(high):
                query.setLowerBound(int(starts[node]) + k, float(low))
                query.setUpperBound(int(starts[node]) + k, float(high))


def _add_affine(
    query: Any, matrices: Sequence[Any], constant: Array, own: int, parents: Sequence[int], core: Any
) -> None:
    """own + k = sum of matrix rows over the parents + constant."""
    for k in range(len(constant)):
        terms: dict[int, float] = {own + k: -1.0}
        for matrix, start in zip(matrices, parents, strict=True):
            begin, end = matrix.indptr[k], matrix.indptr[k + 1]
            for column, weight in zip(matrix.indices[begin:end], matrix.data[begin:end], strict=True):
                terms[start + int(column)] = terms.get(start + int(column), 0.0) + float(weight)
        _add_equation(query, [(w, v) for v, w in terms.items() if w], -float(constant[k]), core)


def _add_equation(query: Any, terms: Sequence[tuple[float, int]], scalar: float, core: Any) -> None:
    equation = core.Equation()
    for weight, variable in terms:
        equation.addAddend(weight, variable)
    equation.setScalar(scalar)
    query.addEquation(equation)


def _add_rows(query: Any, rows: Rows, columns: Sequence[int], core: Any) -> None:
    """Rows <= rhs; a row over one variable is a bound."""
    for r in range(rows.count):
        mine = np.flatnonzero(rows.row == r)
        terms = [(float(rows.coefficient[e]), columns[int(rows.column[e])]) for e in mine]
        equation = core.Equation(core.Equation.LE)
        for weight, variable in terms:
            equation.addAddend(weight, variable)
        equation.setScalar(float(rows.rhs[r]))
        query.addEquation(equation)
