"""Robustness distributions (Bosman et al.): mnist_nn trained three ways, the distributions drawn and compared.

    python benchmarks/paper004_training.py --output out/paper004

Trains 784-256-256-10 by cross-entropy, with FGSM at 0.2 and with PGD at 0.3, brackets the critical radii of the
first test images (only those classified correctly count), draws the three distributions and compares them by
the two-sample Kolmogorov-Smirnov test and Welch's t-test. Everything is kept in the output folder; a second run
only does what is missing. MNIST is taken from $VERIFOLIO_DATA/mnist. `--full` has the paper's images and budget.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import torch
from torch import nn

from verifolio import Network, Oracle
from verifolio.data import load_data
from verifolio.plugin.data_source import Dataset
from verifolio.plugins.distribution.figures import draw_boxes, draw_ecdf
from verifolio.plugins.distribution.ledger import Ledger
from verifolio.plugins.distribution.run import Distribution, Setting, make_items
from verifolio.plugins.distribution.statistics import compare
from verifolio.plugins.distribution.summary import mean
from verifolio.plugins.distribution.table import Row, write_csv
from verifolio.plugins.training.attacks import Ball
from verifolio.plugins.training.keep import train_once
from verifolio.plugins.training.setup import Choices
from verifolio.plugins.training.trainer import Schedule, accuracy, attacked_accuracy, tensors
from verifolio.storage.store import Store

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
    """How large the study is; `budget` is in seconds per image."""

    arch: str = "mnist-nn"
    train: int = 10_000
    epochs: int = 10
    images: int = 50
    budget: float = 6.0
    tolerance: float = 0.002
    tested: int = 1000


FULL = Size(train=60_000, epochs=50, images=100, budget=3600.0, tested=10_000)


def measure(networks: Sequence[Network], check: Dataset, size: Size, folder: Path) -> list[Row]:
    """Brackets of the critical radii; a killed run continues from the store."""
    setting = Setting(tolerance=size.tolerance, budget=size.budget, portfolio="default")
    items = make_items(networks, [(check, range(size.images))])
    path = folder / "radii.db"
    with Store(path) as store, Ledger(path) as ledger, Oracle(None, None, store, workers=1) as oracle:
        rows = Distribution(setting, items, oracle, ledger, 1).run()
    write_csv(folder / "radii.csv", rows)
    return rows


def show(regime: str, model: nn.Sequential, rows: Sequence[Row], check: Dataset, size: Size) -> None:
    """Our line and the paper's."""
    x, y = tensors(check)
    few = x[: size.tested], y[: size.tested]
    under = [100 * attacked_accuracy(model, *few, Ball(e)) for e in (0.2, 0.3)]
    low = mean([r.lower for r in rows if r.lower is not None])
    found = [r.upper for r in rows if r.upper is not None]
    ours = f"{100 * accuracy(model, x, y):7.1f} {under[0]:7.1f} {under[1]:7.1f} {low:8.3f} {mean(found):8.3f}"
    print(f"{regime:<10} {ours}   ours ({len(rows)} images, {len(found)} with a counterexample)")
    paper = TABLE[size.arch, regime]
    print(f"{'':<10} {' '.join(f'{v:7.1f}' for v in paper[:3])} {paper[3]:8.3f} {'':>8}   paper", flush=True)


def tests(groups: dict[str, list[Row]], folder: Path) -> None:
    """The three distributions against each other, by both sides of the brackets; and two pictures."""
    proved = {name: [r.lower for r in rows if r.lower is not None] for name, rows in groups.items()}
    refuted = {name: [r.upper for r in rows if r.upper is not None] for name, rows in groups.items()}
    for side, radii in (("proved", proved), ("refuted", refuted)):
        print(f"\n{side + ' radii compared':<28} {'KS':>7} {'p':>9} {'t':>8} {'p':>9}")
        for first, second in combinations(radii, 2):
            found = compare(f"{first} and {second}", radii[first], radii[second])
            print(f"  {found.name:<26} {found.ks:7.3f} {found.ks_p:9.2g} {found.t:8.2f} {found.t_p:9.2g}")
        means = {name: mean(values) for name, values in radii.items() if values}
        order = ", ".join(sorted(means, key=means.__getitem__))
        print(f"  mean {side} radius, smallest first: {order} (paper: Standard, FGSM, PGD)")
    for path in (draw_ecdf(folder / "ecdf.png", groups), draw_boxes(folder / "boxes.png", groups)):
        print(f"  drawn: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="all training images, 100 test images, an hour each"
    )
    parser.add_argument("--data", default="mnist", help="a data set with train and test splits")
    parser.add_argument("--output", type=Path, default=Path("out/paper004"), help="where everything is kept")
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=type(value), default=None)
    given = vars(parser.parse_args())
    chosen = {k: given[k] for k in asdict(Size()) if given[k] is not None}
    size = replace(FULL if given["full"] else Size(), **chosen)
    torch.set_num_threads(1)
    folder = given["output"]
    folder.mkdir(parents=True, exist_ok=True)
    learn, check = load_data(f"{given['data']}:train"), load_data(f"{given['data']}:test")
    learn = learn.take(range(min(size.train, len(learn))))
    print(f"data {given['data']}, {size}", flush=True)
    models = {
        name: train_once(
            folder / f"{name}.onnx", size.arch, learn, choices, Schedule(size.epochs, 1e-3), lambda _: None
        )
        for name, choices in REGIMES.items()
    }
    rows = measure([Network.load(folder / f"{name}.onnx") for name in REGIMES], check, size, folder)
    groups = {n: [r for r in rows if r.measured and r.network == f"{n}.onnx"] for n in REGIMES}
    print(f"{'network':<10} {'acc':>7} {'PGD .2':>7} {'PGD .3':>7} {'proved':>8} {'refuted':>8}")
    for name, model in models.items():
        show(name, model, groups[name], check, size)
    tests(groups, folder)


if __name__ == "__main__":
    main()
