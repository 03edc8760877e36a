"""Train the small networks of this folder on scikit-learn's digits and write properties about them.

Run `python examples/networks/make.py` in a virtual environment that has verifolio; it takes about a minute
and reproduces the files (bit by bit on the same version of torch and the same kind of processor).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.data import load_data
from verifolio.encode.torch_export import Residual, export_onnx
from verifolio.plugin.data_source import Dataset

HERE = Path(__file__).parent
RADIUS = 0.12  # of the certified training; pixels are in [0, 1]


def dense(activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers = (nn.Linear(64, 32), activation(), nn.Linear(32, 32), activation(), nn.Linear(32, 10))
    return nn.Sequential(*layers)


def conv() -> nn.Sequential:
    first = (nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU())
    second = (nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU())
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def residual() -> nn.Sequential:
    body = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1))
    stem = (nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.ReLU())
    return nn.Sequential(*stem, Residual(body), nn.ReLU(), nn.Flatten(), nn.Linear(96, 10))


def maxpool() -> nn.Sequential:
    stem = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*stem, nn.Flatten(), nn.Linear(128, 24), nn.ReLU(), nn.Linear(24, 10))


def train(model: nn.Sequential, images: Tensor, labels: Tensor, certified: bool = False) -> None:
    """Adam with cross-entropy; `certified` mixes in the loss of interval bounds (Gowal et al. 2018)."""
    epochs = 160 if certified else 40
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    decay = torch.optim.lr_scheduler.MultiStepLR(optimiser, [epochs * 2 // 3], 0.2)
    model.train()
    for epoch in range(epochs):
        ramp = min(1.0, epoch / (0.6 * epochs))
        for batch in torch.randperm(len(labels)).split(64):
            x, y = images[batch], labels[batch]
            loss = functional.cross_entropy(model(x), y)
            if certified:
                worst = worst_logits(model, x, y, RADIUS * ramp)
                loss = (1 - 0.6 * ramp) * loss + 0.6 * ramp * functional.cross_entropy(worst, y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        decay.step()
    model.eval()


def worst_logits(model: nn.Sequential, x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Interval bounds of the logits: the upper ones, but the lower one for the true class."""
    low, high = interval(model, (x - radius).clamp(0, 1), (x + radius).clamp(0, 1))
    truth = functional.one_hot(y, 10).bool()
    return torch.where(truth, low, high)


