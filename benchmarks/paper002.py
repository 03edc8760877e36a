"""Casadio et al. 2022: constraint training and its metrics, our numbers beside the paper's.

Run `python benchmarks/paper002.py` for a reduced study of minutes, `--full` for the paper's parameters.
Fashion-MNIST is used where its files are found (Debian: dataset-fashion-mnist), MNIST or digits otherwise;
then the paper's numbers are printed for orientation only.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from verifolio import Network, Oracle, Property, Reference
from verifolio.data import Dataset, load_data
from verifolio.plugins.training.architectures import build
from verifolio.plugins.training.attacks import Ball, points_of, violate
from verifolio.plugins.training.setup import Choices, make_regime, save
from verifolio.plugins.training.trainer import Schedule, accuracy, fit, tensors
from verifolio.property_file import choose_property
from verifolio.property_verdict import Status, decide_many
from verifolio.registry import installed

EPSILON = 0.1
ETA, LIPSCHITZ = ("eta=0.52",), ("constant=10",)
REGIMES = {
    "Base": Choices("baseline", EPSILON),
    "RU": Choices("augment", EPSILON, "uniform"),
    "FGSM": Choices("augment", EPSILON, "fgsm"),
    "Adv": Choices("adversarial", EPSILON, "pgd"),
    "SR": Choices("constraint", EPSILON, prop="standard"),
    "SCR": Choices("constraint", EPSILON, prop="strong-classification", options=ETA),
    "LR": Choices("constraint", EPSILON, prop="lipschitz", options=LIPSCHITZ),
}
# Table 3: test accuracy on FASHION
ACCURACY = {"Base": 88.2, "RU": 88.6, "FGSM": 88.8, "Adv": 85.1, "SR": 88.2, "SCR": 88.1, "LR": 86.6}
# Table 1: percentage proved by Marabou on FASHION, 200 images
SATISFIED = {
    "CR": {"Base": 1.5, "SCR": 2.0, "SR": 2.0, "LR": 34.0},
    "SR": {"Base": 0.5, "SCR": 1.0, "SR": 65.8, "LR": 100.0},
    "LR": {"Base": 0.0, "SCR": 0.0, "SR": 0.0, "LR": 0.0},
}
# the authors' published records, FASHION: share of test points that keep the property under its attack
SECURITY = {
    ("SR", "Base"): {0.06: 41.6, 0.08: 2.9, 0.1: 0.2},
    ("SR", "SR"): {0.06: 100.0, 0.08: 100.0, 0.1: 98.3},
    ("SR", "Adv"): {0.06: 100.0, 0.08: 100.0, 0.1: 100.0},
    ("LR", "Base"): {0.06: 0.0, 0.08: 0.0, 0.1: 0.0},
    ("LR", "LR"): {0.06: 19.0, 0.08: 15.3, 0.1: 15.6},
}


@dataclass(frozen=True)
class Size:
    """How large the study is."""

    train: int
    epochs: int
    rate: float
    steps: int
    images: int
    timeout: float
    tested: int
    delta: float  # of standard robustness; after the short training nothing moves by the paper's 10


def properties(size: Size) -> dict[str, Property]:
    return {
        "CR": choose_property("classification"),
        "SR": choose_property("standard", {"delta": size.delta}),
        "LR": choose_property("lipschitz", {"constant": 10.0}),
    }


REDUCED = Size(train=6000, epochs=12, rate=1e-3, steps=10, images=6, timeout=5.0, tested=500, delta=3.0)
FULL = Size(
    train=60_000, epochs=100, rate=1e-4, steps=50, images=200, timeout=600.0, tested=10_000, delta=10.0
)


def choose_data(name: str) -> str:
    """The set that was asked for, or the best one that is here."""
    sets = installed().datasets
    for candidate in [name] if name else ["fashion-mnist", "mnist", "digits"]:
        why = sets.unavailable(candidate) if candidate in sets else "no such data set"
        if why is None:
            return candidate
        print(f"{candidate}: {why}")
        if candidate == "fashion-mnist":
            print("  (Debian and Ubuntu: apt install dataset-fashion-mnist)")
    raise SystemExit("no data to train on")


def train_all(
    learn: Dataset, hidden: int, names: list[str], size: Size, folder: Path
) -> dict[str, nn.Sequential]:
    """Networks of one hidden layer, one per regime, kept as ONNX files."""
    x, y = tensors(learn)
    models = {}
    for name in names:
        model = build(f"casadio-{hidden}", learn.shape, learn.classes)
        choices = replace(REGIMES[name], steps=size.steps)
        if choices.prop == "standard":
            choices = replace(choices, options=(f"delta={size.delta}",))
        fit(
            model, x, y, make_regime(choices), Schedule(size.epochs, size.rate, 128, cool=0.0), lambda _: None
        )
        save(model, folder / f"{name.lower()}-{hidden}.onnx", learn.shape)
        models[name] = model
    return models


def show_accuracy(models: dict[str, nn.Sequential], check: Dataset) -> None:
    print("\nTest accuracy (%), 100 hidden neurons    ours   paper (Table 3)")
    x, y = tensors(check)
    for name, model in models.items():
        print(f"  {name:<36} {100 * accuracy(model, x, y):7.1f} {ACCURACY[name]:7.1f}")


def show_security(models: dict[str, nn.Sequential], check: Dataset, size: Size) -> None:
    print("\nProperty kept under its gradient attack (%)    ours   authors' records")
    x, y = (t[: size.tested] for t in tensors(check))
    known_properties = properties(size)
    for (attacked, name), known in SECURITY.items():
        for epsilon, published in known.items():
            prop, ball, model = known_properties[attacked], Ball(epsilon), models[name]
            random = torch.Generator().manual_seed(42)
            z = violate(prop, model, x, y, ball, random, size.steps)
            with torch.no_grad():
                kept = prop.satisfied(points_of(model(z), z, model(x), x, y, ball)).float().mean()
            what = f"{attacked} attack on {name:<5} eps {epsilon:<5}"
            print(f"  {what} {100 * float(kept):17.1f} {published:7.1f}")


def show_satisfaction(folder: Path, check: Dataset, size: Size) -> None:
    print(
        "\nConstraint satisfaction (%), 30 hidden neurons: proved / refuted / open    paper: proved (Table 1)"
    )
    known_properties = properties(size)
    with Oracle(timeout=size.timeout) as oracle:
        for kind, known in SATISFIED.items():
            for name, published in known.items():
                network = Network.load(folder / f"{name.lower()}-30.onnx")
                references = [
                    Reference(check.image(i), int(check.labels[i]), EPSILON) for i in range(size.images)
                ]
                found = [
                    f.status for _, f in decide_many(oracle, known_properties[kind], [network], references)
                ]
                ours = " / ".join(f"{100 * found.count(s) / len(found):.1f}" for s in Status)
                print(f"  {kind} of {name:<5} {ours:>28} {published:18.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the paper's parameters")
    parser.add_argument("--data", default="", help="a data set with train and test splits")
    parser.add_argument("--output", type=Path, default=Path("out/paper002"), help="where networks go")
    given = parser.parse_args()
    size = FULL if given.full else REDUCED
    torch.set_num_threads(1)
    name = choose_data(given.data)
    learn, check = load_data(f"{name}:train"), load_data(f"{name}:test")
    learn = learn.take(range(min(size.train, len(learn))))
    given.output.mkdir(parents=True, exist_ok=True)
    print(f"data {name}, {len(learn)} training images, {size}")
    wide = train_all(learn, 100, list(REGIMES), size, given.output)
    show_accuracy(wide, check)
    show_security(wide, check, size)
    train_all(learn, 30, ["Base", "SCR", "SR", "LR"], size, given.output)
    show_satisfaction(given.output, check, size)


if __name__ == "__main__":
    main()
