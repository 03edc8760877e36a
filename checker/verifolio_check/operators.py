"""ONNX files as networks; constants are arrays, tensors that depend on the input are references."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import isqrt, prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data
from onnx.reference import ReferenceEvaluator

from verifolio_check.curves import SIGMOID
from verifolio_check.integers import EXACT, Floats, Ints, Unreadable
from verifolio_check.network import MOST_ENTRIES, Network, Ref, enclose, exactly

Attributes = dict[str, Any]
MOST_KERNEL = 1 << 12  # its square has to fit into memory
OPSET = 11  # of convolutions; later ones differ in types alone
OLDEST = 7  # earlier opsets broadcast and train by attributes
REALS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
LARGEST = {
    "f": 2.0**300,
    "i": EXACT - 1,
    "u": EXACT - 1,
    "b": 1,
}  # magnitudes that constants may have, by kind of type


def read(*files: bytes) -> Network:
    """The network of a file with one input and one output; of several files: all of them on the same input."""
    net, parts = None, []
    for data in files:
        net, ref = read_file(data, net)
        parts.append(Ref(ref.node, ref.places.ravel()))
    if net is None:
        raise Unreadable("network: no file")
    net.sizes = [part.places.size for part in parts]
    result = ref if len(parts) == 1 else concat(net, {"axis": 0}, *parts)
    # an output that is the input gets a node of its own, so that rows tell the two apart
    net.output = (result if result.node and net.whole(result) else net.total([(result, 1)])).node
    return net


def read_file(data: bytes, net: Network | None) -> tuple[Network, Ref]:
    """A network, joined to one that is there already, and its output."""
    try:
        model = onnx.load_model_from_string(data)
        values: dict[str, Any] = {
            t.name: numpy_helper.to_array(t) for t in model.graph.initializer if not uses_external_data(t)
        }
    except Exception as error:  # protobuf raises what it likes
        raise Unreadable(f"network: {type(error).__name__}: {error}") from error
    require(model)
    inputs = [i for i in model.graph.input if i.name not in values]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise Unreadable("network: expected one input and one output")
    if inputs[0].type.tensor_type.elem_type not in REALS:
        raise Unreadable("network: an input of another type than floating-point numbers")
    shape = tuple(d.dim_value or 1 for d in inputs[0].type.tensor_type.shape.dim)
    net = net or Network(shape)
    if prod(shape) != net.nodes[0].size:
        raise Unreadable("network: expected that all networks read the same input")
    values |= {"": None, inputs[0].name: Ref(0, net.input.places.reshape(shape))}
    for step in model.graph.node:
        try:
            results = perform(net, step, model.opset_import, [values[name] for name in step.input])
        except Unreadable:
            raise
        except Exception as error:  # so does ONNX's reference implementation
            raise Unreadable(f"network: {step.op_type}: {type(error).__name__} {error}") from error
        values.update({name: v for name, v in zip(step.output, results, strict=False) if name})
    return net, ref_of(values.get(model.graph.output[0].name))


def require(model: Any) -> None:
    """Refuse what gives operators another meaning than they have here, and weights that are somewhere else."""
    opset = min((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if model.functions or opset < OLDEST:
        raise Unreadable(f"network: functions of its own, or an opset before {OLDEST}")
    held = [a for step in model.graph.node for a in step.attribute]
    stated = [t for a in held for t in (a.t, a.sparse_tensor.values, a.sparse_tensor.indices)]
    if any(uses_external_data(t) for t in (*model.graph.initializer, *stated)):
        raise Unreadable("network: weights in other files")


def perform(net: Network, step: Any, opsets: Any, given: list[Any]) -> list[Any]:
    """What an operator gives."""
    attributes = {a.name: helper.get_attribute_value(a) for a in step.attribute}
    name, computed = step.op_type, any(isinstance(v, Ref) for v in given)
    if step.domain in ("", "ai.onnx") and (MOVES.fullmatch(name) or (name == "Concat" and not computed)):
        return move(step, opsets, attributes, given)
    if step.domain in ("", "ai.onnx") and name in RULES and computed:
        return [RULES[name](net, attributes, *given)]
    raise Unreadable(
        f"network: this checker does not read the operator {name}{'' if computed else ' of constants'}"
    )


def move(step: Any, opsets: Any, attributes: Attributes, given: list[Any]) -> list[Any]:
    """Operators that move numbers about: ONNX's reference implementation, on the places of a tensor plus 1.

    Zeros that it adds are places of nothing.
    """
    moved = given[0] if given and isinstance(given[0], Ref) else None
    if moved is not None:
        given = [moved.places + 1, *given[1:]]
    if any(isinstance(v, Ref) for v in given):
        raise Unreadable(f"network: {step.op_type} of several tensors that depend on the input")
    if step.op_type == "Pad" and (
        any(floats(v) for v in given[2:3] if v is not None) or attributes.get("value")
    ):
        raise Unreadable("network: Pad with anything but zeros")
    feed = {name: v for name, v in zip(step.input, given, strict=True) if name}
    results = reference(step, opsets, feed)
    kept = moved is None or step.op_type == "Shape"
    if any(r.size > MOST_ENTRIES or (r.dtype != np.int64 and not kept) for r in results):
        raise Unreadable(f"network: {step.op_type} that gives something else than a tensor, or too much")
    if kept or moved is None:
        return results
    return [Ref(moved.node, r - 1) for r in results]


def reference(step: Any, opsets: Any, feed: dict[str, Any]) -> list[Any]:
    """What ONNX's reference implementation gives."""
    function = helper.make_function("checker", "step", [*feed], step.output, [step], opsets)
    return list(ReferenceEvaluator(function).run(None, feed, attributes={}))


