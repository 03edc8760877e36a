"""Networks by name: the papers' architectures, made to fit any image size, and plain dense ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from verifolio.encode.torch_export import Residual
from verifolio.errors import InputError

Shape = tuple[int, ...]
CLAMP = 100.0  # far above the outputs of any trained classifier
MAX_WIDTH = 100_000  # neurons of a layer: a typing error rather than a network


def dense(shape: Shape, classes: int, hidden: Sequence[int]) -> nn.Sequential:
    """Fully connected layers with ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    size = math.prod(shape)
    for width in hidden:
        layers += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))


def clamp(size: int, limit: float = CLAMP) -> nn.Sequential:
    """max(-limit, min(v, limit)) as fixed layers: -limit + relu(v + limit) - relu(v - limit)."""
    both, difference = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
    one = torch.eye(size)
    with torch.no_grad():
        both.weight.copy_(torch.cat([one, one]))
        both.bias.copy_(torch.cat([torch.full((size,), limit), torch.full((size,), -limit)]))
        difference.weight.copy_(torch.cat([one, -one], dim=1))
        difference.bias.fill_(-limit)
    fixed = nn.Sequential(both, nn.ReLU(), difference)
    return fixed.requires_grad_(False)


def casadio(shape: Shape, classes: int, hidden: int) -> nn.Sequential:
    """One hidden layer and outputs clamped to +-100 (Casadio et al. 2022)."""
    return nn.Sequential(*dense(shape, classes, (hidden,)), *clamp(classes))


def conv18(shape: Shape, classes: int, width: int = 16) -> nn.Sequential:
    """18 layers: a convolution, eight residual blocks of two, a linear layer."""
    image = _image(shape)
    layers: list[nn.Module] = [
        nn.Conv2d(image[0], width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels, side = width, min(image[1:])
    for block in range(8):
        stride = 2 if block in (2, 4, 6) and side >= 4 else 1
        wide = channels * 2 if stride == 2 else channels
        layers += [_block(channels, wide, stride), nn.ReLU()]
        channels, side = wide, math.ceil(side / stride)
    return _headed(layers, image, classes, ())


def _block(channels: int, wide: int, stride: int) -> Residual:
    body = nn.Sequential(
        nn.Conv2d(channels, wide, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(wide),
        nn.ReLU(),
        nn.Conv2d(wide, wide, 3, padding=1, bias=False),
        nn.BatchNorm2d(wide),
    )
    same = stride == 1 and channels == wide
    return Residual(body, None if same else nn.Conv2d(channels, wide, 1, stride=stride))


def lenet(shape: Shape, classes: int) -> nn.Sequential:
    """LeNet with ReLU and max-pooling (Bastani et al. 2016); small images get padded 3 x 3 kernels."""
    image = _image(shape)
    kernel, padding = (5, 0) if min(image[1:]) >= 20 else (3, 1)
    layers: list[nn.Module] = [nn.Conv2d(image[0], 20, kernel, padding=padding), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(20, 50, kernel, padding=padding), nn.MaxPool2d(2)]
    return _headed(layers, image, classes, (500,))


def conv_small(shape: Shape, classes: int) -> nn.Sequential:
    """Two strided convolutions and one hidden dense layer; certified training knows all of it."""
    image = _image(shape)
    kernel, padding = (4, 0) if min(image[1:]) >= 20 else (3, 1)
    layers: list[nn.Module] = []
    for before, after in ((image[0], 16), (16, 32)):
        layers += [nn.Conv2d(before, after, kernel, stride=2, padding=padding), nn.ReLU()]
    return _headed(layers, image, classes, (100,))


def _headed(layers: list[nn.Module], image: Shape, classes: int, hidden: Sequence[int]) -> nn.Sequential:
    """Dense layers after convolutions."""
    body = nn.Sequential(*layers)
    body.eval()
    with torch.no_grad():
        size = int(body(torch.zeros(1, *image)).numel())
    body.train()
    return nn.Sequential(*body, *dense((size,), classes, hidden))


def _image(shape: Shape) -> Shape:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise InputError(
            "architecture", "images of at least 4 x 4", f"inputs of shape {shape}", "use dense:..."
        )
    return shape


PRESETS: dict[str, Callable[[Shape, int], nn.Sequential]] = {
    "casadio-30": lambda shape, classes: casadio(shape, classes, 30),
    "casadio-100": lambda shape, classes: casadio(shape, classes, 100),
    "casadio-conv18": conv18,
    "lenet": lenet,
    "mnist-nn": lambda shape, classes: dense(shape, classes, (256, 256)),
    "mnist-relu-4-1024": lambda shape, classes: dense(shape, classes, (1024, 1024, 1024)),
    "conv-small": conv_small,
}


def build(name: str, shape: Shape, classes: int, seed: int = 0) -> nn.Sequential:
    """The network of that name with weights that depend on the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name in PRESETS:
            return PRESETS[name](shape, classes)
        if name.startswith("dense:"):
            return dense(shape, classes, _widths(name))
    raise InputError("--arch", f"one of {', '.join(PRESETS)}, or dense:WIDTH,...", repr(name))


def _widths(name: str) -> list[int]:
    parts = [p for p in name.removeprefix("dense:").split(",") if p]
    if not all(p.isdigit() and 0 < int(p) <= MAX_WIDTH for p in parts):
        raise InputError("--arch", "dense:WIDTH,... with positive widths", repr(name))
    return [int(p) for p in parts]
