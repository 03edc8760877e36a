"""Write torch layers as ONNX files, operator by operator, with fixed shapes and float32 weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from verifolio.errors import InputError

OPSET = 13  # old enough for every tool of the competition, new enough for what is written here
IR_VERSION = 8  # of the time of that opset: newer ones are refused by older readers


class Residual(nn.Module):
    """x + body(x), through a shortcut when the shapes differ."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


class Normalise(nn.Module):
    """(x - mean) / std, channel by channel, so that a network reads images in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], dims: int = 3) -> None:
        super().__init__()
        shape = (1, len(mean)) + (1,) * (dims - 1)
        self.register_buffer("mean", torch.tensor(list(mean)).reshape(shape))
        self.register_buffer("std", torch.tensor(list(std)).reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def export_onnx(
    module: nn.Module,
    path: str | Path,
    input_shape: Sequence[int],
    batch: int | str = 1,
    name: str = "network",
) -> None:
    """Write `module` (layers of `torch.nn`, nested Sequential, Residual, Normalise) to `path`.

    `input_shape` excludes the batch dimension, which is fixed to 1 unless `batch` says otherwise (a string
    makes it symbolic). The written graph computes what the module computes in evaluation mode; layers that
    have no ONNX form here are all named in one error, and nothing is written then.
    """
    missing = unsupported_layers(module)
    if missing:
        raise InputError(
            str(path),
            f"layers of {', '.join(supported_layers())}",
            ", ".join(missing),
            "replace these layers",
        )
    training = module.training
    module.eval()
    with torch.no_grad():
        output_shape = tuple(module(torch.zeros(1, *input_shape)).shape)[1:]
    writer = _Writer()
    last = writer.write(module, "input")
    module.train(training)
    writer.nodes.append(helper.make_node("Identity", [last], ["output"]))
    graph = helper.make_graph(
        _drop_identity(writer.nodes),
        name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, *input_shape])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, *output_shape])],
        writer.tensors,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="verifolio"
    )
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(model.SerializeToString())


def _drop_identity(nodes: list[Any]) -> list[Any]:
    """Let the last real node write the output itself, where it is the only reader of its value."""
    if len(nodes) < 2 or nodes[-1].input[0] != nodes[-2].output[0]:
        return nodes
    nodes[-2].output[0] = "output"
    return nodes[:-1]


class _Writer:
    """Collects nodes and weights; every method returns the name of the value it wrote."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def constant(self, hint: str, value: Any, dtype: Any = np.float32) -> str:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        name = f"{hint}_{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    @singledispatchmethod
    def write(self, layer: Any, x: str) -> str:
        raise TypeError(f"no ONNX form for {type(layer).__name__}")

    @write.register
    def _(self, layer: nn.Sequential, x: str) -> str:
        for part in layer:
            x = self.write(part, x)
        return x

    @write.register
    def _(self, layer: Residual, x: str) -> str:
        return self.node("Add", [self.write(layer.body, x), self.write(layer.shortcut, x)])

    @write.register
    def _(self, layer: Normalise, x: str) -> str:
        shifted = self.node("Sub", [x, self.constant("mean", layer.mean)])
        return self.node("Div", [shifted, self.constant("std", layer.std)])

    @write.register
    def _(self, layer: nn.Linear, x: str) -> str:
        bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
        inputs = [x, self.constant("weight", layer.weight), self.constant("bias", bias)]
        return self.node("Gemm", inputs, transB=1)

    @write.register
    def _(self, layer: nn.Conv2d, x: str) -> str:
        inputs = [x, self.constant("weight", layer.weight)]
        if layer.bias is not None:
            inputs.append(self.constant("bias", layer.bias))
        return self.node(
            "Conv",
            inputs,
            kernel_shape=list(layer.kernel_size),
            strides=list(layer.stride),
            pads=_both_sides(_numbers(layer.padding)),
            dilations=list(layer.dilation),
            group=layer.groups,
        )

    @write.register(nn.BatchNorm1d)
    @write.register(nn.BatchNorm2d)
    def _(self, layer: Any, x: str) -> str:
        ones = torch.ones(layer.num_features)
        scale = ones if layer.weight is None else layer.weight
        bias = ones * 0 if layer.bias is None else layer.bias
        values = (scale, bias, layer.running_mean, layer.running_var)
        names = [self.constant(n, v) for n, v in zip(("scale", "bias", "mean", "var"), values, strict=True)]
        return self.node("BatchNormalization", [x, *names], epsilon=layer.eps)

    @write.register
    def _(self, layer: nn.MaxPool2d, x: str) -> str:
        return self.node("MaxPool", [x], **_window(layer))

    @write.register
    def _(self, layer: nn.AvgPool2d, x: str) -> str:
        return self.node("AveragePool", [x], count_include_pad=int(layer.count_include_pad), **_window(layer))

    @write.register
    def _(self, layer: nn.Flatten, x: str) -> str:
        return self.node("Flatten", [x], axis=1)

    @write.register(nn.Identity)
    @write.register(nn.Dropout)
    def _(self, layer: Any, x: str) -> str:
        return x

    @write.register
    def _(self, layer: nn.ReLU, x: str) -> str:
        return self.node("Relu", [x])

    @write.register
    def _(self, layer: nn.LeakyReLU, x: str) -> str:
        return self.node("LeakyRelu", [x], alpha=layer.negative_slope)

    @write.register
    def _(self, layer: nn.Sigmoid, x: str) -> str:
        return self.node("Sigmoid", [x])

    @write.register
    def _(self, layer: nn.Tanh, x: str) -> str:
        return self.node("Tanh", [x])

    @write.register
    def _(self, layer: nn.Softplus, x: str) -> str:
        return self.node("Softplus", [x])


def _numbers(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _both_sides(pads: tuple[int, int]) -> list[int]:
    return [pads[0], pads[1], pads[0], pads[1]]


def _window(layer: Any) -> dict[str, Any]:
    stride = layer.kernel_size if layer.stride is None else layer.stride
    return {
        "kernel_shape": list(_numbers(layer.kernel_size)),
        "strides": list(_numbers(stride)),
        "pads": _both_sides(_numbers(layer.padding)),
        "ceil_mode": int(layer.ceil_mode),
    }


def supported_layers() -> tuple[str, ...]:
    """Names of the layers that can be written."""
    known = _Writer.__dict__["write"].dispatcher.registry
    return tuple(sorted(t.__name__ for t in known if t is not object))


def unsupported_layers(module: nn.Module) -> tuple[str, ...]:
    """Names of the layers inside `module` that cannot be written, each once, with the settings at fault."""
    find = _Writer.__dict__["write"].dispatcher.dispatch
    if find(type(module)) is find(object):
        return (type(module).__name__,)
    names = {n: None for child in module.children() for n in unsupported_layers(child)}
    return (*names, *_bad_settings(module))


def _bad_settings(layer: nn.Module) -> tuple[str, ...]:
    """Settings of known layers that have no form here; checked so that nothing is written wrongly."""
    kind = type(layer).__name__
    if isinstance(layer, nn.Conv2d) and (isinstance(layer.padding, str) or layer.padding_mode != "zeros"):
        return (f"{kind} with padding {layer.padding!r} of mode {layer.padding_mode!r}",)
    if isinstance(layer, nn.MaxPool2d) and _numbers(layer.dilation) != (1, 1):
        return (f"{kind} with dilation {layer.dilation}",)
    if isinstance(layer, nn.AvgPool2d) and layer.divisor_override is not None:
        return (f"{kind} with a divisor of its own",)
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return (f"{kind} of dimensions {layer.start_dim} to {layer.end_dim}",)
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_mean is None:
        return (f"{kind} without running statistics",)
    if isinstance(layer, nn.Softplus) and (layer.beta, layer.threshold) != (1, 20):
        return (f"{kind} with beta {layer.beta}",)
    return ()