def ref_of(value: Any) -> Ref:
    if not isinstance(value, Ref):
        raise Unreadable("network: expected a tensor that depends on the input")
    return value


def floats(value: Any) -> Floats:
    """The numbers of a constant, which float64 holds exactly."""
    if isinstance(value, Ref) or value is None:
        raise Unreadable("network: expected a constant")
    array = np.asarray(value)
    numbers = array.astype(np.float64)
    if not (np.abs(numbers) <= LARGEST.get(array.dtype.kind, -1)).all():
        raise Unreadable("network: constants that are not finite, too large or of another type than numbers")
    return numbers


def add(net: Network, sign: int, left: Any, right: Any) -> Ref:
    """left + sign right."""
    parts = [(v, s) for v, s in ((left, 1), (right, sign)) if isinstance(v, Ref)]
    constants = [s * floats(v) for v, s in ((left, 1), (right, sign)) if not isinstance(v, Ref)]
    return net.total(parts, exactly(constants[0]) if constants else None)


def mul(net: Network, _: Attributes, left: Any, right: Any) -> Ref:
    ref, factor = (left, right) if isinstance(left, Ref) else (right, left)
    return net.scale(ref_of(ref), exactly(floats(factor)))


def div(net: Network, _: Attributes, left: Any, right: Any) -> Ref:
    inverse = [1 / Fraction(v) for v in floats(right).ravel().tolist()]
    return net.scale(ref_of(left), enclose([(v, v) for v in inverse], right.shape))


def gemm(net: Network, a: Attributes, left: Any, right: Any, bias: Any = None) -> Ref:
    if a.get("transA", 0) or a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1:
        raise Unreadable("network: Gemm with transA, alpha or beta")
    result = net.product(ref_of(left), exactly(floats(right).T if a.get("transB", 0) else floats(right)))
    return result if bias is None else add(net, 1, result, bias)


def stored(a: Attributes, name: str, default: float) -> Fraction:
    """An attribute, or its default, which is a float32 as well."""
    return Fraction(float(np.float32(a.get(name, default))))


