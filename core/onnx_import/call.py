"""One ONNX node as the lowering functions see it: operator, attributes, and the values of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from verifolio.onnx_import.reader import decode_tensor, shape_of
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View

_KINDS = onnx.AttributeProto


def decode_attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node as plain values; subgraphs stay out (no supported operator has one)."""
    decoded: dict[str, Any] = {}
    for a in node.attribute:
        if a.type == _KINDS.FLOAT:
            decoded[a.name] = float(a.f)
        elif a.type == _KINDS.INT:
            decoded[a.name] = int(a.i)
        elif a.type == _KINDS.STRING:
            decoded[a.name] = a.s.decode("utf-8", "replace")
        elif a.type == _KINDS.TENSOR:
            decoded[a.name] = a.t
        elif a.type == _KINDS.FLOATS:
            decoded[a.name] = tuple(float(f) for f in a.floats)
        elif a.type == _KINDS.INTS:
            decoded[a.name] = tuple(int(i) for i in a.ints)
        elif a.type == _KINDS.STRINGS:
            decoded[a.name] = tuple(s.decode("utf-8", "replace") for s in a.strings)
    return decoded


@dataclass(frozen=True, eq=False)
class Call:
    """`inputs` holds None for an optional input left out; `outputs` counts those that are read, `declared` all."""

    op: str
    inputs: Sequence[Value | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 13
    declared: int = 1

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Value:
        if not self.has(position):
            raise Malformed(f"input {position}", "nothing")
        value = self.inputs[position]
        if value is None:
            raise Malformed(f"input {position}", "nothing")
        return value

    def constant(self, position: int) -> Known:
        value = self.value(position)
        if isinstance(value, View):
            raise Refused(f"input {position} of {self.op} depends on the network's input")
        return value

    def integers_at(self, position: int) -> tuple[int, ...] | None:
        """An optional input that holds a list of integers."""
        return shape_of(self.constant(position)) if self.has(position) else None

    def _attribute(self, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
        value = self.attributes.get(name, default)
        if value is not default and not isinstance(value, kind):
            raise Malformed(f"attribute {name!r} of another type", f"{type(value).__name__}")
        return value

    def integer(self, name: str, default: int) -> int:
        return int(self._attribute(name, int, default))

    def number(self, name: str, default: float) -> float:
        return float(self._attribute(name, (float, int), default))

    def text(self, name: str, default: str) -> str:
        return str(self._attribute(name, str, default))

    def integers(self, name: str) -> tuple[int, ...] | None:
        value: tuple[int, ...] | None = self._attribute(name, tuple, None)
        if value is not None and not all(isinstance(i, int) for i in value):
            raise Malformed(f"attribute {name!r} of integers", f"{value!r}")
        return value

    def tensor(self, name: str) -> Known | None:
        value = self._attribute(name, onnx.TensorProto, None)
        return None if value is None else decode_tensor(value)

    def axis(self, name: str, default: int, rank: int) -> int:
        return normal_axis(self.integer(name, default), rank)

    def axes(self, position: int, rank: int) -> tuple[int, ...] | None:
        """Axes as an attribute (older operator sets) or as an input; None when absent."""
        listed = self.integers("axes")
        if listed is None:
            listed = self.integers_at(position)
        return None if listed is None else tuple(normal_axis(a, rank) for a in listed)


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise Malformed(f"an axis of a tensor of rank {rank}", f"{axis}")
    return axis % rank if rank else 0
