"""ONNX files made of ONNX files: margin heads, and several networks that read one input."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

IR_VERSION = 8  # that every runtime we support reads
AXES_AS_INPUT = 18  # from this operator set on, ReduceMax takes its axes as an input


def headed(network: Network, label: int, folder: str = "") -> Network:
    """The network with one output: max over l != label of Y_l - Y_label.

    In floating point its sign is exact: a maximum is not rounded, and a difference never rounds to nought.
    """
    place = Path(folder) if folder else Path(tempfile.gettempdir()) / f"verifolio-heads-{os.getuid()}"
    return _headed(network, label, place)


@lru_cache(maxsize=256)
def _headed(network: Network, label: int, folder: Path) -> Network:
    maker = Composer(network.inputs[0].shape, _opset(network))
    flat = maker.add(network, "n_")
    model = maker.model(maker.margin(flat, label, network.output_size), 1)
    path = folder / f"{network.sha256[:16]}-margin-{label}.onnx"
    write_file(path, model)
    return Network.load(path)


def merge(
    networks: Sequence[Network], path: Path, centre: np.ndarray[Any, np.dtype[np.float64]] | None = None
) -> None:
    """All networks side by side on one input, outputs concatenated; with `centre`, then sum |x - centre|."""
    maker = Composer(networks[0].inputs[0].shape, max(_opset(n) for n in networks))
    parts = [maker.add(n, f"n{k}_") for k, n in enumerate(networks)]
    size = sum(n.output_size for n in networks)
    if centre is not None:
        parts.append(maker.distance(centre))
        size += 1
    out = maker.node("Concat", parts, axis=1) if len(parts) > 1 else parts[0]
    write_file(path, maker.model(out, size))


def write_distance(centre: np.ndarray[Any, np.dtype[np.float64]], shape: tuple[int, ...], path: Path) -> None:
    """A network of its own whose only output is sum |x - centre|."""
    maker = Composer(shape, 13)
    write_file(path, maker.model(maker.distance(centre), 1))


def write_file(path: Path, model: Any) -> None:
    """Write bytes that are always the same, unless they are there already."""
    data = model.SerializeToString(deterministic=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == data:
        return
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)  # readers see the old file or the new one, never half of one


class Composer:
    """Collects nodes and constants over one input called `input`."""

    def __init__(self, shape: tuple[int, ...], opset: int) -> None:
        self.shape, self.opset = shape, opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"c{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, network: Network, prefix: str) -> str:
        """Copy a network's nodes; gives the name of its flat output, shaped (1, size)."""
        if len(network.inputs) != 1 or len(network.outputs) != 1:
            got = f"{len(network.inputs)} and {len(network.outputs)}"
            raise InputError(str(network.path), "one input and one output tensor", got)
        model = self._converted(network)
        rename = {t.name: prefix + t.name for t in model.graph.initializer}
        source = network.inputs[0]
        feed = self.node("Reshape", ["input", self.constant(source.shape, np.int64)])
        rename[source.name] = feed
        for tensor in model.graph.initializer:
            tensor.name = rename[tensor.name]
            self.constants.append(tensor)
        for node in model.graph.node:
            if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
                raise InputError(str(network.path), "no nested graphs", node.op_type, "merge it by hand")
            for names in (node.input, node.output):
                names[:] = [rename.get(n, prefix + n) if n else "" for n in names]
            node.name = prefix + node.name if node.name else ""
            self.nodes.append(node)
        out = rename.get(network.outputs[0].name, prefix + network.outputs[0].name)
        return self.node("Reshape", [out, self.constant([1, network.output_size], np.int64)])

    def _converted(self, network: Network) -> Any:
        model = onnx.load_from_string(network.model())
        domains = {o.domain for o in model.opset_import} - {"", "ai.onnx"}
        if domains or model.functions:
            got = ", ".join(sorted(domains)) or "functions"
            raise InputError(str(network.path), "standard operators only", got)
        if _version(model) != self.opset:
            from onnx import version_converter

            model = version_converter.convert_version(model, self.opset)
        return model

    def margin(self, flat: str, label: int, classes: int) -> str:
        others = [k for k in range(classes) if k != label]
        wrong = self.node("Gather", [flat, self.constant(others, np.int64)], axis=1)
        right = self.node("Gather", [flat, self.constant([label], np.int64)], axis=1)
        if self.opset >= AXES_AS_INPUT:
            best = self.node("ReduceMax", [wrong, self.constant([1], np.int64)], keepdims=1)
        else:
            best = self.node("ReduceMax", [wrong], axes=[1], keepdims=1)
        return self.node("Sub", [best, right])

    def distance(self, centre: np.ndarray[Any, np.dtype[np.float64]]) -> str:
        """sum relu(x - centre) + relu(centre - x), exact in real numbers if float32 holds the centre."""
        single = centre.astype(np.float32)
        if bool((single.astype(np.float64) != centre).any()):
            raise InputError("ball", "a centre that float32 holds", "another", "round the point to float32")
        flat = self.node("Reshape", ["input", self.constant([1, len(centre)], np.int64)])
        point = self.constant(single[None], np.float32)
        sides = [self.node("Sub", [flat, point]), self.node("Sub", [point, flat])]
        both = self.node("Concat", [self.node("Relu", [s]) for s in sides], axis=1)
        ones = self.constant(np.ones((2 * len(centre), 1)), np.float32)
        return self.node("MatMul", [both, ones])

    def model(self, output: str, size: int) -> Any:
        self.nodes.append(helper.make_node("Identity", [output], ["output"]))
        ends = (("input", self.shape), ("output", (1, size)))
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in ends]
        graph = helper.make_graph(self.nodes, "ensemble", infos[:1], infos[1:], self.constants)
        opset = [helper.make_opsetid("", self.opset)]
        made = helper.make_model(graph, opset_imports=opset, producer_name="verifolio")
        made.ir_version = IR_VERSION
        onnx.checker.check_model(made)
        return made


def _version(model: Any) -> int:
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def _opset(network: Network) -> int:
    return max(13, _version(onnx.load_from_string(network.model())))
