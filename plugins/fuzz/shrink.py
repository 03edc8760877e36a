"""Make a problem smaller while a finding stays: fewer disjuncts, rows, cuts, neurons, free inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Dense, Graph, Node, Relu
from verifolio.model.problem import Domain, Problem
from verifolio.run.budget import Budget
from verifolio.vnnlib import make_rows

T = TypeVar("T")
Keeps = Callable[[Problem], bool]


def shrink(problem: Problem, keeps: Keeps, budget: Budget) -> Problem:
    """Greedy: take any smaller problem for which `keeps` holds, until none is left or time is up."""
    improved = True
    while improved and not budget.expired():
        improved = False
        for smaller in candidates(problem):
            if budget.expired():
                break
            if keeps(smaller):
                problem, improved = smaller, True
                break
    return problem


def candidates(problem: Problem) -> Iterator[Problem]:
    """Smaller problems, the boldest steps first."""
    for groups in _fewer(problem.disjuncts):
        yield replace(problem, disjuncts=groups)
    for d, rows in enumerate(problem.disjuncts):
        for kept in _fewer(tuple(rows.linear_rows())):
            shorter = make_rows([(dict(r.terms), r.rhs) for r in kept])
            yield replace(problem, disjuncts=(*problem.disjuncts[:d], shorter, *problem.disjuncts[d + 1 :]))
    domain = problem.domain
    if domain.rows is not None and domain.rows.count:
        yield problem.with_domain(replace(domain, rows=None))
    for graph in _fewer_neurons(problem.graph):
        yield replace(problem, graph=graph)
    yield from _pinned(problem)


def _fewer(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Both halves, then all but one, never none."""
    count = len(items)
    if count < 2:
        return
    yield items[: count // 2]
    yield items[count // 2 :]
    if count > 2:
        for k in range(count):
            yield (*items[:k], *items[k + 1 :])


def _fewer_neurons(graph: Graph) -> Iterator[Graph]:
    """Without half of a layer's neurons, or without one of them."""
    for relu in graph.relus:
        size = graph.nodes[relu].op.size
        for kept in _fewer(tuple(range(size))):
            smaller = without_neurons(graph, relu, np.setdiff1d(np.arange(size), kept))
            if smaller is not None:
                yield smaller


def without_neurons(graph: Graph, relu: int, drop: NDArray[np.int64]) -> Graph | None:
    """Remove neurons of a ReLU between dense layers; elsewhere silence them, None if they are silent."""
    parent = graph.nodes[relu].parents[0]
    before = graph.nodes[parent].op
    if not isinstance(before, Dense):
        return None
    users = [i for i, n in enumerate(graph.nodes) if relu in n.parents]
    alone = [i for i, n in enumerate(graph.nodes) if parent in n.parents] == [relu]
    nodes = list(graph.nodes)
    keep = np.setdiff1d(np.arange(before.size), drop)
    if alone and relu != graph.output and all(isinstance(nodes[u].op, Dense) for u in users):
        smaller = Dense(len(keep), before.bias[keep], before.weight[keep])
        nodes[parent] = replace(nodes[parent], op=smaller)
        nodes[relu] = replace(nodes[relu], op=Relu(len(keep)))
        for u in users:
            nodes[u] = _without_columns(nodes[u], keep)
        return Graph(tuple(nodes), graph.output)
    if not (before.weight[drop].any() or before.bias[drop].any()):
        return None
    mask = np.isin(np.arange(before.size), keep).astype(np.float64)
    silenced = Dense(before.size, before.bias * mask, before.weight * mask[:, None])
    nodes[parent] = replace(nodes[parent], op=silenced)
    return Graph(tuple(nodes), graph.output)


def _without_columns(node: Node, keep: NDArray[np.int64]) -> Node:
    op = node.op
    if not isinstance(op, Dense):
        raise TypeError(f"expected a dense layer, got {type(op).__name__}")
    return replace(node, op=Dense(op.size, op.bias, op.weight[:, keep]))


def _pinned(problem: Problem) -> Iterator[Problem]:
    """With one more input fixed to the middle of its interval."""
    domain: Domain = problem.domain
    for k in np.flatnonzero(domain.lower < domain.upper):
        middle = float(np.float32((domain.lower[k] + domain.upper[k]) / 2))
        lower, upper = domain.lower.copy(), domain.upper.copy()
        lower[k] = upper[k] = middle
        yield problem.with_domain(replace(domain, lower=lower, upper=upper))
