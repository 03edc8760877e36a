"""ONNX files as networks; constants are arrays, tensors that depend on the input are references."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt, prod
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

from verifolio_check.curves import SIGMOID
from verifolio_check.integers import Floats, Ints, Unreadable
from verifolio_check.network import Network, Ref, enclose, limit_size

Attributes = dict[str, Any]
Rule = Callable[[Network, Attributes, list[Any]], Any]


def read(*files: bytes) -> Network:
    """The network of a file with one input and one output; of several files: all of them on the same input."""
    parts, net = [], None
    for data in files:
        net, ref = read_file(data, net)
        parts.append(moved(ref, np.ravel))
    if net is None:
        raise Unreadable("network: no file")
    net.sizes = [part.places.size for part in parts]
    result = ref if len(parts) == 1 else concat(net, {"axis": 0}, parts)
    net.output = (result if net.whole(result) else net.total([(result, 1)])).node
    return net


def read_file(data: bytes, net: Network | None) -> tuple[Network, Ref]:
    """A network, joined to one that is there already, and its output."""
    try:
        graph = onnx.load_model_from_string(data).graph
        values: dict[str, Any] = {t.name: constant(numpy_helper.to_array(t)) for t in graph.initializer}
    except Exception as error:  # protobuf raises what it likes
        raise Unreadable(f"network: {type(error).__name__}: {error}") from error
    inputs = [i for i in graph.input if i.name not in values]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise Unreadable("network: expected one input and one output")
    shape = tuple(d.dim_value or 1 for d in inputs[0].type.tensor_type.shape.dim)
    net = net or Network(shape)
    if prod(shape) != net.nodes[0].size:
        raise Unreadable("network: expected that all networks read the same input")
    values[inputs[0].name] = moved(net.input, lambda x: x.reshape(shape))
    for step in graph.node:
        rule = RULES.get(step.op_type)
        if rule is None or step.domain not in ("", "ai.onnx"):
            raise Unreadable(f"network: this checker does not read the operator {step.op_type}")
        attributes = {
            "outputs": len(step.output),
            **{a.name: helper.get_attribute_value(a) for a in step.attribute},
        }
        try:
            result = rule(net, attributes, [values[name] if name else None for name in step.input])
        except (ValueError, IndexError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise Unreadable(f"network: {step.op_type}: {type(error).__name__} {error}") from error
        outputs = result if isinstance(result, list) else [result]
        values.update({name: v for name, v in zip(step.output, outputs, strict=False) if name})
    return net, ref_of(values.get(graph.output[0].name))


def constant(array: Any) -> Any:
    """An array whose numbers float64 holds exactly."""
    if array.dtype.kind not in "iubf":
        raise Unreadable(f"network: constants of type {array.dtype}")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        if not (np.abs(array) <= 2.0**300).all():
            raise Unreadable("network: constants that are not finite, or too large")
    return (
        array if array.dtype.kind in "fb" else np.clip(array, -(2**53), 2**53)
    )  # beyond: "to the end" in slices


def ref_of(value: Any) -> Ref:
    if not isinstance(value, Ref):
        raise Unreadable("network: expected a tensor that depends on the input")
    return value


def floats(value: Any) -> Floats:
    """The numbers of a constant."""
    if isinstance(value, Ref) or value is None:
        raise Unreadable("network: expected a constant")
    return np.asarray(value, np.float64)


def setting(a: Attributes, name: str, given: list[Any], k: int) -> Any:
    """Whole numbers that are the k-th input, or an attribute in older versions; None: neither."""
    if len(given) > k and given[k] is not None:
        return [int(v) for v in floats(given[k]).ravel()]
    return a.get(name)


def moved(value: Any, change: Callable[[Any], Any]) -> Any:
    """What numpy does to the places of a tensor, or to a constant."""
    return Ref(value.node, change(value.places)) if isinstance(value, Ref) else change(value)


def add(net: Network, sign: int, left: Any, right: Any) -> Ref:
    """left + sign right."""
    if isinstance(left, Ref) and isinstance(right, Ref):
        return net.total([(left, 1), (right, sign)])
    return net.total([(left, 1)], sign * floats(right)) if isinstance(left, Ref) else net.total(
        [(ref_of(right), sign)], floats(left)
    )  # fmt: skip


def mul(net: Network, _: Attributes, given: list[Any]) -> Ref:
    ref, factor = given if isinstance(given[0], Ref) else given[::-1]
    return net.scale(ref_of(ref), floats(factor), floats(factor))


def div(net: Network, _: Attributes, given: list[Any]) -> Ref:
    inverse = [1 / Fraction(float(v)) for v in floats(given[1]).ravel()]
    return net.scale(ref_of(given[0]), *enclose([(v, v) for v in inverse], given[1].shape))


def matmul(net: Network, _: Attributes, given: list[Any]) -> Ref:
    return net.product(ref_of(given[0]), floats(given[1]), floats(given[1]))


def gemm(net: Network, a: Attributes, given: list[Any]) -> Ref:
    if a.get("transA", 0) or a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1:
        raise Unreadable("network: Gemm with transA, alpha or beta")
    result = matmul(net, a, [given[0], floats(given[1]).T if a.get("transB", 0) else given[1]])
    return result if len(given) < 3 or given[2] is None else add(net, 1, result, given[2])


def batch_norm(net: Network, a: Attributes, given: list[Any]) -> Ref:
    """x s / sqrt(v + e) + (t - m s / sqrt(v + e)), the root enclosed to 60 bits."""
    if a.get("training_mode", 0):
        raise Unreadable("network: BatchNormalization in training")
    factors, offsets = [], []
    for row in zip(*(floats(g).tolist() for g in given[1:5]), strict=True):
        s, t, m, v = (Fraction(x) for x in row)
        square = v + Fraction(float(a.get("epsilon", 1e-5)))
        root = Fraction(isqrt(int(square * 4**60)), 2**60)  # below the root by less than 2^-60
        factors.append(tuple(sorted((s / (root + Fraction(1, 2**60)), s / root))))
        offsets.append(tuple(sorted(t - m * f for f in factors[-1])))
    form = (len(factors),) + (1,) * (len(given[0].shape) - 2)
    return net.total([(net.scale(ref_of(given[0]), *enclose(factors, form)), 1)], *enclose(offsets, form))


def windows(places: Ints, a: Attributes, kernel: list[int]) -> Ints:
    """Patches along all axes but the first: (channels, *patches, *kernel)."""
    count = places.ndim - 1
    sizes = (("strides", 1, count), ("dilations", 1, count), ("pads", 0, 2 * count))
    strides, dilations, pads = (a.get(name) or [default] * length for name, default, length in sizes)
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or a.get("ceil_mode", 0):
        raise Unreadable("network: automatic padding or ceil_mode")
    if (
        len(strides) != count
        or len(pads) != 2 * count
        or min([*strides, *dilations, *kernel]) < 1
        or min(pads) < 0
    ):
        raise Unreadable("network: strides, pads or a kernel that do not fit")
    limit_size(tuple(n + p + q for n, p, q in zip(places.shape[1:], pads[:count], pads[count:], strict=True)))
    padded = np.pad(places, [(0, 0), *zip(pads[:count], pads[count:], strict=True)], constant_values=-1)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = sliding_window_view(padded, spans, tuple(range(1, count + 1)))
    view = view[(slice(None), *(slice(None, None, s) for s in (*strides, *dilations)))]
    limit_size(view.shape)
    return view


def conv(net: Network, a: Attributes, given: list[Any]) -> Ref:
    ref, weight, groups = ref_of(given[0]), floats(given[1]), a.get("group", 1)
    if ref.shape[0] != 1 or weight.shape[1] * groups != ref.shape[1] or weight.shape[0] % groups:
        raise Unreadable("network: a convolution whose channels do not fit")
    view = windows(ref.places[0], a, list(weight.shape[2:]))
    out = view.shape[1 : weight.ndim - 1]
    index = view.reshape(groups, weight.shape[1], prod(out), -1).swapaxes(1, 2).reshape(groups, prod(out), -1)
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1).swapaxes(1, 2)
    result = net.linear(ref, matrix, matrix, index, (1, weight.shape[0], *out))
    if len(given) < 3 or given[2] is None:
        return result
    return net.total([(result, 1)], floats(given[2]).reshape((-1,) + (1,) * len(out)))


def conv_transpose(net: Network, a: Attributes, given: list[Any]) -> Ref:
    """A convolution with the mirrored kernel over values that zeros keep apart."""
    ref, weight = ref_of(given[0]), floats(given[1])
    count = weight.ndim - 2
    strides, dilations, pads = (a.get(n, [d] * k) for n, d, k in (
        ("strides", 1, count), ("dilations", 1, count), ("pads", 0, 2 * count)))  # fmt: skip
    if a.get("group", 1) != 1 or "output_shape" in a or a.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise Unreadable("network: ConvTranspose with groups or automatic padding")
    shape = (*ref.shape[:2], *((n - 1) * s + 1 for n, s in zip(ref.shape[2:], strides, strict=True)))
    limit_size(shape)
    apart = np.full(shape, -1)
    apart[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = ref.places
    more = [0] * count + list(a.get("output_padding", [0] * count))
    spans = [(k - 1) * d for k, d in zip(weight.shape[2:], dilations, strict=True)] * 2
    ends = [s - p + m for s, p, m in zip(spans, pads, more, strict=True)]
    mirrored = np.flip(weight.swapaxes(0, 1), tuple(range(2, weight.ndim)))
    return conv(net, {"pads": ends, "dilations": dilations}, [Ref(ref.node, apart), mirrored, *given[2:]])


def pool(net: Network, a: Attributes, given: list[Any], largest: bool) -> Ref:
    ref, kernel = ref_of(given[0]), a["kernel_shape"]
    if a["outputs"] > 1 or (any(a.get("pads") or []) and (largest or not a.get("count_include_pad", 0))):
        raise Unreadable("network: pooling with indices, or with padding that does not count")
    view = windows(ref.places.reshape(-1, *ref.shape[2:]), a, kernel)
    shape, entries = (*ref.shape[:2], *view.shape[1 : len(kernel) + 1]), view.reshape(-1, prod(kernel))
    if largest:
        return net.largest([Ref(ref.node, entries[:, t].reshape(shape)) for t in range(entries.shape[1])])
    part = enclose([(Fraction(1, prod(kernel)),) * 2] * prod(kernel), (prod(kernel), 1))
    return Ref((out := net.product(Ref(ref.node, entries), *part)).node, out.places.reshape(shape))


def leaky_relu(net: Network, a: Attributes, given: list[Any]) -> Ref:
    """s z + (1 - s) relu(z)."""
    ref, slope = ref_of(given[0]), Fraction(float(a.get("alpha", 0.01)))
    low, high = (enclose([(v, v)], (1,)) for v in (slope, 1 - slope))
    return net.total([(net.scale(ref, *low), 1), (net.scale(net.curve(ref), *high), 1)])


def clip(net: Network, a: Attributes, given: list[Any]) -> Ref:
    """low + relu(z - low) - relu(z - high)."""
    ref, ends = ref_of(given[0]), []
    for k, name in ((1, "min"), (2, "max")):
        stated = given[k] if len(given) > k and given[k] is not None else a.get(name)
        ends.append(None if stated is None else floats(stated))
    low, high = ends
    if low is not None and high is not None and low.item() > high.item():
        raise Unreadable("network: Clip with min above max")
    result = ref if low is None else net.total([(net.curve(net.total([(ref, 1)], -low)), 1)], low)
    return result if high is None else net.total([(result, 1), (net.curve(net.total([(ref, 1)], -high)), -1)])


def tanh(net: Network, _: Attributes, given: list[Any]) -> Ref:
    """2 sigmoid(2 z) - 1."""
    two = np.full(1, 2.0)
    inner = net.curve(net.scale(ref_of(given[0]), two, two), SIGMOID)
    return net.total([(net.scale(inner, two, two), 1)], -np.ones(1))


def reshape(_: Network, a: Attributes, given: list[Any]) -> Any:
    if a.get("allowzero", 0):
        raise Unreadable("network: Reshape with allowzero")
    wanted = [given[0].shape[k] if v == 0 else v for k, v in enumerate(setting(a, "shape", given, 1))]
    return moved(given[0], lambda x: x.reshape(wanted))


def squeeze(_: Network, a: Attributes, given: list[Any]) -> Any:
    axes = setting(a, "axes", given, 1)
    return moved(given[0], lambda x: np.squeeze(x, None if axes is None else tuple(axes)))


def slice_rule(_: Network, a: Attributes, given: list[Any]) -> Any:
    starts, ends, axes, steps = (
        setting(a, n, given, k) for k, n in enumerate(("starts", "ends", "axes", ""), 1)
    )
    where = [slice(None)] * len(given[0].shape)
    for k, axis in enumerate(range(len(starts)) if axes is None else axes):
        where[axis] = slice(starts[k], ends[k], 1 if steps is None else steps[k])
        if where[axis].step < 1:
            raise Unreadable("network: Slice with a negative step")
    return moved(given[0], lambda x: x[tuple(where)])


def split(_: Network, a: Attributes, given: list[Any]) -> list[Any]:
    sizes, count = setting(a, "split", given, 1), a["outputs"]
    cuts = count if sizes is None else np.cumsum(sizes)[:-1]
    return [moved(given[0], lambda x: np.split(x, cuts, a.get("axis", 0))[k]) for k in range(count)]  # noqa: B023


def concat(net: Network, a: Attributes, given: list[Any]) -> Any:
    if not any(isinstance(v, Ref) for v in given):
        return np.concatenate(given, a["axis"])
    parts = []
    for k, value in enumerate(given):
        if isinstance(value, Ref):
            wide = [np.full(v.shape, -1) if j != k else value.places for j, v in enumerate(given)]
            parts.append((Ref(value.node, np.concatenate(wide, a["axis"])), 1))
    bias = np.concatenate([np.zeros(v.shape) if isinstance(v, Ref) else floats(v) for v in given], a["axis"])
    return net.total(parts, bias if bias.any() else None)


def pad(_: Network, a: Attributes, given: list[Any]) -> Any:
    pads = setting(a, "pads", given, 1)
    value = a.get("value", 0.0) if len(given) < 3 or given[2] is None else floats(given[2]).item()
    if a.get("mode", b"constant") != b"constant" or value != 0 or min(pads) < 0 or len(given) > 3:
        raise Unreadable("network: Pad with anything but zeros")
    ends = [*zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)]
    limit_size(tuple(n + p + q for n, (p, q) in zip(given[0].shape, ends, strict=True)))
    return moved(ref_of(given[0]), lambda x: np.pad(x, ends, constant_values=-1))


RULES: dict[str, Rule] = {
    "Add": lambda net, _, given: add(net, 1, *given), "Sub": lambda net, _, given: add(net, -1, *given),
    "Neg": lambda net, _, given: net.total([(ref_of(given[0]), -1)]), "Mul": mul, "Div": div, "MatMul": matmul,
    "Gemm": gemm, "Conv": conv, "ConvTranspose": conv_transpose, "BatchNormalization": batch_norm,
    "Relu": lambda net, _, given: net.curve(ref_of(given[0])), "LeakyRelu": leaky_relu, "Clip": clip,
    "Sigmoid": lambda net, _, given: net.curve(ref_of(given[0]), SIGMOID), "Tanh": tanh,
    "MaxPool": lambda net, a, given: pool(net, a, given, True),
    "AveragePool": lambda net, a, given: pool(net, a, given, False),
    "Flatten": lambda _, a, given: moved(given[0], lambda x: x.reshape(prod(x.shape[: a.get("axis", 1)]), -1)),
    "Reshape": reshape, "Squeeze": squeeze, "Slice": slice_rule, "Split": split, "Concat": concat, "Pad": pad,
    "Unsqueeze": lambda _, a, given: moved(
        given[0], lambda x: np.expand_dims(x, tuple(setting(a, "axes", given, 1)))),
    "Transpose": lambda _, a, given: moved(given[0], lambda x: np.transpose(x, a.get("perm"))),
    "Gather": lambda _, a, given: moved(
        given[0], lambda x: np.take(x, floats(given[1]).astype(np.int64), a.get("axis", 0))),
    "Identity": lambda _, __, given: given[0], "Dropout": lambda _, __, given: given[0],
    "Shape": lambda _, a, given: np.array(given[0].shape[a.get("start", 0) : a.get("end")], np.int64),
    "Constant": lambda _, a, __: constant(numpy_helper.to_array(a["value"])),
}  # fmt: skip
