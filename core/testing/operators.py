"""For every operator that can be imported: how a random network uses it.

A layer takes a draft and the name of a tensor and returns the name of the next one. `LAYERS` has one entry for
each key of the importer's table; a test fails where one is missing, so a new operator is fuzzed from its first day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verifolio.testing.draft import Draft
from verifolio.testing.pattern_layers import (
    attention,
    cumulative_sum,
    einsum,
    gather_elements,
    gather_nd,
    group_norm,
    rms_norm,
    triangle,
)
from verifolio.testing.shape_layers import (
    cast,
    concat,
    constant,
    constant_of_shape,
    dropout,
    expand,
    flatten,
    gather,
    mod,
    pad,
    range_of,
    reshape,
    shape_of,
    size_of,
    slice_of,
    split,
    squeeze,
    tile,
    transpose,
    upsample,
    where,
)
from verifolio.testing.step_layers import (
    extremal,
    masked,
    quantised_product,
    quantize,
    rounded,
    scatter,
    whole_product,
)

Layer = Callable[[Draft, str], str]


def _plain(op: str, **attributes: Any) -> Layer:
    """An operator of one input and no constants."""
    return lambda d, x: d.add(op, x, **attributes)


def _small(op: str, scale: float = 0.3) -> Layer:
    """A function that grows quickly, of a tensor that is kept small."""
    return lambda d, x: d.add(op, d.dense(x, min(d.size(x), 12), scale))


def _positive(op: str) -> Layer:
    """A function of positive numbers."""
    return lambda d, x: d.add(op, d.positive(x))


def _image(op: str, **attributes: Any) -> Layer:
    return lambda d, x: d.add(op, d.image(x), **attributes)


def _binary(op: str, least: float = -1.5, most: float = 1.5) -> Layer:
    """With a constant per channel, on either side, or with another variable."""

    def layer(d: Draft, x: str) -> str:
        other = d.per_channel(x, least, most)
        if d.rng.random() < 0.25 and len(d.shapes[x]) == 2:
            other = d.dense(x, d.size(x))
        return d.add(op, other, x) if d.rng.random() < 0.3 else d.add(op, x, other)

    return layer


def _div(d: Draft, x: str) -> str:
    choice = d.rng.random()
    if choice < 0.6:
        return d.add("Div", x, d.per_channel(x, 0.4, 2.5))
    small = d.dense(x, min(d.size(x), 8))
    return d.add("Div", small if choice < 0.8 else d.constant(1.5), d.positive(small))


def _mul(d: Draft, x: str) -> str:
    if d.rng.random() < 0.7:
        return d.add("Mul", x, d.per_channel(x))
    a = d.dense(x, min(d.size(x), 8))
    return d.add("Mul", a, a if d.rng.random() < 0.3 else d.dense(x, d.size(a)))


def _pow(d: Draft, x: str) -> str:
    power = float(d.rng.choice([2.0, 2.0, 3.0, 0.5, -1.0, 1.5]))
    base = d.dense(x, min(d.size(x), 8), 0.6)
    return d.add("Pow", base if power in (2.0, 3.0) else d.positive(base), d.constant(power))


def _gemm(d: Draft, x: str) -> str:
    x = d.flat(x)
    weight = d.constant(d.rng.normal(size=(d.size(x), 7)) / np.sqrt(d.size(x)))
    return d.add("Gemm", x, weight, d.draw(1, 7), alpha=0.75, beta=1.25)


def _matmul(d: Draft, x: str) -> str:
    x = d.flat(x)
    n = d.size(x)
    if d.rng.random() < 0.25:
        a, b = d.dense(x, 6, 0.8), d.dense(x, 6, 0.8)
        left, right = d.add("Reshape", a, d.integers(1, 2, 3)), d.add("Reshape", b, d.integers(1, 3, 2))
        return d.flat(d.add("MatMul", left, right))
    if d.rng.random() < 0.5 and n % 2 == 0:
        rows = d.add("Reshape", x, d.integers(2, n // 2))
        product = d.add("MatMul", rows, d.constant(d.rng.normal(size=(n // 2, 5)) / np.sqrt(n // 2)))
        return d.add("Reshape", product, d.integers(1, 10))
    return d.add("MatMul", x, d.constant(d.rng.normal(size=(n, 9)) / np.sqrt(n)))


def _conv(d: Draft, x: str) -> str:
    x = d.image(x)
    _, channels, height, width = d.shapes[x]
    groups = 2 if channels % 2 == 0 and d.rng.random() < 0.3 else 1
    out = int(d.rng.integers(1, 4)) * groups
    high, wide = min(3, height), min(int(d.rng.integers(1, 4)), width)
    weight = d.rng.normal(size=(out, channels // groups, high, wide))
    weight *= 1.4 / np.sqrt(weight[0].size)
    pads = [int(p) for p in d.rng.integers(0, 2, 4)]
    stride = [int(s) for s in d.rng.integers(1, 3, 2)]
    attributes: dict[str, Any] = {"group": groups, "pads": pads, "strides": stride}
    return d.add("Conv", x, d.constant(weight), d.draw(out, least=-0.4, most=0.4), **attributes)


def _conv_transpose(d: Draft, x: str) -> str:
    x = d.image(x, 2, 3, 3)
    channels = d.shapes[x][1]
    weight = d.rng.normal(size=(channels, 2, 2, 3)) / np.sqrt(channels * 2)
    stride = int(d.rng.integers(1, 3))
    return d.add("ConvTranspose", x, d.constant(weight), d.draw(2), strides=[stride, 1], pads=[0, 1, 1, 0])


def _batch_norm(d: Draft, x: str) -> str:
    channels = d.shapes[x][1]
    gamma, beta, mean = d.draw(channels), d.draw(channels), d.draw(channels, least=-0.3, most=0.3)
    return d.add("BatchNormalization", x, gamma, beta, mean, d.draw(channels, least=0.1, most=3.0))


def _average_pool(d: Draft, x: str) -> str:
    x = d.image(x)
    kernel = [min(2, s) for s in d.shapes[x][2:]]
    pads = [0, 0, *(int(d.rng.integers(0, k)) for k in kernel)]
    include = int(d.rng.integers(2))
    return d.add("AveragePool", x, kernel_shape=kernel, strides=[2, 1], pads=pads, count_include_pad=include)


def _max_pool(d: Draft, x: str) -> str:
    x = d.image(x)
    kernel = [min(2, s) for s in d.shapes[x][2:]]
    pads = [0, 0, *(int(d.rng.integers(0, k)) for k in kernel)]
    return d.add("MaxPool", x, kernel_shape=kernel, strides=[1, 2], pads=pads)


def _reduce(op: str, axes_as_input: bool = True, positive: bool = False) -> Layer:
    def layer(d: Draft, x: str) -> str:
        x = d.add("Reshape", d.dense(x, 12, 0.7), d.integers(1, 4, 3))
        x = d.positive(x) if positive else x
        axis, keep = int(d.rng.integers(1, 3)), int(d.rng.integers(2))
        if axes_as_input:
            return d.add(op, x, d.integers(axis), keepdims=keep)
        return d.add(op, x, axes=[axis], keepdims=keep)

    return layer


def _extreme(op: str) -> Layer:
    """With a constant, between ReLUs and dense layers; or of two variables."""

    def layer(d: Draft, x: str) -> str:
        if d.rng.random() < 0.7:
            return d.add(op, x, d.per_channel(x, -0.5, 0.5))
        x = d.flat(x)
        return d.add(op, x, d.dense(x, d.size(x)), d.constant(0.1))

    return layer


def _clip(d: Draft, x: str) -> str:
    least = 0.0 if d.rng.random() < 0.6 else float(d.rng.uniform(-1, 0))
    return d.add("Clip", x, d.constant(least), d.constant(float(d.rng.choice([0.5, 1.0, 6.0]))))


def _prelu(d: Draft, x: str) -> str:
    return d.add("PRelu", x, d.per_channel(x, 0.05, 0.6))


def _leaky(d: Draft, x: str) -> str:
    return d.add("LeakyRelu", x, alpha=float(d.rng.choice([0.01, 0.1, 0.3])))


def _layer_norm(d: Draft, x: str) -> str:
    x = d.dense(x, 6)
    return d.add("LayerNormalization", x, d.draw(6), d.draw(6), epsilon=0.1)


def _instance_norm(d: Draft, x: str) -> str:
    x = d.image(d.dense(x, 8), 2, 2, 2)
    return d.add("InstanceNormalization", x, d.draw(2), d.draw(2), epsilon=0.1)


def _softmax(op: str) -> Layer:
    return lambda d, x: d.add(op, d.dense(x, int(d.rng.integers(2, 6))), axis=1)


def _resize(d: Draft, x: str) -> str:
    mode = str(d.rng.choice(["nearest", "linear"]))
    scales = d.constant([1.0, 1.0, 2.0, 2.0])
    where = "asymmetric" if mode == "nearest" else "half_pixel"
    attributes = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    return d.add("Resize", d.image(x), "", scales, **attributes)


def _several(op: str) -> Layer:
    def layer(d: Draft, x: str) -> str:
        x = d.flat(x)
        return d.add(op, x, d.dense(x, d.size(x)), d.draw(1, d.size(x)))

    return layer


def _blocks(op: str, channels: int, side: int) -> Layer:
    return lambda d, x: d.add(
        op, d.image(d.dense(x, channels * side * side), channels, side, side), blocksize=2
    )


LAYERS: Mapping[str, Layer] = {
    "Abs": _plain("Abs"),
    "Add": _binary("Add"),
    "And": masked("And", 2, np.bool_),
    "ArgMax": extremal("ArgMax"),
    "ArgMin": extremal("ArgMin"),
    "Attention": attention,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": cast,
    "Ceil": rounded("Ceil"),
    "Celu": _plain("Celu", alpha=0.7),
    "Clip": _clip,
    "Concat": concat,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Conv": _conv,
    "ConvInteger": whole_product("ConvInteger"),
    "ConvTranspose": _conv_transpose,
    "Cos": _plain("Cos"),
    "CumSum": cumulative_sum,
    "DequantizeLinear": quantize,
    "DepthToSpace": _blocks("DepthToSpace", 4, 2),
    "Div": _div,
    "Dropout": dropout,
    "Einsum": einsum,
    "Elu": _plain("Elu", alpha=0.7),
    "Equal": masked("Equal", 2, np.int64),
    "Erf": _plain("Erf"),
    "Exp": _small("Exp"),
    "Expand": expand,
    "Flatten": flatten,
    "Floor": rounded("Floor"),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gelu": _plain("Gelu"),
    "Gemm": _gemm,
    "GlobalAveragePool": _image("GlobalAveragePool"),
    "GlobalMaxPool": _image("GlobalMaxPool"),
    "Greater": masked("Greater", 2, np.float32),
    "GreaterOrEqual": masked("GreaterOrEqual", 2, np.float32),
    "GroupNormalization": group_norm,
    "HardSigmoid": _plain("HardSigmoid", alpha=0.4, beta=0.3),
    "HardSwish": _plain("HardSwish"),
    "Identity": _plain("Identity"),
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _leaky,
    "Less": masked("Less", 2, np.float32),
    "LessOrEqual": masked("LessOrEqual", 2, np.float32),
    "Log": _positive("Log"),
    "LogSoftmax": _softmax("LogSoftmax"),
    "MatMul": _matmul,
    "MatMulInteger": whole_product("MatMulInteger"),
    "Max": _extreme("Max"),
    "MaxPool": _max_pool,
    "Mean": _several("Mean"),
    "Min": _extreme("Min"),
    "Mish": _plain("Mish"),
    "Mod": mod,
    "Mul": _mul,
    "Neg": _plain("Neg"),
    "Not": masked("Not", 1, np.bool_),
    "Or": masked("Or", 2, np.bool_),
    "PRelu": _prelu,
    "Pad": pad,
    "Pow": _pow,
    "QLinearConv": quantised_product("QLinearConv"),
    "QLinearMatMul": quantised_product("QLinearMatMul"),
    "QuantizeLinear": quantize,
    "RMSNormalization": rms_norm,
    "Range": range_of,
    "Reciprocal": _positive("Reciprocal"),
    "ReduceL1": _reduce("ReduceL1"),
    "ReduceL2": _reduce("ReduceL2", positive=True),
    "ReduceLogSum": _reduce("ReduceLogSum", positive=True),
    "ReduceLogSumExp": _reduce("ReduceLogSumExp"),
    "ReduceMax": _reduce("ReduceMax"),
    "ReduceMean": _reduce("ReduceMean"),
    "ReduceMin": _reduce("ReduceMin"),
    "ReduceProd": _reduce("ReduceProd"),
    "ReduceSum": _reduce("ReduceSum"),
    "ReduceSumSquare": _reduce("ReduceSumSquare"),
    "Relu": _plain("Relu"),
    "Reshape": reshape,
    "Resize": _resize,
    "Round": rounded("Round"),
    "ScatterND": scatter,
    "Selu": _plain("Selu"),
    "Shape": shape_of,
    "Sigmoid": _plain("Sigmoid"),
    "Sign": rounded("Sign"),
    "Sin": _plain("Sin"),
    "Size": size_of,
    "Slice": slice_of,
    "Softmax": _softmax("Softmax"),
    "Softplus": _plain("Softplus"),
    "Softsign": _plain("Softsign"),
    "SpaceToDepth": _blocks("SpaceToDepth", 1, 4),
    "Split": split,
    "Sqrt": _positive("Sqrt"),
    "Squeeze": squeeze,
    "Sub": _binary("Sub"),
    "Sum": _several("Sum"),
    "Swish": _plain("Swish", alpha=1.5),
    "Tanh": _plain("Tanh"),
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": triangle,
    "Unsqueeze": squeeze,
    "Upsample": upsample,
    "Where": where,
    "Xor": masked("Xor", 2, np.bool_),
}
# removed from later operator sets, or newer than the draft's own, which all others use
OPSETS = {"Upsample": 9, "GroupNormalization": 21, "Attention": 23, "RMSNormalization": 23, "Swish": 24}
