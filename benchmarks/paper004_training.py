"""Robustness distributions (Bosman et al.): what FGSM and PGD training do to accuracy and critical radii.

Run `python benchmarks/paper004_training.py` for a reduced study of minutes on MNIST (digits where MNIST is
absent), `--full` for the paper's networks, images and grid.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from verifolio import Network, Oracle, Reference, Verdict
from verifolio.data import Dataset, load_data
from verifolio.plugins.training.architectures import build
from verifolio.plugins.training.attacks import Ball
from verifolio.plugins.training.setup import Choices, make_regime, save
from verifolio.plugins.training.trainer import Schedule, accuracy, attacked_accuracy, fit, tensors
from verifolio.property_file import choose_property
from verifolio.registry import installed

GRID = np.round(np.arange(0.001, 0.4, 0.002), 3)
REGIMES = {
    "Standard": Choices("baseline"),
    "FGSM": Choices("adversarial", 0.2, "fgsm"),
    "PGD": Choices("adversarial", 0.3, "pgd", steps=10),
}
# test accuracy, under PGD at 0.2 and 0.3 (Table 14), mean critical radius on test images (Appendix E)
TABLE = {
    ("mnist-nn", "Standard"): (75.4, 0.0, 0.0, 0.031),
    ("mnist-nn", "FGSM"): (91.0, 44.4, 8.1, 0.174),
    ("mnist-nn", "PGD"): (80.2, 62.3, 51.9, 0.268),
    ("mnist-relu-4-1024", "Standard"): (93.8, 0.1, 0.0, 0.073),
    ("mnist-relu-4-1024", "FGSM"): (97.8, 64.7, 15.4, 0.223),
    ("mnist-relu-4-1024", "PGD"): (78.2, 68.0, 63.2, 0.290),
}


@dataclass(frozen=True)
class Size:
    """How large the study is."""

    archs: tuple[str, ...]
    train: int
    epochs: int
    images: int
    timeout: float


REDUCED = Size(("mnist-nn",), train=10_000, epochs=10, images=6, timeout=4.0)
FULL = Size(("mnist-nn", "mnist-relu-4-1024"), train=60_000, epochs=50, images=100, timeout=3600.0)


def critical(oracle: Oracle, network: Network, x: np.ndarray, label: int) -> tuple[float, float]:
    """The largest radius of the grid that is proved (0 if none) and the smallest that is refuted (inf).

    Two binary searches: undecided counts as too far for the first and as too near for the second.
    """
    prop = choose_property("classification")
    found: dict[int, Verdict] = {}

    def verdict(k: int) -> Verdict:
        if k not in found:
            found[k] = oracle.ask(prop.query([network], Reference(x, label, float(GRID[k])))).verdict
        return found[k]

    low, refuted = -1, len(GRID)
    while low + 1 < refuted:
        middle = (low + refuted) // 2
        low, refuted = (middle, refuted) if verdict(middle) is Verdict.UNSAT else (low, middle)
    below, high = low, len(GRID)
    while below + 1 < high:
        middle = (below + high) // 2
        below, high = (below, middle) if verdict(middle) is Verdict.SAT else (middle, high)
    return (float(GRID[low]) if low >= 0 else 0.0), (float(GRID[high]) if high < len(GRID) else np.inf)


def brackets(network: Network, check: Dataset, size: Size) -> tuple[list[float], list[float]]:
    """Critical radii of the first correctly classified images."""
    lows, highs = [], []
    with Oracle(timeout=size.timeout) as oracle:
        for i in range(size.images):
            x, label = check.image(i), int(check.labels[i])
            if int(network.replay(x).argmax()) == label:
                low, high = critical(oracle, network, x, label)
                lows.append(low)
                highs.append(high)
    return lows, highs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the paper's networks, images and grid")
    parser.add_argument("--output", type=Path, default=Path("out/paper004"), help="where networks go")
    given = parser.parse_args()
    size = FULL if given.full else REDUCED
    torch.set_num_threads(1)
    why = installed().datasets.unavailable("mnist")
    if why is not None:
        print(f"{why}\nusing digits instead; the paper's numbers are for orientation only")
    name = "mnist" if why is None else "digits"
    learn, check = load_data(f"{name}:train"), load_data(f"{name}:test")
    learn = learn.take(range(min(size.train, len(learn))))
    x, y = tensors(learn)
    xt, yt = tensors(check)
    print(f"data {name}, {size}")
    print(f"{'network':<30} {'acc':>7} {'PGD .2':>7} {'PGD .3':>7} {'mean e*':>8} {'mean p':>8}")
    for arch in size.archs:
        for regime, choices in REGIMES.items():
            model = build(arch, learn.shape, learn.classes)
            fit(model, x, y, make_regime(choices), Schedule(size.epochs, 1e-3), lambda _: None)
            path = given.output / f"{arch}-{regime.lower()}.onnx"
            save(model, path, learn.shape)
            under = [100 * attacked_accuracy(model, xt[:1000], yt[:1000], Ball(e)) for e in (0.2, 0.3)]
            lows, highs = brackets(Network.load(path), check, size)
            seen = [h for h in highs if np.isfinite(h)]
            means = np.mean(lows) if lows else np.nan, np.mean(seen) if seen else np.nan
            ours = f"{100 * accuracy(model, xt, yt):7.1f} {under[0]:7.1f} {under[1]:7.1f}"
            name = f"{arch} {regime}"
            print(f"{name:<30} {ours} {means[0]:8.3f} {means[1]:8.3f}   ours ({len(lows)} images)")
            paper = TABLE[arch, regime]
            shown = " ".join(f"{v:7.1f}" for v in paper[:3])
            print(f"{'':<30} {shown} {paper[3]:8.3f} {'':>8}   paper", flush=True)


if __name__ == "__main__":
    main()