def batch_norm(net: Network, a: Attributes, x: Any, *constants: Any) -> Ref:
    """x s / sqrt(v + e) + (t - m s / sqrt(v + e)), the root enclosed to 60 bits."""
    if a.get("training_mode", 0):
        raise Unreadable("network: BatchNormalization in training")
    factors, offsets = [], []
    for row in zip(*(floats(c).tolist() for c in constants), strict=True):
        s, t, m, v = (Fraction(c) for c in row)
        square = v + stored(a, "epsilon", 1e-5)
        root = Fraction(isqrt(int(square * 4**60)), 2**60)  # below the root by less than 2^-60
        factors.append(tuple(sorted((s / (root + Fraction(1, 2**60)), s / root))))
        offsets.append(tuple(sorted(t - m * f for f in factors[-1])))
    form = (len(factors),) + (1,) * (len(x.shape) - 2)
    return net.total([(net.scale(ref_of(x), enclose(factors, form)), 1)], enclose(offsets, form))


def windows(operator: str, a: Attributes, shape: tuple[int, ...], kernel: tuple[int, ...]) -> Ints:
    """The places (kernel, *patches) that each entry of a kernel meets, by ONNX's reference implementation.

    It convolves the places, counted from 1, with kernels that are 1 at one entry.
    """
    if a.get("ceil_mode", 0) or prod(kernel) > MOST_KERNEL:
        raise Unreadable(f"network: ceil_mode, or kernels of more than {MOST_KERNEL} entries")
    if operator != "Conv" and ("output_shape" in a or a.get("auto_pad", b"NOTSET") != b"NOTSET"):
        raise Unreadable("network: ConvTranspose with output_shape or automatic padding")
    stated = {
        k: v for k, v in a.items() if k in ("strides", "dilations", "pads", "auto_pad", "output_padding")
    }
    ones = np.eye(prod(kernel)).reshape((-1, 1, *kernel) if operator == "Conv" else (1, -1, *kernel))
    step = helper.make_node(operator, ["x", "w"], ["y"], **stated)
    feed = {"x": np.arange(1.0, prod(shape) + 1).reshape(1, 1, *shape), "w": ones}
    places = reference(step, [helper.make_opsetid("", OPSET)], feed)[0][0]
    return np.asarray(places, np.int64) - 1


def patches(ref: Ref, places: Ints) -> Ints:
    """The windows (channels, kernel, *patches) of a tensor."""
    flat = ref.places.reshape(prod(ref.shape[:2]), -1)
    if places.size * len(flat) > MOST_ENTRIES:
        raise Unreadable("network: a map that is too large")
    return np.pad(flat, [(0, 0), (0, 1)], constant_values=-1)[:, places]  # the last one is nothing


def conv(net: Network, a: Attributes, x: Any, weight: Any, bias: Any = None, operator: str = "Conv") -> Ref:
    """Kernels are (outputs, inputs of a group, ...), those of ConvTranspose (inputs, outputs of a group, ...)."""
    ref, weight, groups = ref_of(x), floats(weight), a.get("group", 1)
    kernel, first, entries = weight.shape[2:], weight.shape[0] // groups, prod(weight.shape[2:])
    matrix = weight.reshape(groups, first, weight.shape[1], entries)
    matrix = matrix.transpose((0, 2, 3, 1) if operator == "Conv" else (0, 1, 3, 2))
    _, inputs, _, outputs = matrix.shape
    if ref.shape[0] != 1 or groups * inputs != ref.shape[1]:
        raise Unreadable("network: a convolution whose channels do not fit")
    places = windows(operator, a, ref.shape[2:], kernel)
    index = patches(ref, places).reshape(groups, inputs * entries, -1).swapaxes(1, 2)
    shape = (1, groups * outputs, *places.shape[1:])
    result = net.linear(ref, exactly(matrix.reshape(groups, inputs * entries, outputs)), index, shape)
    return result if bias is None else add(net, 1, result, floats(bias).reshape(-1, *[1] * len(kernel)))


