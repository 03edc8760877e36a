"""Tensors whose shape depends on the input: slices that a variable begins.

Such a slice of 0, 1, 2, ... (or of equal numbers) is imported as if it lay inside its tensor. Where it does not, ONNX
Runtime cuts it off: entry k is missing there if and only if s + k, with s where the slice begins, is not below the
length of what was cut. So it may be moved, broadcast, joined and shifted upwards, and must end as indices of a
`ScatterND`, in which every such s is a coordinate of its own: what is missing there then points outside here, and
both write nothing. Its length may only serve as a shape. Of other sums and products only the shape may be asked.
Anything else is refused.
"""

from __future__ import annotations

from typing import Any

from verifolio.onnx_import.call import Call, normal_axis
from verifolio.onnx_import.values import Known, Refused, View

Root = tuple[int, int]  # the entry of a node at which a slice begins
_MOVES = frozenset(
    ("Shape", "Reshape", "Expand", "Unsqueeze", "Concat", "ConstantOfShape", "Slice", "ScatterND")
)
_COMPUTES = frozenset(("Add", "Mul", "Equal", "Where"))
_SHAPE_AT = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}  # the input that is a shape
WHY = "a tensor whose shape depends on the input"


class Ragged:
    """`origins`: for each name that depends on such slices, where they begin.

    `shaped`: its shape does; `sized`: its numbers depend on such a shape; `spoiled`: only its shape may be asked for.
    """

    def __init__(self) -> None:
        self.origins: dict[str, frozenset[Root]] = {}
        self.shaped: set[str] = set()
        self.sized: set[str] = set()
        self.spoiled: set[str] = set()
        self.axes: dict[str, frozenset[int]] = {}  # of slices alone: along which they were cut

    @property
    def names(self) -> set[str]:
        return self.shaped | self.sized

    def behind(self, node: Any) -> frozenset[Root]:
        """Where all slices begin on which the inputs of a node depend."""
        return frozenset().union(*(self.origins.get(name, frozenset()) for name in node.input))

    def check(self, node: Any, call: Call) -> None:
        """Refuse a node that would do more with such a tensor than pass it on."""
        op = node.op_type
        shaped = [k for k, name in enumerate(node.input) if name in self.shaped]
        sized = [k for k, name in enumerate(node.input) if name in self.sized and k != _SHAPE_AT.get(op)]
        if not self.names.intersection(node.input):
            return
        spoiled = self.spoiled.intersection(node.input)
        if op not in _MOVES | _COMPUTES or (spoiled and op not in ("Shape", "Add")):
            raise Refused(WHY)
        if op == "ScatterND" and (0 in shaped or sized):
            raise Refused(f"ScatterND into {WHY}" if 0 in shaped else f"indices that depend on {WHY}")
        if op == "Slice":
            self._check_slice(node, call, shaped, sized)
        if sized and any(isinstance(v, View) for v in call.inputs):
            raise Refused(f"numbers that depend on {WHY}")

    def _check_slice(self, node: Any, call: Call, shaped: list[int], sized: list[int]) -> None:
        """Parts are counted from the front, by constants, because the end is not where it seems.

        Or they are cut once more, along another axis.
        """
        if any(k > 0 for k in (*shaped, *sized)):
            raise Refused(f"a Slice bounded by {WHY}")
        if 0 not in shaped:
            return
        limits = [call.inputs[k] for k in (1, 2, 4) if call.has(k)]
        if any(isinstance(v, View) for v in limits):
            known = self.axes.get(node.input[0])
            if known is None or _axis(call) in known:
                raise Refused(f"a second Slice of {WHY}")
        elif not limits or not all(isinstance(v, Known) and bool((v.value >= 0).all()) for v in limits):
            raise Refused(f"a Slice from the end of {WHY}")

    def pass_on(self, node: Any, call: Call, begins: Root | None) -> None:
        """Note the results of a node; `begins`: it is a slice that begins at this variable."""
        origins = self.behind(node) | (frozenset() if begins is None else {begins})
        if not origins or node.op_type == "ScatterND":
            return
        where = _SHAPE_AT.get(node.op_type)
        shape_is_sized = where is not None and len(node.input) > where and node.input[where] in self.sized
        shaped = begins is not None or shape_is_sized or bool(self.shaped.intersection(node.input))
        values = [name for k, name in enumerate(node.input) if k != where]
        sized = bool(self.sized.intersection(values))
        if node.op_type == "Shape":  # of a list of sizes it is a constant
            shaped, sized = False, shaped
        for name in node.output if shaped or sized else ():
            self.origins[name] = origins
            self.shaped.update({name} if shaped else ())
            self.sized.update({name} if sized else ())
            spoils = not _keeps_outside(call) or bool(self.spoiled.intersection(node.input))
            self.spoiled.update({name} if node.op_type in _COMPUTES and spoils else ())
            if begins is not None:
                self.axes[name] = self.axes.get(node.input[0], frozenset()) | {_axis(call)}


def _axis(call: Call) -> int:
    """The only axis of a slice that a variable begins."""
    axes = call.integers_at(3)
    return normal_axis(axes[0] if axes else 0, len(call.value(0).shape))


def _keeps_outside(call: Call) -> bool:
    """Whether what points outside still does: constants alone, or a shift upwards."""
    if not any(isinstance(v, View) for v in call.inputs):
        return True
    constants = [v for v in call.inputs if isinstance(v, Known)]
    return call.op == "Add" and len(constants) == 1 and not bool((constants[0].value < 0).any())
