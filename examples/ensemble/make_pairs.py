"""Train ensembles of two-class networks like those of Gross et al. 2020 on small images of two digits.

    python examples/ensemble/make_pairs.py FOLDER

Every set has two or three networks (at least 90 % right, ending in ReLU) and a file of test points, with pixels from
0 to 1. MNIST is shrunk to 6 x 6 up to 10 x 10 pixels; two classes of Fashion-MNIST stand in for the paper's traffic
signs. It takes about a minute and reproduces the files on the same version of torch and the same kind of processor.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.data import load_data
from verifolio.encode.torch_export import export_onnx
from verifolio.plugin.data_source import Dataset

ENOUGH = 0.9  # accuracy, as in the paper
POINTS = 20  # of the test data, kept beside the networks


@dataclass(frozen=True)
class Group:
    """Networks that tell two classes apart: how many, on how many pixels, dense or with two convolutions."""

    name: str
    data: str
    classes: tuple[int, int]
    side: int
    networks: int = 3
    convolutions: bool = False


GROUPS = (
    Group("mnist-0-1-7x7", "mnist", (0, 1), 7),
    Group("mnist-0-1-8x8", "mnist", (0, 1), 8),
    Group("mnist-0-1-8x8-convs", "mnist", (0, 1), 8, convolutions=True),
    Group("mnist-4-5-10x10", "mnist", (4, 5), 10),
    Group("mnist-7-8-6x6", "mnist", (7, 8), 6),
    Group("mnist-3-6-8x8", "mnist", (3, 6), 8, networks=2),
    Group("mnist-0-2-9x9", "mnist", (0, 2), 9),
    Group("fashion-5-7-10x10-convs", "fashion-mnist", (5, 7), 10, convolutions=True),
)


def shrunk(data: Dataset, group: Group) -> tuple[Tensor, Tensor]:
    """The images of the two classes on fewer pixels, each the mean of those it covers; labels 0 and 1."""
    keep = np.flatnonzero(np.isin(data.labels, group.classes))
    chosen = data.take(keep)
    images = torch.tensor(chosen.images, dtype=torch.float32).reshape(-1, 1, 28, 28)
    labels = torch.tensor(chosen.labels == group.classes[1]).long()
    return functional.adaptive_avg_pool2d(images, group.side), labels


def make_model(group: Group, number: int) -> nn.Sequential:
    """The members differ in width; two zeros are a tie, and a tie is wrong, as in the paper."""
    pixels = group.side**2
    if group.convolutions:
        first, second = nn.Conv2d(1, 2, 3, stride=2), nn.Conv2d(2, 3, 2)
        left = ((group.side - 3) // 2) ** 2 * 3
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(left, 2), nn.ReLU())
    width = (10, 8, 6)[number]
    layers = (nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 2))
    return nn.Sequential(nn.Flatten(), *layers, nn.ReLU())


def train(model: nn.Sequential, x: Tensor, y: Tensor) -> None:
    """Adam with cross-entropy, two epochs."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        for batch in torch.randperm(len(y)).split(64):
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def accuracy(model: nn.Sequential, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def make_group(group: Group, folder: Path) -> None:
    """Networks from the first seeds that are good enough, and the first test points."""
    learn, test = (shrunk(load_data(f"{group.data}:{split}"), group) for split in ("train", "test"))
    seed = 0
    for number in range(group.networks):
        reached = 0.0
        while reached < ENOUGH:
            torch.manual_seed(seed)
            model = make_model(group, number)
            train(model, *learn)
            reached, seed = accuracy(model, *test), seed + 1
        path = folder / f"{group.name}-{'abc'[number]}.onnx"
        export_onnx(model, path, (1, group.side, group.side), name=path.stem)
        print(f"{path.stem}: accuracy {reached:.3f}")
    images, labels = test[0][:POINTS].numpy(), test[1][:POINTS].numpy().astype(np.int64)
    np.savez_compressed(folder / f"{group.name}.npz", images=images, labels=labels)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/ensemble/make_pairs.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for group in GROUPS:
        make_group(group, folder)


if __name__ == "__main__":
    main()
