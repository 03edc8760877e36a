"""Graph: the small intermediate form of a network, and what can be computed from it."""

from verifolio.graph.graph import Graph, GraphBuilder, Node
from verifolio.graph.ops import (
    NONLINEAR,
    Affine,
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Input,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
)

__all__ = [
    "NONLINEAR",
    "Affine",
    "Concat",
    "Constant",
    "Conv",
    "Dense",
    "Elementwise",
    "Graph",
    "GraphBuilder",
    "Input",
    "Node",
    "Op",
    "Product",
    "Relu",
    "Scale",
    "Select",
    "Sparse",
    "Sum",
]
