"""Linear relaxations of the nonlinear operators, one file each; a new operator registers in `relaxation`."""

from __future__ import annotations

import math

from verifolio.graph import Elementwise, Op, Product, Relu, Step, Whole
from verifolio.plugins.crown.propagate.relax.base import Lines, Relaxation
from verifolio.plugins.crown.propagate.relax.product import ProductRelaxation
from verifolio.plugins.crown.propagate.relax.relu import ReluRelaxation
from verifolio.plugins.crown.propagate.relax.smooth import SmoothRelaxation
from verifolio.plugins.crown.propagate.relax.step import StepRelaxation, UnknownRelaxation

__all__ = ["Lines", "Relaxation", "relaxation"]


def relaxation(op: Op) -> Relaxation | None:
    """The relaxation of a nonlinear operator, or None for an affine one."""
    if isinstance(op, Relu):
        return ReluRelaxation()
    if isinstance(op, Elementwise):
        return SmoothRelaxation(op.function, op.parameter)
    if isinstance(op, Product):
        return ProductRelaxation()
    if isinstance(op, Step):
        levels = [*op.levels, *op.at]
        return StepRelaxation(op) if op.settled else UnknownRelaxation(min(levels), max(levels))
    if isinstance(op, Whole):
        return UnknownRelaxation(-math.inf, math.inf)
    return None
