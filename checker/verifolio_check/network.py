"""ONNX files as a list of nodes: the input, affine maps of earlier nodes, and ReLUs. Everything else is written so.

Maxima, clips and leaky ReLUs become ReLUs by identities that hold for all reals:
max(a, b) = b + relu(a - b), clip(z) = low + relu(z - low) - relu(z - high), leaky(z) = s z + (1 - s) relu(z).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt, prod
from pathlib import Path
from typing import Any

import numpy as np

from verifolio_check.integers import Floats, Ints, Unreadable, around
from verifolio_check.linear import Linear, Product, Scale, Select

MOST_NODES, MOST_VALUES, MOST_ENTRIES = 10_000, 1 << 24, 1 << 28
LARGEST_FILE = 1 << 31


@dataclass
class Node:
    """The input (no terms, not a ReLU), a sum of linear maps plus a bias in [low, high], or a ReLU of `parent`."""

    size: int
    terms: list[tuple[int, Linear]] = field(default_factory=list)
    low: Floats | None = None
    high: Floats | None = None
    parent: int = -1


@dataclass(frozen=True)
class Ref:
    """A tensor that is computed: the flat values of a node, in this shape."""

    node: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    def places(self) -> Ints:
        return np.arange(self.size).reshape(self.shape)


@dataclass(frozen=True)
class Const:
    """A constant tensor, exact unless low and high differ."""

    low: Any
    high: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.low.shape)

    def exact(self) -> Any:
        if self.low is not self.high and (self.low != self.high).any():
            raise Unreadable("network: a shape or an index that is not exact")
        return self.low


Value = Ref | Const


@dataclass
class Network:
    nodes: list[Node]
    output: int

    @property
    def relus(self) -> list[int]:
        return [n for n, node in enumerate(self.nodes) if node.parent >= 0]


def read(path: Path) -> Network:
    """The network of a file with one input and one output."""
    import onnx
    from onnx import numpy_helper

    try:
        if path.stat().st_size > LARGEST_FILE:
            raise Unreadable(f"network: larger than {LARGEST_FILE} bytes")
        graph = onnx.load_model(str(path), load_external_data=False).graph
        held = {t.name: constant(numpy_helper.to_array(t)) for t in graph.initializer}
    except OSError as error:
        raise Unreadable(f"network: {error}") from error
    except Unreadable:
        raise
    except Exception as error:  # protobuf raises what it likes
        raise Unreadable(f"network: {type(error).__name__}: {error}") from error
    inputs = [i for i in graph.input if i.name not in held]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise Unreadable("network: expected one input and one output")
    shape = tuple(d.dim_value or 1 for d in inputs[0].type.tensor_type.shape.dim)
    builder = Builder({**held, inputs[0].name: Ref(0, shape)}, [Node(prod(shape))])
    builder.check_size()
    for step in graph.node:
        builder.add(step)
    result = builder.values.get(graph.output[0].name)
    if not isinstance(result, Ref):
        raise Unreadable("network: the output does not depend on the input")
    return Network(builder.nodes, result.node)


def constant(array: Any) -> Const:
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise Unreadable("network: a weight that is not finite")
    elif array.dtype.kind not in "iub":
        raise Unreadable(f"network: constants of type {array.dtype}")
    return Const(array, array)


def rational(value: Any) -> Fraction:
    return Fraction(float(value)) if isinstance(value, float | np.floating) else Fraction(int(value))


def intervals(values: list[Fraction], shape: tuple[int, ...]) -> Const:
    """Rationals, or what doubles enclose them."""
    ends = [around(v) for v in values]
    low, high = (np.array([e[k] for e in ends], np.float64).reshape(shape) for k in (0, 1))
    return Const(low, high)


class Builder:
    """Nodes so far, and the value behind every tensor's name."""

    def __init__(self, values: dict[str, Value], nodes: list[Node]) -> None:
        self.values, self.nodes = values, nodes
        self.count = nodes[0].size

    def check_size(self) -> None:
        if self.count > MOST_VALUES or len(self.nodes) > MOST_NODES or self.nodes[-1].size < 1:
            raise Unreadable("network: too many nodes or values, or an empty tensor")

    def add(self, step: Any) -> None:
        """One ONNX node."""
        rule = RULES.get(step.op_type)
        if rule is None or step.domain not in ("", "ai.onnx"):
            raise Unreadable(f"network: this checker does not read the operator {step.op_type}")
        if any(name and name not in self.values for name in step.input):
            raise Unreadable(f"network: {step.op_type} reads a tensor that nothing has computed")
        given = [self.values[name] if name else None for name in step.input]
        try:
            result = rule(self, Attributes(step), given)
        except Unreadable:
            raise
        except (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError) as error:
            raise Unreadable(f"network: {step.op_type}: {error}") from error
        outputs = result if isinstance(result, list) else [result]
        self.values.update({name: v for name, v in zip(step.output, outputs, strict=False) if name})

    def new(self, node: Node, shape: tuple[int, ...]) -> Ref:
        self.nodes.append(node)
        self.count += node.size
        self.check_size()
        return Ref(len(self.nodes) - 1, shape)

    def linear(self, ref: Ref, linear: Linear, shape: tuple[int, ...]) -> Ref:
        if linear.inputs != self.nodes[ref.node].size or linear.outputs != prod(shape):
            raise ValueError("shapes that do not fit")
        return self.new(Node(linear.outputs, [(ref.node, linear)]), shape)

    def select(self, ref: Ref, places: Ints, sign: int = 1) -> Ref:
        """Some values of a tensor, by their flat places (-1: zero)."""
        if sign > 0 and places.size == ref.size and (places.ravel() == np.arange(ref.size)).all():
            return Ref(ref.node, places.shape)
        return self.linear(ref, Select(places.ravel().astype(np.int64), ref.size, sign), places.shape)

    def relu(self, ref: Ref) -> Ref:
        return self.new(Node(ref.size, parent=ref.node), ref.shape)

    def total(self, a: Ref, b: Ref, sign: int = 1) -> Ref:
        """a + b, or a - b, broadcast."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        terms: list[tuple[int, Linear]] = []
        for ref, s in ((a, 1), (b, sign)):
            places = np.broadcast_to(ref.places(), shape).ravel()
            terms.append((ref.node, Select(places, ref.size, s)))
        return self.new(Node(prod(shape), terms), shape)

    def shift(self, ref: Ref, by: Const) -> Ref:
        """ref + by; joined to an affine node that nobody else reads yet and that has no bias."""
        shape = np.broadcast_shapes(ref.shape, by.shape)
        if prod(shape) != ref.size:
            ref = self.select(ref, np.broadcast_to(ref.places(), shape))
        low, high = (np.broadcast_to(e, shape).ravel().astype(np.float64) for e in (by.low, by.high))
        last = self.nodes[-1]
        if ref.node == len(self.nodes) - 1 and last.terms and last.low is None:
            # a copy: whoever reads the tensor without the bias still can
            return self.new(Node(last.size, last.terms, low, high), shape)
        same = Select(np.arange(ref.size), ref.size)
        return self.new(Node(ref.size, [(ref.node, same)], low, high), shape)

    def scale(self, ref: Ref, by: Const) -> Ref:
        shape = np.broadcast_shapes(ref.shape, by.shape)
        if prod(shape) != ref.size:
            ref = self.select(ref, np.broadcast_to(ref.places(), shape))
        low, high = (np.broadcast_to(e, shape).ravel().astype(np.float64) for e in (by.low, by.high))
        return self.linear(ref, Scale(low, high), shape)


class Attributes:
    """The attributes of an ONNX node."""

    def __init__(self, step: Any) -> None:
        self.held = {a.name: a for a in step.attribute}
        self.outputs = len(step.output)

    def get(self, name: str, default: Any = None) -> Any:
        from onnx import helper

        return helper.get_attribute_value(self.held[name]) if name in self.held else default


Rule = Callable[[Builder, Attributes, list[Any]], Any]


def ref_of(value: Any) -> Ref:
    if not isinstance(value, Ref):
        raise ValueError("expected a tensor that depends on the input")
    return value


def const_of(value: Any) -> Const:
    if not isinstance(value, Const):
        raise ValueError("expected a constant")
    return value


def negated(c: Const) -> Const:
    return Const(-c.high.astype(np.float64), -c.low.astype(np.float64))


def add(b: Builder, _: Attributes, given: list[Any]) -> Value:
    left, right = given
    if isinstance(left, Ref) and isinstance(right, Ref):
        return b.total(left, right)
    return b.shift(ref_of(left), right) if isinstance(left, Ref) else b.shift(ref_of(right), left)


def sub(b: Builder, _: Attributes, given: list[Any]) -> Value:
    left, right = given
    if isinstance(left, Ref) and isinstance(right, Ref):
        return b.total(left, right, -1)
    if isinstance(left, Ref):
        return b.shift(left, negated(right))
    return b.shift(b.select(ref_of(right), right.places(), -1), left)


def mul(b: Builder, _: Attributes, given: list[Any]) -> Value:
    left, right = given
    return b.scale(left, const_of(right)) if isinstance(left, Ref) else b.scale(ref_of(right), left)


def div(b: Builder, _: Attributes, given: list[Any]) -> Value:
    divisor = const_of(given[1]).exact()
    inverse = intervals([1 / rational(v) for v in divisor.ravel()], divisor.shape)
    return b.scale(ref_of(given[0]), inverse)


def matmul(b: Builder, _: Attributes, given: list[Any]) -> Value:
    ref, weight = ref_of(given[0]), const_of(given[1]).exact().astype(np.float64)
    if weight.ndim != 2 or ref.shape[-1] != weight.shape[0]:
        raise Unreadable("network: MatMul of anything but a tensor by a matrix")
    return b.linear(ref, Product(weight[None], weight[None], ref.size), (*ref.shape[:-1], weight.shape[1]))


def gemm(b: Builder, a: Attributes, given: list[Any]) -> Value:
    if a.get("transA", 0) or a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1:
        raise Unreadable("network: Gemm with transA, alpha or beta")
    weight = const_of(given[1]).exact()
    weight = Const(*(2 * (weight.T if a.get("transB", 0) else weight,)))
    result = matmul(b, a, [given[0], weight])
    return result if len(given) < 3 or given[2] is None else add(b, a, [result, given[2]])


def batch_norm(b: Builder, a: Attributes, given: list[Any]) -> Value:
    """x s / sqrt(v + e) + (t - m s / sqrt(v + e)), the root enclosed to 60 bits."""
    ref = ref_of(given[0])
    scale, shift, mean, variance = (const_of(g).exact() for g in given[1:5])
    low, high = [], []
    for v in variance:
        square = rational(v) + rational(float(a.get("epsilon", 1e-5)))
        root = Fraction(isqrt(int(square * 4**60)), 2**60)  # below the root by less than 2^-60
        low.append(1 / (root + Fraction(1, 2**60)))
        high.append(1 / root)
    ends = [sorted((rational(s) * x, rational(s) * y)) for s, x, y in zip(scale, low, high, strict=True)]
    moved = [
        sorted(rational(t) - rational(m) * e for e in pair)
        for t, m, pair in zip(shift, mean, ends, strict=True)
    ]
    form = (-1,) + (1,) * (len(ref.shape) - 2)
    factor, offset = (
        Const(*(np.array([around(pair[k])[k] for pair in part]).reshape(form) for k in (0, 1)))
        for part in (ends, moved)
    )
    return b.shift(b.scale(ref, factor), offset)


def windows(shape: tuple[int, ...], a: Attributes, kernel: list[int]) -> tuple[Ints, tuple[int, ...]]:
    """Places of a channel's patches (patches, kernel entries; -1: padding) and the shape of the patches."""
    space = list(shape)
    count = len(space)
    strides, dilations = a.get("strides", [1] * count), a.get("dilations", [1] * count)
    pads = a.get("pads", [0] * 2 * count)
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or a.get("ceil_mode", 0):
        raise Unreadable("network: automatic padding or ceil_mode")
    if len(strides) != count or len(pads) != 2 * count or min(pads) < 0 or min([*strides, *dilations]) < 1:
        raise Unreadable("network: strides or pads that do not fit")
    axes, out = [], []
    for i in range(count):
        span = space[i] + pads[i] + pads[i + count] - (kernel[i] - 1) * dilations[i] - 1
        starts = np.arange(span // strides[i] + 1 if span >= 0 else 0) * strides[i] - pads[i]
        place = starts[:, None] + np.arange(kernel[i]) * dilations[i]
        axes.append(np.where((place >= 0) & (place < space[i]), place, -1))
        out.append(len(starts))
    if prod(out) * prod(kernel) > MOST_ENTRIES:
        raise Unreadable("network: a convolution too large")
    flat = np.zeros((1, 1), np.int64)
    for axis, extent in zip(axes, space, strict=True):
        joined = flat[:, None, :, None] * extent + axis[None, :, None, :]
        joined[
            np.broadcast_to((flat[:, None, :, None] < 0) | (axis[None, :, None, :] < 0), joined.shape)
        ] = -1
        flat = joined.reshape(len(flat) * len(axis), -1)
    return flat, tuple(out)


def conv(b: Builder, a: Attributes, given: list[Any]) -> Value:
    ref, weight = ref_of(given[0]), const_of(given[1]).exact().astype(np.float64)
    groups, channels = a.get("group", 1), ref.shape[1]
    if ref.shape[0] != 1 or weight.shape[1] * groups != channels or weight.shape[0] % groups:
        raise Unreadable("network: a convolution whose channels do not fit")
    patches, out = windows(ref.shape[2:], a, list(weight.shape[2:]))
    product = convolution(weight, weight, ref.size, patches, groups, prod(ref.shape[2:]))
    result = b.linear(ref, product, (1, weight.shape[0], *out))
    if len(given) < 3 or given[2] is None:
        return result
    bias = const_of(given[2])
    form = (-1,) + (1,) * len(out)
    return b.shift(result, Const(bias.low.reshape(form), bias.high.reshape(form)))


def convolution(low: Floats, high: Floats, inputs: int, patches: Ints, groups: int, area: int) -> Product:
    """Patches of one channel are repeated for the channels of every group."""
    each = low.shape[1]
    if patches.size * groups * each > MOST_ENTRIES:
        raise Unreadable("network: a convolution too large")
    first = (np.arange(groups * each) * area).reshape(groups, 1, each, 1)
    index = np.where(patches[None, :, None, :] >= 0, patches[None, :, None, :] + first, -1)
    first_end, last_end = (
        e.reshape(groups, low.shape[0] // groups, -1).transpose(0, 2, 1) for e in (low, high)
    )
    places = index.reshape(groups, len(patches), -1)
    return Product(first_end, last_end, inputs, places, channels_first=True)


def average_pool(b: Builder, a: Attributes, given: list[Any]) -> Value:
    ref, kernel = ref_of(given[0]), a.get("kernel_shape")
    if any(a.get("pads", [])) and not a.get("count_include_pad", 0):
        raise Unreadable("network: AveragePool whose padding does not count")
    patches, out = windows(ref.shape[2:], a, kernel)
    channels = ref.shape[1]
    low, high = (np.full((channels, 1, prod(kernel)), e) for e in around(Fraction(1, prod(kernel))))
    product = convolution(low, high, ref.size, patches, channels, prod(ref.shape[2:]))
    return b.linear(ref, product, (1, channels, *out))


def max_pool(b: Builder, a: Attributes, given: list[Any]) -> Value:
    ref = ref_of(given[0])
    patches, out = windows(ref.shape[2:], a, a.get("kernel_shape"))
    if (patches < 0).any() or a.outputs > 1:
        raise Unreadable("network: MaxPool with padding or indices")
    area = prod(ref.shape[2:])
    places = (np.arange(ref.shape[1]) * area)[:, None, None] + patches
    entries = [b.select(ref, places[:, :, t].ravel()) for t in range(places.shape[2])]
    while len(entries) > 1:
        pairs = zip(entries[::2], entries[1::2], strict=False)
        best = [b.total(second, b.relu(b.total(first, second, -1))) for first, second in pairs]
        entries = best + entries[len(entries) - len(entries) % 2 :]
    return Ref(entries[0].node, (1, ref.shape[1], *out))


def leaky_relu(b: Builder, a: Attributes, given: list[Any]) -> Value:
    ref, slope = ref_of(given[0]), rational(float(a.get("alpha", 0.01)))
    low = b.scale(ref, intervals([slope], (1,)))
    return b.total(low, b.scale(b.relu(ref), intervals([1 - slope], (1,))))


def clip(b: Builder, a: Attributes, given: list[Any]) -> Value:
    ref = ref_of(given[0])
    named = [constant(np.array(float(a.get(n)))) if a.get(n) is not None else None for n in ("min", "max")]
    low, high = (
        const_of(given[k + 1]) if len(given) > k + 1 and given[k + 1] is not None else named[k]
        for k in (0, 1)
    )
    if low is not None and high is not None and rational(low.exact().item()) > rational(high.exact().item()):
        raise Unreadable("network: Clip with min above max")
    result = ref if low is None else b.shift(b.relu(b.shift(ref, negated(low))), low)
    if high is None:
        return result
    over = b.relu(b.shift(ref, negated(high)))
    return b.total(result, over, -1)


def reshape(_: Builder, __: Attributes, given: list[Any]) -> Value:
    value = given[0]
    wanted = [int(v) for v in const_of(given[1]).exact().ravel()]
    wanted = [value.shape[k] if v == 0 else v for k, v in enumerate(wanted)]
    if isinstance(value, Const):
        return Const(value.low.reshape(wanted), value.high.reshape(wanted))
    return Ref(value.node, value.places().reshape(wanted).shape)


def flatten(_: Builder, a: Attributes, given: list[Any]) -> Value:
    ref = ref_of(given[0])
    axis = a.get("axis", 1) % (len(ref.shape) + 1)
    return Ref(ref.node, (prod(ref.shape[:axis]), prod(ref.shape[axis:])))


def moved(change: Callable[[Any], Any], b: Builder, value: Any) -> Value:
    """What numpy does to an array of places, or to a constant."""
    if isinstance(value, Const):
        return Const(change(value.low), change(value.high))
    return b.select(ref_of(value), change(value.places()))


def axes_of(a: Attributes, given: list[Any]) -> tuple[int, ...] | None:
    axes = a.get("axes") if len(given) < 2 or given[1] is None else const_of(given[1]).exact().tolist()
    return None if axes is None else tuple(int(x) for x in axes)


def unsqueeze(b: Builder, a: Attributes, given: list[Any]) -> Value:
    axes = axes_of(a, given)
    return moved(lambda x: np.expand_dims(x, axes or ()), b, given[0])


def squeeze(b: Builder, a: Attributes, given: list[Any]) -> Value:
    axes = axes_of(a, given)
    return moved(lambda x: np.squeeze(x, axes), b, given[0])


def transpose(b: Builder, a: Attributes, given: list[Any]) -> Value:
    return moved(lambda x: np.transpose(x, a.get("perm")), b, given[0])


def gather(b: Builder, a: Attributes, given: list[Any]) -> Value:
    index = const_of(given[1]).exact()
    return moved(lambda x: np.take(x, index, axis=a.get("axis", 0)), b, given[0])


def slice_rule(b: Builder, a: Attributes, given: list[Any]) -> Value:
    held = [a.get("starts"), a.get("ends"), a.get("axes"), None]
    for k, value in enumerate(given[1:]):
        held[k] = None if value is None else const_of(value).exact().tolist()
    starts, ends, axes, steps = held
    axes = list(range(len(starts))) if axes is None else axes
    where = [slice(None)] * len(given[0].shape)
    for k, axis in enumerate(axes):
        step = 1 if steps is None else int(steps[k])
        if step < 1:
            raise Unreadable("network: Slice with a negative step")
        where[int(axis)] = slice(int(starts[k]), int(ends[k]), step)
    return moved(lambda x: x[tuple(where)], b, given[0])


def split(b: Builder, a: Attributes, given: list[Any]) -> list[Value]:
    axis, sizes = a.get("axis", 0), a.get("split")
    if len(given) > 1 and given[1] is not None:
        sizes = const_of(given[1]).exact().tolist()
    cuts = a.outputs if sizes is None else np.cumsum(sizes)[:-1]
    return [
        moved(lambda x, k=k: np.split(x, cuts, axis)[k], b, given[0])  # type: ignore[misc]
        for k in range(a.outputs)
    ]


def concat(b: Builder, a: Attributes, given: list[Any]) -> Value:
    axis = a.get("axis")
    if all(isinstance(v, Const) for v in given):
        return Const(*(np.concatenate([getattr(v, end) for v in given], axis) for end in ("low", "high")))
    whole = np.concatenate([np.full(v.shape, k) for k, v in enumerate(given)], axis)
    result, bias = Node(whole.size), np.zeros((2, *whole.shape))
    for k, value in enumerate(given):
        if isinstance(value, Const):
            for e, end in enumerate((value.low, value.high)):
                bias[e][whole == k] = end.ravel()
            continue
        places = np.full(whole.shape, -1)
        places[whole == k] = np.arange(value.size)
        result.terms.append((value.node, Select(places.ravel(), value.size)))
    if bias.any():
        result.low, result.high = bias[0].ravel(), bias[1].ravel()
    return b.new(result, whole.shape)


def pad(b: Builder, a: Attributes, given: list[Any]) -> Value:
    pads = a.get("pads") if len(given) < 2 else const_of(given[1]).exact().tolist()
    value = a.get("value", 0.0) if len(given) < 3 or given[2] is None else const_of(given[2]).exact().item()
    if a.get("mode", b"constant") != b"constant" or value != 0 or min(pads) < 0 or len(given) > 3:
        raise Unreadable("network: Pad with anything but zeros")
    ref, count = ref_of(given[0]), len(pads) // 2
    return b.select(
        ref, np.pad(ref.places(), [*zip(pads[:count], pads[count:], strict=True)], constant_values=-1)
    )


def same(_: Builder, __: Attributes, given: list[Any]) -> Value:
    return given[0]  # type: ignore[no-any-return]


def shape_rule(_: Builder, __: Attributes, given: list[Any]) -> Value:
    return constant(np.array(given[0].shape, np.int64))


def constant_rule(_: Builder, a: Attributes, __: list[Any]) -> Value:
    from onnx import numpy_helper

    if a.get("value") is None:
        raise Unreadable("network: Constant without a tensor")
    return constant(numpy_helper.to_array(a.get("value")))


RULES: dict[str, Rule] = {
    "Add": add, "Sub": sub, "Mul": mul, "Div": div, "MatMul": matmul, "Gemm": gemm, "Conv": conv,
    "BatchNormalization": batch_norm, "Relu": lambda b, _, given: b.relu(ref_of(given[0])),
    "LeakyRelu": leaky_relu, "Clip": clip, "MaxPool": max_pool, "AveragePool": average_pool,
    "Neg": lambda b, _, given: b.select(ref_of(given[0]), given[0].places(), -1),
    "Flatten": flatten, "Reshape": reshape, "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Transpose": transpose,
    "Gather": gather, "Slice": slice_rule, "Split": split, "Concat": concat, "Pad": pad, "Identity": same,
    "Dropout": same, "Shape": shape_rule, "Constant": constant_rule,
}  # fmt: skip
