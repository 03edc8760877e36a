"""Linear relaxations of the nonlinear operators, one file each; a new operator registers in `relaxation`."""

from __future__ import annotations

from verifolio.graph import Elementwise, Op, Product, Relu
from verifolio.plugins.crown.propagate.relax.base import Lines, Relaxation
from verifolio.plugins.crown.propagate.relax.product import ProductRelaxation
from verifolio.plugins.crown.propagate.relax.relu import ReluRelaxation
from verifolio.plugins.crown.propagate.relax.smooth import SmoothRelaxation

__all__ = ["Lines", "Relaxation", "relaxation"]


def relaxation(op: Op) -> Relaxation | None:
    """The relaxation of a nonlinear operator, or None for an affine one."""
    if isinstance(op, Relu):
        return ReluRelaxation()
    if isinstance(op, Elementwise):
        return SmoothRelaxation(op.function, op.parameter)
    if isinstance(op, Product):
        return ProductRelaxation()
    return None
