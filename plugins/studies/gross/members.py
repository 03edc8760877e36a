"""The ensembles of the paper's games: two kinds of pictures, small sizes, networks that end in ReLU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verifolio import Dataset, Network, export

from ..sources import dataset, one_thread

if TYPE_CHECKING:
    from torch import Tensor, nn

SIGNS = (13, 12)  # "give way" and "priority road", by their numbers in the data
ENOUGH = {"mnist": 0.9, "gtsrb": 0.8}  # accuracy, as in the paper
LEARNT = 6000  # training images at most: enough for these accuracies
WIDTHS = (10, 8, 6)  # of the dense members' first layers
TRIES = 40  # seeds until a member is good enough


@dataclass(frozen=True)
class Group:
    """What an ensemble tells apart, on how many pixels, and how many members of which kind it has."""

    data: str
    classes: tuple[int, int]
    side: int
    members: int
    kind: str  # dense, convs (two convolutions) or pool (a convolution and max-pooling)

    @classmethod
    def of(cls, name: str, side: int, members: int) -> Group:
        """As a table of the paper names it."""
        words = name.split()
        if words[0] == "traffic":
            return cls("gtsrb", SIGNS, side, members, "pool")
        pair = (int(words[1]), int(words[2]))
        return cls("mnist", pair, side, members, "convs" if "2convs" in words else "dense")

    @property
    def stem(self) -> str:
        one, two = self.classes
        return f"{self.data}-{one}-{two}-{self.side}x{self.side}-{self.kind}"

    def networks(self, folder: Path) -> tuple[Network, ...]:
        """The members; those that are missing are trained, each from the first seed that is good enough."""
        paths = [folder / f"{self.stem}-{k}.onnx" for k in range(self.members)]
        if not all(path.is_file() for path in paths):
            with one_thread():
                self.train(paths)
        return tuple(Network.load(path) for path in paths)

    def train(self, paths: list[Path]) -> None:
        import torch

        learn, check = (shrunk(dataset(self.data, split), self) for split in ("train", "test"))
        seed = 0
        for number, path in enumerate(paths):
            for _ in range(TRIES):
                torch.manual_seed(seed)
                seed += 1
                model = make_model(self, number)
                fit(model, learn[0][:LEARNT], learn[1][:LEARNT], adam=number == 0)
                with torch.no_grad():
                    reached = float((model(check[0]).argmax(1) == check[1]).float().mean())
                if reached >= ENOUGH[self.data]:
                    break
            export(model.eval(), check[0][:8].numpy(), check[1][:8].numpy(), output=path)

    def points(self, count: int) -> list[tuple[np.ndarray, int]]:
        """The first test pictures of the two classes, with their labels 0 and 1."""
        images, labels = shrunk(dataset(self.data, "test"), self, count)
        return [(x.numpy().ravel().astype(np.float64), int(y)) for x, y in zip(images, labels, strict=True)]


def shrunk(data: Dataset, group: Group, count: int = 0) -> tuple[Tensor, Tensor]:
    """Grey pictures of the two classes on fewer pixels, each the mean of those it covers."""
    import torch
    from torch.nn import functional

    keep = np.flatnonzero(np.isin(data.labels, group.classes))[: count or None]
    chosen = data.take(keep)
    images = torch.tensor(chosen.images, dtype=torch.float32).reshape(-1, *data.shape).mean(1, keepdim=True)
    labels = torch.tensor(chosen.labels == group.classes[1]).long()
    return functional.adaptive_avg_pool2d(images, group.side), labels


def make_model(group: Group, number: int) -> nn.Sequential:
    """Two outputs behind a ReLU: two zeros are a tie, and a tie is wrong, as in the paper."""
    from torch import nn

    if group.kind == "convs":
        body = [nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*body, nn.Linear(((group.side - 3) // 2) ** 2 * 3, 2), nn.ReLU())
    if group.kind == "pool":
        body = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*body, nn.Linear(((group.side - 2) // 2) ** 2 * 3, 2), nn.ReLU())
    wide = WIDTHS[number % len(WIDTHS)]
    body = [nn.Flatten(), nn.Linear(group.side**2, wide), nn.ReLU(), nn.Linear(wide, 4), nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(4, 2), nn.ReLU())


def fit(model: nn.Sequential, x: Tensor, y: Tensor, adam: bool) -> None:
    """Cross-entropy by Adam or by stochastic gradient descent; the paper uses both."""
    import torch
    from torch.nn import functional

    weights = model.parameters()
    optimiser: torch.optim.Optimizer = (
        torch.optim.Adam(weights, lr=1e-2) if adam else torch.optim.SGD(weights, lr=0.05, momentum=0.9)
    )
    steps = 0
    while steps < 200:  # two passes over the digits, more over the few signs
        for batch in torch.randperm(len(y)).split(64):
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps += 1
