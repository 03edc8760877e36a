"""From the bytes of an ONNX file to its live nodes, stored tensors and signature; everything is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from verifolio.errors import InputError
from verifolio.onnx_import.inline import reads, without_functions
from verifolio.onnx_import.network import Network, TensorSignature
from verifolio.onnx_import.values import Known, Malformed, Shape
from verifolio.run.memory import allowed_memory

BYTES_PER_INPUT = 256  # a property, points and their copies are as long; see also `BYTES_PER_NUMBER`
EXPORT_AGAIN = "export the network again, or inspect it with onnx.checker.check_model"


@dataclass(frozen=True, eq=False)
class Source:
    """The parts of a model that matter: live nodes in order, stored tensors, inputs and output names."""

    where: str
    nodes: tuple[Any, ...]
    tensors: Mapping[str, Any]
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[str, ...]
    opset: int


def read_source(network: Network) -> Source:
    """Parse a file and keep the nodes on which the outputs depend."""
    where = str(network.path)
    model = parse_model(network)
    graph = model.graph
    if len(graph.sparse_initializer):
        raise InputError(where, "dense initializers", "a sparse initializer", "export dense weights")
    tensors = {t.name: t for t in graph.initializer}
    inputs = tuple(_signature(where, i) for i in graph.input if i.name not in tensors)
    outputs = tuple(o.name for o in graph.output)
    if not inputs or not outputs:
        raise InputError(where, "at least one input and one output", "none", EXPORT_AGAIN)
    return Source(where, live_nodes(graph.node, outputs), tensors, inputs, outputs, _opset(where, model))


def tensor_names(network: Network) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a network's inputs (stored tensors are none) and outputs, in the order of the file."""
    graph = parse_model(network).graph
    stored = {t.name for t in graph.initializer}
    return tuple(i.name for i in graph.input if i.name not in stored), tuple(o.name for o in graph.output)


def inner_name(network: Network, name: str) -> str | None:
    """The tensor of a name that some node computes and that is no output, or that the node of that name computes."""
    graph = parse_model(network).graph
    outputs = {o.name for o in graph.output}
    computed = {t for node in graph.node for t in node.output} - outputs
    if name in computed:
        return name
    nodes = [n for n in graph.node if name and n.name == name]
    found = [t for n in nodes for t in n.output if t in computed]
    return found[0] if len(found) == 1 else None


def parse_model(network: Network) -> Any:
    """The model as ONNX's own structure."""
    where, data = str(network.path), network.model()
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own errors derive from Exception alone
        got, remedy = f"{type(error).__name__}: {error}", EXPORT_AGAIN
        if data[:2] == b"PK" or data[:1] == b"\x80":  # zip and pickle, which torch.save writes
            got, remedy = "what looks like a file of torch.save", "load it in Python and give the module"
        raise InputError(where, "an ONNX model", got, remedy) from None
    if not model.graph.node and not model.graph.output:
        raise InputError(where, "an ONNX model", "an empty one", EXPORT_AGAIN)
    try:
        return without_functions(model)
    except Malformed as error:
        raise InputError(where, error.expected, error.got, EXPORT_AGAIN) from None
    except Exception as error:  # the inliner is not ours
        got = " ".join(str(error).split())[:300]
        raise InputError(where, "local functions that can be written out", got, EXPORT_AGAIN) from None


def _opset(where: str, model: Any) -> int:
    versions = [e.version for e in model.opset_import if e.domain in ("", "ai.onnx")]
    if not versions or not 1 <= max(versions) <= 1000:
        raise InputError(where, "an ONNX operator set version", "none", EXPORT_AGAIN)
    return int(max(versions))


def _signature(where: str, info: Any) -> TensorSignature:
    kind = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or kind.elem_type != onnx.TensorProto.FLOAT:
        raise InputError(
            where,
            f"input {info.name!r} of type float",
            onnx.TensorProto.DataType.Name(kind.elem_type)
            if kind.elem_type in onnx.TensorProto.DataType.values()
            else "another type",
            "export the network with float32 inputs",
        )
    if not kind.HasField("shape"):
        raise InputError(where, f"a shape for input {info.name!r}", "none", "export with fixed shapes")
    # a symbolic dimension (a name, nothing, or a number below 1) counts as 1
    shape = tuple(max(1, int(d.dim_value)) for d in kind.shape.dim)
    most = allowed_memory() // BYTES_PER_INPUT
    if math.prod(shape) > most:
        expected = f"input {info.name!r} of at most {most} numbers"
        raise InputError(where, expected, f"{shape}", "raise --memory if it is meant to be so large")
    return TensorSignature(info.name, shape)


def live_nodes(nodes: Any, outputs: tuple[str, ...]) -> tuple[Any, ...]:
    """The nodes on which the outputs depend, in order."""
    needed, live = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            live.append(node)
            needed |= reads(node)
    return tuple(reversed(live))


def decode_tensor(tensor: Any) -> Known:
    """The numbers of a stored tensor: floats as float64 (exactly), integers in their own type, or bool."""
    name = tensor.name or "constant"
    if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.external_data):
        raise Malformed(f"tensor {name!r} inside the file", "a reference to an external data file")
    if tensor.data_type == onnx.TensorProto.STRING or len(tensor.string_data):
        raise Malformed(f"tensor {name!r} of numbers", "strings")
    if any(d < 0 for d in tensor.dims):
        raise Malformed(f"tensor {name!r} with dimensions >= 0", f"{list(tensor.dims)}")
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        raise Malformed(f"tensor {name!r} that fits its dimensions", f"{error}") from error
    return from_numpy(array, wide=tensor.data_type == onnx.TensorProto.DOUBLE)


def from_numpy(array: Any, wide: bool = False) -> Known:
    """A numpy array as a constant."""
    if array.dtype.kind in "biu":  # integers keep their type: their arithmetic wraps as the type's does
        return Known(array)
    if array.dtype.kind == "c":
        raise Malformed("real numbers", "complex ones")
    if "int" in array.dtype.name:  # of fewer than 8 bits: no operator computes with them, they are only cast
        return Known(array.astype(np.int8))
    return Known(array.astype(np.float64), None, wide)


def shape_of(array: Known) -> Shape:
    """Read a tensor that holds a shape, axes, or other small integers."""
    if array.value.dtype.kind not in "iu" or array.value.ndim > 1:
        raise Malformed("a list of integers", f"{array.value.dtype} of shape {array.shape}")
    return tuple(int(i) for i in array.value.ravel())
