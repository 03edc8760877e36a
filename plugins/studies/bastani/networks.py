"""LeNet with ReLU and max-pooling on MNIST, and the networks that are fine-tuned on counterexamples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verifolio import Network, export

from ..sources import dataset, one_thread
from .closest import WAYS, nearest

if TYPE_CHECKING:
    from torch import Tensor, nn

NAMES = ("lenet", "baseline-1", "baseline-2", "lp-1", "lp-2")  # T = 0, 1 and 2 rounds
RATE, TUNING_RATE, BATCH = 1e-3, 1e-4, 128  # the paper says "a reduced rate"
MARGIN = {"baseline": 0.15, "lp": 3.0}  # of counterexamples that are learnt from, as in the paper


@dataclass(frozen=True)
class Training:
    """How much is learnt: images, epochs, and training images around which counterexamples are looked for."""

    images: int = 60_000
    epochs: int = 6
    tuned: int = 1000
    timeout: float = 60.0


QUICK = Training(3000, 2, 6, 5.0)


@dataclass(frozen=True)
class Family:
    """The five networks in a folder; each is trained when it is first asked for."""

    folder: Path
    training: Training

    def path(self, name: str) -> Path:
        return self.folder / f"003-{name}-{self.training.images}-{self.training.tuned}.onnx"

    def network(self, name: str) -> Network:
        if not self.path(name).is_file():
            with one_thread():
                self.make(name)
        return Network.load(self.path(name))

    def make(self, name: str) -> None:
        import torch

        torch.manual_seed(0)
        x, y = self.learnt
        model = lenet()
        if name == "lenet":
            fit(model, x, y, self.training.epochs, RATE)
        else:
            way, rounds = name.split("-")
            before = "lenet" if rounds == "1" else f"{way}-{int(rounds) - 1}"
            self.network(before)
            load(model, self.path(before).with_suffix(".npz"))
            found_x, found_y = self.found(way, int(rounds))
            every = torch.cat([x, found_x]), torch.cat([y, found_y])
            fit(model, *every, max(1, self.training.epochs // 4), TUNING_RATE)
        keep(model, self.path(name), x)

    @property
    def learnt(self) -> tuple[Tensor, Tensor]:
        import torch

        data = dataset("mnist", "train").take(range(self.training.images))
        return torch.tensor(data.images, dtype=torch.float32).reshape(-1, 1, 28, 28), torch.tensor(
            data.labels
        )

    def found(self, way: str, rounds: int) -> tuple[Tensor, Tensor]:
        """The counterexamples of all rounds so far; every round attacks the original images, as in the paper."""
        import torch

        every = [self.round(way, number) for number in range(rounds)]
        points, labels = (np.concatenate([one[k] for one in every]) for k in (0, 1))
        return torch.tensor(points), torch.tensor(labels)

    def round(self, way: str, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of one round; kept beside the networks, since the next round learns from them, too."""
        path = self.path(f"{way}-found-{number}").with_suffix(".npz")
        if not path.is_file():
            before = self.network("lenet" if number == 0 else f"{way}-{number}")
            data = dataset("mnist", "train")
            asked = range(self.training.tuned)
            points, labels = [], []
            found = nearest(before, data, asked, way, MARGIN[way], self.training.timeout)
            for image, one in zip(asked, found, strict=True):
                if one.point is not None and one.near:
                    points.append(one.point.reshape(1, 28, 28))
                    labels.append(int(data.labels[image]))
            shape = (len(points), 1, 28, 28)
            np.savez(
                path, points=np.reshape(points, shape).astype(np.float32), labels=np.array(labels, np.int64)
            )
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["points"], arrays["labels"]


def lenet() -> nn.Sequential:
    """Two convolutions with max-pooling, 500 neurons."""
    from torch import nn

    body = [nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def fit(model: nn.Sequential, x: Tensor, y: Tensor, epochs: int, rate: float) -> None:
    import torch
    from torch.nn import functional

    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(BATCH):
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def keep(model: nn.Sequential, path: Path, x: Tensor) -> None:
    """The weights as plain arrays, then the network: what is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    np.savez(path.with_suffix(".npz"), **weights)
    export(model.eval(), x[:8].numpy(), output=path)


def load(model: nn.Sequential, path: Path) -> None:
    import torch

    with np.load(path, allow_pickle=False) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})


def ways_of(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every network by both estimators."""
    return ((name, way) for name in names for way in WAYS)
