"""A slow and plain implementation of bound propagation, against which every optimised path is compared.

Loops over the graph, numpy in float64, every rounding error charged where it arises. It shares no code with the
plugins that it checks.
"""

from verifolio.testing.reference.affine import Map, affine_map
from verifolio.testing.reference.attained import attained
from verifolio.testing.reference.bounds import Bound, Bounded, Reference
from verifolio.testing.reference.lines import Lines, default_slopes, enclosing_lines
from verifolio.testing.reference.quadratic import Polynomial, quadratic_rows
from verifolio.testing.reference.sets import shrunk_box
from verifolio.testing.reference.zonotope import zonotope_intervals

__all__ = [
    "Bound",
    "Bounded",
    "Lines",
    "Map",
    "Polynomial",
    "Reference",
    "affine_map",
    "attained",
    "default_slopes",
    "enclosing_lines",
    "quadratic_rows",
    "shrunk_box",
    "zonotope_intervals",
]
