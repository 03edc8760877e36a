"""The compiled kernel for the boxes of a problem, where it applies; nothing here imports torch."""

from __future__ import annotations

from dataclasses import replace

from verifolio.model.problem import Problem
from verifolio.plugin.evidence import Bounds
from verifolio.plugins.crown.kernel.boxes import (
    KernelEngine,
    QuadraticEngine,
    kernel_applies,
    quadratics_apply,
)
from verifolio.plugins.crown.reduce.opposites import MergedOpposites, merge_opposites


def kernel_engine(
    problem: Problem, cores: int, known: Bounds | None = None, plain: bool = False
) -> KernelEngine | None:
    """The fastest kernel that bounds the problem's boxes, if there is one; `known` bounds hold on the whole domain.

    `plain`: boxes are closed by backward bounds of the graph as it is, which is what a certificate can repeat.
    """
    merged = MergedOpposites(problem.graph) if plain else merge_opposites(problem.graph)
    small = replace(problem, graph=merged.graph)
    if not kernel_applies(small):
        return None
    kernel = QuadraticEngine if quadratics_apply(small) and not plain else KernelEngine
    return kernel(small, cores, None if known is None else _carried(known, merged))


def _carried(known: Bounds, merged: MergedOpposites) -> Bounds:
    """Bounds of a graph's nodes as bounds of the nodes of the graph without opposite neurons."""
    ends = merged.carry(
        {i: (known.lower[i], known.upper[i]) for i in known.lower.keys() & known.upper.keys()}
    )
    lower, upper = ({i: pair[k] for i, pair in ends.items()} for k in (0, 1))
    return replace(known, lower=lower, upper=upper)
