"""The networks of the ensembles, the agreement points from validation data, and the test points."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from verifolio import Dataset, Network, current_plugins, export

from ..sources import dataset, one_thread

DATA = ("mnist", "fashion-mnist")
COUNT = 10  # networks per data set
FIRST, SECOND = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)  # the two arbitrary ensembles
LEARNT = 50_000  # images of the training split that are learnt from; the other 10 000 are the validation data
LABEL = 0  # of all agreement points, as in the paper
EPOCHS, RATE, BATCH = 6, 2e-3, 128  # enough for the paper's accuracy
SEED = 0  # of the choice of test points


def present(quick: bool = False) -> list[str]:
    """The data sets that are there; a quick run takes the first of them."""
    return [
        name for name in DATA[: 1 if quick else None] if current_plugins().datasets.unavailable(name) is None
    ]


def networks(data: str, folder: Path) -> tuple[Network, ...]:
    """Ten networks 784-30-10 that differ in their random numbers; those that are missing are trained."""
    paths = [folder / f"{data}-{k + 1}.onnx" for k in range(COUNT)]
    for seed, path in enumerate(paths):
        if not path.is_file():
            with one_thread():
                train(dataset(data, "train").take(range(LEARNT)), seed, path)
    return tuple(Network.load(path) for path in paths)


def train(learn: Dataset, seed: int, path: Path) -> None:
    import torch
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(seed)
    x, y = torch.tensor(learn.images, dtype=torch.float32), torch.tensor(learn.labels)
    model = nn.Sequential(nn.Linear(784, 30), nn.ReLU(), nn.Linear(30, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(y)).split(BATCH):
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    export(model.eval(), x[:8].numpy(), y[:8].numpy(), output=path)


def outputs(members: tuple[Network, ...], data: Dataset) -> np.ndarray:
    """The outputs of every network at every input, in float32."""
    import torch

    x = torch.tensor(data.images, dtype=torch.float32)
    with torch.no_grad():
        return np.stack([network.module()(x).numpy() for network in members])


@cache
def agreement(data: str, folder: Path, count: int) -> Dataset:
    """The first validation points of the label that all networks get right."""
    whole = dataset(data, "train")
    check = whole.take(range(LEARNT, len(whole)))
    check = check.take(np.flatnonzero(check.labels == LABEL))
    right = (outputs(networks(data, folder), check).argmax(2) == check.labels).all(0)
    return check.take(np.flatnonzero(right)[:count])


def test_points(data: str, count: int) -> tuple[int, ...]:
    """Test points drawn at random, the same ones for all ensembles; more of them continue fewer."""
    order = np.random.default_rng(SEED).permutation(len(dataset(data, "test")))
    return tuple(int(i) for i in order[:count])
