"""Bastani et al. 2016: robustness by linear programs and fine-tuning, our numbers beside Table 1.

Run `python benchmarks/paper003.py` for a reduced study of minutes on the 8 x 8 digits (then the paper's
numbers are for orientation only), `--data mnist` for a reduced one on MNIST, `--full` for its sizes.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from verifolio import Ball as Around
from verifolio import Network, Oracle
from verifolio.attempt import Choice
from verifolio.data import load_data
from verifolio.plugins.training.architectures import build
from verifolio.plugins.training.attacks import Ball
from verifolio.plugins.training.counterexamples import Hunt, finetune, reference_of
from verifolio.plugins.training.setup import Choices, make_regime, save
from verifolio.plugins.training.trainer import Schedule, accuracy, fit, tensors
from verifolio.property_file import choose_property
from verifolio.registry import installed

PIXELS = 20.0
ATTACKS: dict[str, tuple[str, dict[str, object]]] = {
    "base": ("lbfgs", {"alpha": 0.15}),
    "LP": ("pointwise-lp", {"alpha": 0.0}),
}
# accuracy, adversarial frequency (%) and severity (pixels) by the baseline and by the linear programs
TABLE = {
    "LeNet": (99.08, 1.32, 7.15, 11.9, 12.4),
    "base T=1": (99.14, 1.02, 6.89, 11.0, 12.3),
    "base T=2": (99.15, 0.99, 6.97, 10.9, 12.4),
    "LP T=1": (99.17, 1.18, 5.40, 12.8, 12.2),
    "LP T=2": (99.23, 1.12, 5.03, 12.2, 11.7),
}


@dataclass(frozen=True)
class Size:
    """How large the study is."""

    train: int
    epochs: int
    tuned: int
    tested: int
    rounds: int
    timeout: float
    alpha: float  # margin of the linear programs' training examples; the paper's 3 finds none on digits


REDUCED = Size(train=6000, epochs=15, tuned=60, tested=40, rounds=1, timeout=10.0, alpha=0.2)
FULL = Size(train=60_000, epochs=20, tuned=60_000, tested=10_000, rounds=2, timeout=60.0, alpha=3.0)


def distances(
    model: nn.Sequential, x: Tensor, attack: str, ball: Ball, size: Size, path: Path
) -> list[float]:
    """Estimated robustness in pixels of the points that have a counterexample within the ball."""
    falsifier, options = ATTACKS[attack]
    save(model, path, tuple(x.shape[1:]))
    network, prop = Network.load(path), choose_property("classification")
    with torch.no_grad():
        predicted = model(x).argmax(1).tolist()
    queries = [prop.query([network], reference_of(a, p, ball)) for a, p in zip(x, predicted, strict=True)]
    found = []
    with Oracle(timeout=size.timeout) as oracle:
        for image, query in zip(x, queries, strict=True):
            around = Around(image.double().numpy().ravel(), ball.epsilon, np.inf)
            nearest = oracle.closest(query, around, Choice(falsifier, options))
            if nearest.witness is not None:
                found.append(255.0 * nearest.distance)
    return found


def show(name: str, model: nn.Sequential, check: tuple[Tensor, Tensor], size: Size, folder: Path) -> None:
    """Accuracy, then frequency and severity by both estimators."""
    x, y = check
    ball = Ball(PIXELS / 255)
    frequency, severity = [], []
    for attack in ATTACKS:
        found = distances(model, x[: size.tested], attack, ball, size, folder / "network.onnx")
        frequency.append(100 * len(found) / size.tested)
        severity.append(float(np.mean(found)) if found else float("nan"))
    ours = (100 * accuracy(model, x, y), *frequency, *severity)
    print(f"{name:<10} " + " ".join(f"{v:7.2f}" for v in ours) + "   ours")
    print(f"{'':<10} " + " ".join(f"{v:7.2f}" for v in TABLE[name]) + "   paper", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--data", default="", help="mnist or digits")
    parser.add_argument("--output", type=Path, default=Path("out/paper003"), help="where networks go")
    given = parser.parse_args()
    size = FULL if given.full else REDUCED
    torch.set_num_threads(1)
    plugins = installed()
    missing = [a for a, _ in ATTACKS.values() if a not in plugins.verifiers]
    if missing:
        raise SystemExit(f"needs the verifiers {', '.join(missing)}")
    name = given.data or ("mnist" if given.full else "digits")
    learn, check = load_data(f"{name}:train"), tensors(load_data(f"{name}:test"))
    learn = learn.take(range(min(size.train, len(learn))))
    given.output.mkdir(parents=True, exist_ok=True)
    x, y = tensors(learn)
    print(
        f"data {name}, {size}\n{'network':<10} {'acc':>7} {'f base':>7} {'f LP':>7} {'s base':>7} {'s LP':>7}"
    )
    regime = make_regime(Choices())
    model = build("lenet", learn.shape, learn.classes)
    fit(model, x, y, regime, Schedule(size.epochs, 1e-3), lambda _: None)
    show("LeNet", model, check, size, given.output)
    slow = Schedule(max(1, size.epochs // 4), 1e-4)
    for tuner, (falsifier, options) in ATTACKS.items():
        tuned = copy.deepcopy(model)
        wanted = options if tuner == "base" else options | {"alpha": size.alpha}
        hunt = Hunt(falsifier, wanted, Ball(PIXELS / 255), size.timeout)
        for number in range(size.rounds):
            counts = finetune(
                tuned,
                x,
                y,
                choose_property("classification"),
                hunt,
                slow,
                regime,
                1,
                size.tuned,
                lambda _: None,
            )
            print(f"  {tuner}: {counts[0]} counterexamples to {size.tuned} training images")
            show(f"{tuner} T={number + 1}", tuned, check, size, given.output)


if __name__ == "__main__":
    main()
