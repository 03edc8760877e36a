"""Train the small ensembles of this folder on scikit-learn's digits.

Run `python examples/ensemble/make.py` in a virtual environment that has verifolio; it takes less than a minute
and reproduces the files (bit by bit on the same version of torch and the same kind of processor).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from verifolio.data import load_data
from verifolio.encode.torch_export import export_onnx
from verifolio.plugin.data_source import Dataset

HERE = Path(__file__).parent
PAIR = (3, 8)
# name, hidden neurons, noise added in training: the noisy ones are the sturdier ones
MEMBERS = (
    ("digits_a", 12, 0.0),
    ("digits_b", 12, 0.0),
    ("digits_c", 12, 0.0),
    ("digits_d", 16, 0.1),
    ("digits_e", 16, 0.2),
    ("digits_f", 12, 0.1),
)
JUDGES = (("pair_a", 8, 201), ("pair_b", 8, 207), ("pair_c", 6, 208))  # name, hidden neurons, seed


def tensors(data: Dataset) -> tuple[Tensor, Tensor]:
    return torch.tensor(data.images, dtype=torch.float32), torch.tensor(data.labels)


def train(model: nn.Sequential, x: Tensor, y: Tensor, epochs: int, noise: float = 0.0) -> None:
    """Adam with cross-entropy on inputs that are disturbed evenly by at most `noise`."""
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(64):
            disturbed = x[batch] + noise * (2 * torch.rand_like(x[batch]) - 1)
            loss = functional.cross_entropy(model(disturbed), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def accuracy(model: nn.Sequential, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def only_pair(data: Dataset) -> tuple[Tensor, Tensor]:
    """The images of two digits, labelled 0 and 1."""
    keep = np.flatnonzero(np.isin(data.labels, PAIR))
    images, labels = tensors(data.take(keep))
    return images, (labels == PAIR[1]).long()


def main() -> None:
    torch.set_num_threads(1)
    learn, test = load_data("digits:train"), load_data("digits:test")
    for seed, (name, width, noise) in enumerate(MEMBERS):
        torch.manual_seed(100 + seed)
        model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        train(model, *tensors(learn), epochs=40, noise=noise)
        export_onnx(model, HERE / f"{name}.onnx", (64,), name=name)
        print(f"{name}: accuracy {accuracy(model, *tensors(test)):.3f}")
    images, labels = only_pair(test)
    for name, width, seed in JUDGES:
        torch.manual_seed(seed)
        # networks that end in ReLU, as the ones in Gross et al. 2020 do: two zeros are a tie, and a tie is wrong
        model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 2), nn.ReLU())
        train(model, *only_pair(learn), epochs=30)
        export_onnx(model, HERE / f"{name}.onnx", (64,), name=name)
        print(f"{name}: accuracy {accuracy(model, images, labels):.3f}")
    shaped = images.numpy().reshape(-1, 1, 8, 8)
    np.savez_compressed(HERE / "pair.npz", images=shaped, labels=labels.numpy().astype(np.int64))


if __name__ == "__main__":
    main()