def pool(net: Network, a: Attributes, x: Any, largest: bool) -> Ref:
    ref, kernel = ref_of(x), tuple(a["kernel_shape"])
    places = windows("Conv", a, ref.shape[2:], kernel)
    if (places < 0).any() and (largest or not a.get("count_include_pad", 0)):
        raise Unreadable("network: pooling with padding that does not count")
    view, shape = patches(ref, places), (*ref.shape[:2], *places.shape[1:])
    if largest:
        return net.largest([Ref(ref.node, view[:, k].reshape(shape)) for k in range(prod(kernel))])
    part = enclose([(Fraction(1, prod(kernel)),) * 2] * prod(kernel), (prod(kernel), 1))
    out = net.product(Ref(ref.node, np.moveaxis(view, 1, -1)), part)
    return Ref(out.node, out.places.reshape(shape))


def leaky_relu(net: Network, a: Attributes, x: Any) -> Ref:
    """s z + (1 - s) relu(z)."""
    slope = stored(a, "alpha", 0.01)
    line, rest = (enclose([(v, v)], (1,)) for v in (slope, 1 - slope))
    return net.total([(net.scale(ref_of(x), line), 1), (net.scale(net.curve(x), rest), 1)])


def clip(net: Network, a: Attributes, x: Any, low: Any = None, high: Any = None) -> Ref:
    """low + relu(x - low) - relu(x - high)."""
    low, high = (a.get(name) if v is None else v for name, v in (("min", low), ("max", high)))
    if low is not None and high is not None and floats(low).item() > floats(high).item():
        raise Unreadable("network: Clip with min above max")
    result = x if low is None else add(net, 1, net.curve(add(net, -1, ref_of(x), low)), low)
    return result if high is None else add(net, -1, result, net.curve(add(net, -1, ref_of(x), high)))


def tanh(net: Network, _: Attributes, x: Any) -> Ref:
    """2 sigmoid(2 z) - 1."""
    two = np.full((2, 1), 2.0)
    return add(net, -1, net.scale(net.curve(net.scale(ref_of(x), two), SIGMOID), two), 1.0)


def dropout(_: Network, __: Attributes, x: Any, ratio: Any = None, training: Any = None) -> Any:
    if np.any(training):
        raise Unreadable("network: Dropout in training")
    return x


def concat(net: Network, a: Attributes, *given: Any) -> Any:
    """The sum of tensors that have zeros where the others stand."""
    parts = []
    for k, value in enumerate(given):
        if isinstance(value, Ref):
            wide = [np.full(v.shape, -1) if j != k else value.places for j, v in enumerate(given)]
            parts.append((Ref(value.node, np.concatenate(wide, a["axis"])), 1))
    bias = np.concatenate([np.zeros(v.shape) if isinstance(v, Ref) else floats(v) for v in given], a["axis"])
    return net.total(parts, exactly(bias) if bias.any() else None)


MOVES = re.compile(
    "Constant|Flatten|Gather|Identity|Pad|Reshape|Shape|Slice|Split|Squeeze|Transpose|Unsqueeze"
)
RULES: dict[str, Callable[..., Any]] = {
    "Add": lambda net, _, x, y: add(net, 1, x, y), "Sub": lambda net, _, x, y: add(net, -1, x, y),
    "Neg": lambda net, _, x: net.total([(ref_of(x), -1)]), "Mul": mul, "Div": div, "Gemm": gemm,
    "MatMul": lambda net, _, x, y: net.product(ref_of(x), exactly(floats(y))),
    "Conv": conv, "ConvTranspose": lambda net, a, x, w, b=None: conv(net, a, x, w, b, "ConvTranspose"),
    "MaxPool": lambda net, a, x: pool(net, a, x, True),
    "AveragePool": lambda net, a, x: pool(net, a, x, False),
    "BatchNormalization": batch_norm, "Concat": concat, "Dropout": dropout,
    "Relu": lambda net, _, x: net.curve(ref_of(x)), "LeakyRelu": leaky_relu, "Clip": clip,
    "Sigmoid": lambda net, _, x: net.curve(ref_of(x), SIGMOID), "Tanh": tanh,
}  # fmt: skip
