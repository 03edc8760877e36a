"""Preprocessing as a part of the network: nodes in front of an ONNX model that scale and normalise its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError

Channels = Literal["rgb", "bgr"]


@dataclass(frozen=True)
class Preprocessing:
    """What happens to the data before the model reads it: (x / scale - mean) / std, channel by channel.

    `mean` and `std` have one number for everything, or one for each channel (of images) or feature (of tables).
    With `channels` bgr, the model wants the three channels the other way round.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channels: Channels = "rgb"

    def __post_init__(self) -> None:
        numbers = np.array([self.scale, *self.mean, *self.std], float)
        if not np.isfinite(numbers).all() or self.scale <= 0 or any(s <= 0 for s in self.std):
            raise InputError("preprocessing", "finite numbers, scale and std above 0", repr(self))

    @property
    def nothing(self) -> bool:
        return self == Preprocessing()

    def apply(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """The same for arrays (n, *shape), as a program would do it before it calls the model."""
        values = np.asarray(x, np.float32) / np.float32(self.scale)
        rank = values.ndim - 1
        if self.channels == "bgr":
            _check_colours(x.shape[1:])
            values = values[:, ::-1]
        if self.mean:
            values = values - _column(self.mean, x.shape[1:], rank, "mean")
        if self.std:
            values = values / _column(self.std, x.shape[1:], rank, "std")
        return np.ascontiguousarray(values, np.float32)  # torch knows no negative strides


def _check_colours(shape: tuple[int, ...]) -> None:
    """Only pictures have channels that can be in another order."""
    if len(shape) != 3 or shape[0] != 3:
        got = f"inputs of shape {'x'.join(map(str, shape))}"
        raise InputError("channels", "pictures of 3 channels, channels first", got, "leave channels out")


def preprocessing_of(
    scale: float = 1.0,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    channels: Channels = "rgb",
) -> Preprocessing:
    """From what people write."""
    return Preprocessing(float(scale), _numbers(mean), _numbers(std), channels)


def fold(model: bytes, preprocessing: Preprocessing) -> bytes:
    """The model with the preprocessing in front; its input is then the data as it is."""
    import onnx
    from onnx import helper, numpy_helper

    if preprocessing.nothing:
        return model
    loaded = onnx.load_model_from_string(model)
    graph = loaded.graph
    stored = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in stored]
    if len(inputs) != 1:
        raise InputError("preprocessing", "a model with one input", str(len(inputs)), "put it into the model")
    read, shape = inputs[0].name, tuple(max(1, d.dim_value) for d in inputs[0].type.tensor_type.shape.dim)[1:]
    steps: list[tuple[str, NDArray[Any], dict[str, Any]]] = []
    if preprocessing.channels == "bgr":
        _check_colours(shape)
        steps.append(("Gather", np.arange(shape[0])[::-1].copy(), {"axis": 1}))
    if preprocessing.scale != 1.0:
        steps.append(("Div", np.array(preprocessing.scale, np.float32), {}))
    for kind, operator in (("mean", "Sub"), ("std", "Div")):
        if numbers := getattr(preprocessing, kind):
            steps.append((operator, _column(numbers, shape, len(shape), kind), {}))
    fresh = "prepared"
    while any(fresh in (*node.input, *node.output) for node in graph.node):
        fresh += "_"
    for node in graph.node:
        node.input[:] = [f"{fresh}_{len(steps) - 1}" if name == read else name for name in node.input]
    value, nodes = read, []
    for k, (operator, constant, attributes) in enumerate(steps):
        graph.initializer.append(numpy_helper.from_array(constant, f"{fresh}_by_{k}"))
        nodes.append(helper.make_node(operator, [value, f"{fresh}_by_{k}"], [f"{fresh}_{k}"], **attributes))
        value = f"{fresh}_{k}"
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return bytes(loaded.SerializeToString(deterministic=True))


def _numbers(given: float | Sequence[float] | None) -> tuple[float, ...]:
    if given is None:
        return ()
    return tuple(float(v) for v in np.asarray(given, np.float64).ravel())


def _column(values: Sequence[float], shape: tuple[int, ...], rank: int, what: str) -> NDArray[np.float32]:
    """The numbers in a shape that meets those of a batch: one for all, or one per channel or feature."""
    if len(values) == 1:
        return np.array(values[0], np.float32)
    if not shape or len(values) != shape[0]:
        axes = "x".join(map(str, shape))
        raise InputError(
            what, f"1 or {shape[0] if shape else 1} numbers", str(len(values)), f"inputs have shape {axes}"
        )
    return np.asarray(values, np.float32).reshape(1, -1, *(1,) * (rank - 1))
