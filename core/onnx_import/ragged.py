"""Tensors whose shape depends on the input: slices that a variable begins.

Such a slice is imported as if it lay inside its tensor. Where it does not, ONNX Runtime cuts it off, and what is
missing there points outside here: in indices of a `ScatterND` both write nothing. So what is made of such a slice
may be moved, broadcast and joined, and must end as indices of a `ScatterND`; anything else is refused.
"""

from __future__ import annotations

from typing import Any

from verifolio.onnx_import.values import Refused

_KEEPS = frozenset(
    ("Shape", "Reshape", "Expand", "Unsqueeze", "Concat", "ConstantOfShape", "Add", "Mul", "Equal", "Where")
)


class Ragged:
    """The names of such tensors."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def check(self, node: Any) -> None:
        """Refuse a node that would do more with such a tensor than pass it on."""
        if self.names.intersection(node.input) and node.op_type not in _KEEPS | {"ScatterND", "Slice"}:
            raise Refused("a tensor whose shape depends on the input")
        if node.op_type == "ScatterND" and node.input[0] in self.names:
            raise Refused("ScatterND into a tensor whose shape depends on the input")
        if node.op_type == "Slice" and self.names.intersection(node.input[1:]):
            raise Refused("a tensor whose shape depends on the input")

    def pass_on(self, node: Any, begins: bool) -> None:
        """Note the results of a node; `begins`: it is a slice that a variable begins."""
        if begins or (self.names.intersection(node.input) and node.op_type != "ScatterND"):
            self.names.update(node.output)
