"""Neurons, parameters and layers, counted in the ONNX files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..study import Key, Measurement, Place, Record, Size
from .signs import network_file
from .subjects import Subject

LINEAR = frozenset({"Gemm", "MatMul"})  # the operators of a linear layer


@dataclass(frozen=True)
class Architectures(Measurement):
    """One row per file; `neurons` are the values that a ReLU gives."""

    subjects: tuple[Subject, ...]

    name: ClassVar[str] = "architectures"
    key: ClassVar[tuple[str, ...]] = ("network",)
    columns: ClassVar[tuple[str, ...]] = ("neurons", "parameters", "linear_layers", "conv_layers")

    def wanted(self, size: Size) -> list[Key]:
        # a quick run trains no network
        files = (s for s in self.subjects if s.file and not (size.quick and s.data == "gtsrb"))
        return [(key,) for key in {s.key: s for s in files}]

    def measure(self, keys: Sequence[Key], place: Place) -> Iterator[Record]:
        files = {s.key: s for s in self.subjects if s.file}
        for (name,) in keys:
            yield {"network": name, **count(network_file(files[name], place.folder))}


def count(path: Path) -> Record:
    """What the graph of the file holds."""
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
    weights = {t.name: math.prod(t.dims) for t in model.graph.initializer}
    shapes = {
        v.name: [max(d.dim_value, 1) for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.value_info, *model.graph.output)
    }
    nodes = list(model.graph.node)
    used = {name for n in nodes if n.op_type in LINEAR | {"Conv", "Add"} for name in n.input}
    return {
        "neurons": str(sum(math.prod(shapes.get(n.output[0], [0])) for n in nodes if n.op_type == "Relu")),
        "parameters": str(sum(size for name, size in weights.items() if name in used)),
        "linear_layers": str(sum(n.op_type in LINEAR for n in nodes)),
        "conv_layers": str(sum(n.op_type == "Conv" for n in nodes)),
    }