def interval(layer: nn.Module, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer makes of an interval; layers not named here are monotone."""
    if isinstance(layer, nn.Sequential):
        for part in layer:
            low, high = interval(part, low, high)
        return low, high
    if isinstance(layer, Residual):
        (a, b), (c, d) = interval(layer.body, low, high), interval(layer.shortcut, low, high)
        return a + c, b + d
    centre, spread = (low + high) / 2, (high - low) / 2
    if isinstance(layer, nn.Linear):
        width = functional.linear(spread, layer.weight.abs())
    elif isinstance(layer, nn.Conv2d):
        width = functional.conv2d(spread, layer.weight.abs(), None, layer.stride, layer.padding)
    elif isinstance(layer, nn.BatchNorm2d):
        width = (layer(centre + spread) - layer(centre)).abs()
    else:
        return layer(low), layer(high)
    return layer(centre) - width, layer(centre) + width


def attacked(model: nn.Sequential, x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Points in the box after forty signed-gradient steps on the margin."""
    low, high = (x - radius).clamp(0, 1), (x + radius).clamp(0, 1)
    point = x.clone()
    for _ in range(40):
        point.requires_grad_(True)
        margin = margins(model(point), y).sum()
        (slope,) = torch.autograd.grad(margin, point)
        point = (point.detach() - 0.1 * radius * slope.sign()).clamp(low, high)
    return point


def margins(logits: Tensor, y: Tensor) -> Tensor:
    truth = functional.one_hot(y, 10).bool()
    return logits[truth] - logits.masked_fill(truth, -torch.inf).amax(1)


def property_text(image: np.ndarray, label: int, radius: str, title: str) -> str:
    """VNN-LIB 1.0: the box around an image cut with [0, 1], and `some other class scores as high`."""
    eps = float(radius)
    lines = [f"; {title}", ""]
    lines += [f"(declare-const X_{i} Real)" for i in range(len(image))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(10)]
    for i, value in enumerate(image):
        low, high = max(0.0, round(value - eps, 9)), min(1.0, round(value + eps, 9))
        lines += [f"(assert (>= X_{i} {low:.9g}))", f"(assert (<= X_{i} {high:.9g}))"]
    others = "\n".join(f"    (and (>= Y_{j} Y_{label}))" for j in range(10) if j != label)
    return "\n".join([*lines, f"(assert (or\n{others}\n))", ""])


def build(name: str, data: Dataset) -> tuple[nn.Sequential, tuple[int, ...]]:
    makers = {
        "digits_dense": dense,
        "digits_conv": conv,
        "digits_robust": dense,
        "digits_sigmoid": lambda: dense(nn.Sigmoid),
        "digits_residual": residual,
        "digits_maxpool": maxpool,
    }
    torch.manual_seed(1)
    model = makers[name]()
    flat = isinstance(model[0], nn.Linear)
    shape = (64,) if flat else (1, 8, 8)
    images = torch.tensor(data.images, dtype=torch.float32).reshape(-1, *shape)
    train(model, images, torch.tensor(data.labels), certified=name == "digits_robust")
    return model, shape


def describe(model: nn.Sequential, shape: tuple[int, ...], test: Dataset) -> tuple[float, float, Tensor]:
    """Accuracy, accuracy under attack at 0.05, and the attacked points."""
    x = torch.tensor(test.images, dtype=torch.float32).reshape(-1, *shape)
    y = torch.tensor(test.labels)
    points = attacked(model, x, y, 0.05)
    right = (margins(model(x), y) > 0).float().mean()
    robust = (margins(model(points), y) > 0).float().mean()
    return float(right), float(robust), points


def write_properties(models: dict[str, tuple[nn.Sequential, tuple[int, ...]]], test: Dataset) -> None:
    """One provable and one falsifiable property per network, checked by intervals or by an attack."""
    rows = []
    for name, (model, shape) in models.items():
        x = torch.tensor(test.images, dtype=torch.float32).reshape(-1, *shape)
        y = torch.tensor(test.labels)
        index = int(margins(model(x), y)[:50].argmax())
        easy = next(r for r in ("0.05", "0.01", "0.004", "0.002") if proved(model, x, y, index, float(r)))
        hard = next(r for r in ("0.1", "0.2", "0.3", "0.5") if falsified(model, x, y, index, float(r)))
        for radius, expected in ((easy, "unsat"), (hard, "sat")):
            file = f"properties/{name}_{index}_{radius}.vnnlib"
            title = f"digits test image {index}, label {test.labels[index]}, radius {radius}"
            text = property_text(test.images[index], int(test.labels[index]), radius, title)
            (HERE / file).write_text(text)
            rows.append((f"{name}.onnx", file, 60, expected))
    with (HERE / "instances.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([("onnx", "vnnlib", "timeout", "expected"), *rows])


def falsified(model: nn.Sequential, x: Tensor, y: Tensor, index: int, radius: float) -> bool:
    one = slice(index, index + 1)
    return bool(margins(model(attacked(model, x[one], y[one], radius)), y[one]) < -0.01)


def proved(model: nn.Sequential, x: Tensor, y: Tensor, index: int, radius: float) -> bool:
    one = slice(index, index + 1)
    return bool(margins(worst_logits(model, x[one], y[one], radius), y[one]) > 0.01)


def main() -> None:
    torch.set_num_threads(1)
    (HERE / "properties").mkdir(exist_ok=True)
    learn, test = load_data("digits:train"), load_data("digits:test")
    names = ("dense", "conv", "robust", "sigmoid", "residual", "maxpool")
    models = {}
    for name in (f"digits_{n}" for n in names):
        model, shape = build(name, learn)
        models[name] = model, shape
        export_onnx(model, HERE / f"{name}.onnx", shape, name=name)
        right, robust, _ = describe(model, shape, test)
        size = (HERE / f"{name}.onnx").stat().st_size
        print(f"{name}: accuracy {right:.3f}, under attack at 0.05 {robust:.3f}, {size} bytes")
        if name == "digits_robust":
            x, y = torch.tensor(test.images, dtype=torch.float32), torch.tensor(test.labels)
            sure = margins(worst_logits(model, x, y, 0.05), y) > 0
            print(f"{name}: proved by intervals at 0.05 {sure.float().mean():.3f}")
    write_properties(models, test)


if __name__ == "__main__":
    main()
