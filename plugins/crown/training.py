"""Differentiable bounds of torch layers for certified training: intervals, and CROWN backward through them.

Nothing here rounds outward: these bounds shape a loss, they prove nothing.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from verifolio.encode.torch_export import Normalise
from verifolio.errors import InputError

Box = tuple[Tensor, Tensor]
SILENT = (nn.Identity, nn.Dropout)
MONOTONE = (nn.ReLU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh, nn.MaxPool2d, nn.AvgPool2d, nn.Flatten)
BACKWARD = (nn.Linear, nn.Conv2d, nn.ReLU, nn.Flatten, Normalise)


def interval_margins(module: nn.Module, lower: Tensor, upper: Tensor, rows: Tensor) -> Tensor:
    """Lower bounds (B, R) of rows (B, R, outputs) on boxes (B, ...) by interval arithmetic.

    The rows are merged with a last linear layer, which is tighter than bounding the outputs first.
    """
    layers = flat_layers(module, (nn.Linear, nn.Conv2d, Normalise, *MONOTONE))
    if layers and isinstance(layers[-1], nn.Linear):
        last = layers[-1]
        low, high = propagate(layers[:-1], lower, upper)[-1]
        offset = 0.0 if last.bias is None else rows @ last.bias
        return _least(rows @ last.weight, low, high) + offset
    return _least(rows, *propagate(layers, lower, upper)[-1])


def crown_margins(module: nn.Module, lower: Tensor, upper: Tensor, rows: Tensor) -> Tensor:
    """The same by one backward pass over interval bounds of the neurons (CROWN-IBP, Zhang et al. 2020)."""
    layers = flat_layers(module, BACKWARD)
    bounds = propagate(layers, lower, upper)
    slope, constant = rows, rows.new_zeros(rows.shape[:2])
    for layer, (low, high) in zip(reversed(layers), reversed(bounds[:-1]), strict=True):
        slope, more = _backward(layer, slope, low, high)
        constant = constant + more
    return _least(slope.flatten(2), lower.flatten(1), upper.flatten(1)) + constant


def flat_layers(module: nn.Module, known: tuple[type[nn.Module], ...]) -> list[nn.Module]:
    """The layers of nested Sequentials in order; all unknown ones are named in one error."""
    if isinstance(module, nn.Sequential):
        layers = [layer for part in module for layer in _parts(part)]
    else:
        layers = _parts(module)
    layers = [layer for layer in layers if not isinstance(layer, SILENT)]
    strange = sorted({type(layer).__name__ for layer in layers if not isinstance(layer, known)})
    strange += [
        f"{type(layer).__name__} with padding {layer.padding!r}"
        for layer in layers
        if isinstance(layer, nn.Conv2d) and (isinstance(layer.padding, str) or layer.padding_mode != "zeros")
    ]
    if strange:
        names = ", ".join(sorted(t.__name__ for t in known))
        raise InputError("certified training", f"layers of {names}", ", ".join(strange), "change the network")
    return layers


def _parts(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential):
        return [layer for part in module for layer in _parts(part)]
    return [module]


def propagate(layers: list[nn.Module], lower: Tensor, upper: Tensor) -> list[Box]:
    """Interval bounds before each layer, and after the last one."""
    boxes = [(lower, upper)]
    for layer in layers:
        boxes.append(_forward(layer, *boxes[-1]))
    return boxes


def _forward(layer: nn.Module, low: Tensor, high: Tensor) -> Box:
    if isinstance(layer, MONOTONE):
        return layer(low), layer(high)
    centre, spread = (low + high) / 2, (high - low) / 2
    if isinstance(layer, nn.Linear):
        width = functional.linear(spread, layer.weight.abs())
    elif isinstance(layer, nn.Conv2d):
        padding, dilation = layer.padding, layer.dilation
        width = functional.conv2d(
            spread, layer.weight.abs(), None, layer.stride, padding, dilation, layer.groups
        )
    elif isinstance(layer, Normalise):
        width = spread / layer.std.abs()
    else:
        raise TypeError(f"no interval form for {type(layer).__name__}")
    middle = layer(centre)
    return middle - width, middle + width


def _least(rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The least value of rows (B, R, n) on boxes (B, n)."""
    centre, spread = (low + high) / 2, (high - low) / 2
    return (rows @ centre[:, :, None] - rows.abs() @ spread[:, :, None])[:, :, 0]


def _backward(layer: nn.Module, slope: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """What rows over a layer's output are over its input: the slope (B, R, ...) and a constant (B, R)."""
    batch, count = slope.shape[:2]
    none = slope.new_zeros((batch, count))
    if isinstance(layer, nn.Flatten):
        return slope.reshape(batch, count, *low.shape[1:]), none
    if isinstance(layer, nn.Linear):
        return slope @ layer.weight, none if layer.bias is None else slope @ layer.bias
    if isinstance(layer, nn.Conv2d):
        return _backward_conv(layer, slope, low)
    if isinstance(layer, Normalise):
        scaled = slope / layer.std
        return scaled, -(scaled * layer.mean).flatten(2).sum(2)
    return _backward_relu(slope, low[:, None], high[:, None])


def _backward_conv(layer: nn.Conv2d, slope: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    batch, count = slope.shape[:2]
    image = slope.flatten(0, 1)
    padding: tuple[int, ...] = tuple(int(p) for p in layer.padding)
    reached = [
        (image.shape[2 + k] - 1) * layer.stride[k]
        - 2 * padding[k]
        + layer.dilation[k] * (layer.kernel_size[k] - 1)
        + 1
        for k in range(2)
    ]
    extra = [low.shape[2 + k] - reached[k] for k in range(2)]
    back = functional.conv_transpose2d(
        image, layer.weight, None, layer.stride, padding, extra, layer.groups, layer.dilation
    )
    constant = slope.new_zeros((batch, count))
    if layer.bias is not None:
        constant = (slope.sum(dim=(3, 4)) * layer.bias).sum(dim=2)
    return back.reshape(batch, count, *low.shape[1:]), constant


def _backward_relu(slope: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The chord above, and below whichever of 0 and x is closer (Zhang et al. 2018)."""
    low, high = low.clamp_max(0), high.clamp_min(0)
    chord = high / (high - low).clamp_min(1e-8)
    under = (high > -low).to(slope)
    rising, falling = slope.clamp_min(0), slope.clamp_max(0)
    constant = (falling * (-low * chord)).flatten(2).sum(2)
    return rising * under + falling * chord, constant
