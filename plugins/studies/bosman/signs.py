"""Dense networks for the traffic signs, trained as the paper says, since its own are not public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verifolio import export

from ..sources import dataset, one_thread, published
from .subjects import HERE, Subject

if TYPE_CHECKING:
    from torch import Tensor, nn

EPSILON = 8 / 255  # of adversarial training
PGD_STEPS, PGD_STEP = 7, 2 / 255  # the protocol of Madry et al. (2017) for CIFAR-10, which the paper follows
FGSM_STEP = 1.25 * EPSILON  # from a random start (Wong, Rice and Kolter 2020)
WIDTHS = {
    "gtsrb_6_256": (256,) * 5,
    "gtsrb_7_1024": (1024,) * 6,
}  # hidden layers; table 19 counts the last one, too


@dataclass(frozen=True)
class Schedule:
    """A line of table 22."""

    rate: float
    step: int
    gamma: float
    batch: int
    epochs: int

    @classmethod
    def of(cls, subject: Subject) -> Schedule:
        rows = published(HERE, "table22")
        (row,) = [r for r in rows if (r["network"], r["training"]) == (subject.network, subject.training)]
        whole = (int(row[c]) for c in ("batch", "epochs"))
        return cls(float(row["rate"]), int(row["step"]), float(row["gamma"]), *whole)


def network_file(subject: Subject, folder: Path) -> Path:
    """The public file; a network of the traffic signs is trained when it is first asked for."""
    if subject.data != "gtsrb":
        return subject.onnx
    path = folder / "networks" / subject.file
    if not path.is_file():
        data = dataset("gtsrb", "train")
        images = data.images.reshape(-1, *data.shape).astype(np.float32)
        with one_thread():
            model = train(images, data.labels, data.classes, subject, Schedule.of(subject))
        path.parent.mkdir(parents=True, exist_ok=True)
        export(model.eval(), images[:8], data.labels[:8], output=path)
    return path


def train(
    images: np.ndarray, labels: np.ndarray, classes: int, subject: Subject, schedule: Schedule
) -> nn.Sequential:
    """Adam with a step schedule, on the images or on attacked ones."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    x, y = torch.tensor(images), torch.tensor(labels)
    model = dense(x[0].numel(), WIDTHS[subject.network], classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=schedule.rate)
    slower = torch.optim.lr_scheduler.StepLR(optimiser, schedule.step, schedule.gamma)
    for _ in range(schedule.epochs):
        for batch in torch.randperm(len(y)).split(schedule.batch):
            seen = attacked(model, x[batch], y[batch], subject.training)
            loss = functional.cross_entropy(model(seen), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        slower.step()
    return model


def dense(size: int, widths: tuple[int, ...], classes: int) -> nn.Sequential:
    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    for width in widths:
        layers += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))


def attacked(model: nn.Sequential, x: Tensor, y: Tensor, training: str) -> Tensor:
    """What the network sees: the images, or what an attack makes of them within `EPSILON`."""
    import torch
    from torch.nn import functional

    steps, size = {"standard": (0, 0.0), "fgsm": (1, FGSM_STEP), "pgd": (PGD_STEPS, PGD_STEP)}[training]
    if steps == 0:
        return x
    moved = (x + torch.empty_like(x).uniform_(-EPSILON, EPSILON)).clamp(0, 1)
    for _ in range(steps):
        moved.requires_grad_(True)
        (slope,) = torch.autograd.grad(functional.cross_entropy(model(moved), y), moved)
        moved = moved.detach() + size * slope.sign()
        moved = torch.maximum(torch.minimum(moved, x + EPSILON), x - EPSILON).clamp(0, 1)
    return moved
