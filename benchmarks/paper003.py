"""Bastani et al. 2016 on MNIST: table 1's rows before and after fine-tuning, and its trends judged.

    python benchmarks/paper003.py --output out/paper003

Trains a LeNet with one ReLU layer and max-pooling, estimates adversarial frequency and severity (20 pixel levels,
the reference is the predicted label) by the baseline (L-BFGS) and by linear programs, fine-tunes on what either
finds around training images, and measures again. Networks, counterexamples and distances are kept in the output
folder; a second run only does what is missing. The default is a sample of the paper's sizes, and asks both
estimators only about images for which PGD finds a counterexample within the 20 levels, a lower bound of the truth
that both stay below; `--screen 0` asks about all of them, `--full` has the paper's sizes. MNIST is taken from
$VERIFOLIO_DATA/mnist; with `--data digits` the numbers are not the paper's.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from verifolio import Ball as Around
from verifolio import Network, Oracle
from verifolio.data import load_data
from verifolio.plugin.choice import Choice
from verifolio.plugin.data_source import Dataset
from verifolio.plugins.training.architectures import build
from verifolio.plugins.training.attacks import Ball, pgd
from verifolio.plugins.training.counterexamples import Hunt, hunt
from verifolio.plugins.training.keep import keep, train_once
from verifolio.plugins.training.setup import Choices, load_weights, make_regime
from verifolio.plugins.training.trainer import Schedule, accuracy, fit, tensors
from verifolio.properties.file import choose_property

BALL = Ball(20 / 255)
# the baseline looks anywhere and counts if it ends within the ball, as in the paper: confined to the ball it
# would end at its border. The linear programs minimise the distance itself.
REACH = {"base": Ball(1.0), "LP": BALL}
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
Line = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Size:
    """How large the study is.

    `alpha` is the margin of the linear programs' training examples (the paper's is 3), `screen` the steps of the
    PGD attack that says which images are asked about (0: all), `weights` and `iterations` are the baseline's.
    """

    train: int = 10_000
    epochs: int = 6
    tuned: int = 300
    tested: int = 200
    rounds: int = 1
    timeout: float = 60.0
    alpha: float = 0.15
    screen: int = 20
    weights: int = 9
    iterations: int = 30


FULL = Size(60_000, 20, 60_000, 10_000, 2, alpha=3.0, screen=0, weights=12, iterations=100)


@dataclass(frozen=True)
class Study:
    """The data, the sizes and the folder."""

    learn: Dataset
    check: Dataset
    size: Size
    folder: Path

    def lenet(self) -> nn.Sequential:
        """The network before any fine-tuning."""
        plan = Schedule(self.size.epochs, 1e-3)
        return train_once(self.folder / "lenet.onnx", "lenet", self.learn, Choices(), plan, say)

    def tuned(self, tuner: str, number: int) -> tuple[Path, nn.Sequential]:
        """The network after that many rounds: attack the original images, append, train on."""
        path = self.folder / f"{tuner}-{number}-{self.size.tuned}.onnx"
        model = build("lenet", self.learn.shape, self.learn.classes)
        if path.with_suffix(".npz").is_file():
            load_weights(model, path.with_suffix(".npz"))
            model.eval()
            return path, model
        model = self.lenet() if number == 1 else self.tuned(tuner, number - 1)[1]
        found_x, found_y = self.found(tuner, number, model)
        x, y = tensors(self.learn)
        plan = Schedule(max(1, self.size.epochs // 4), 1e-4, seed=number)
        every = torch.cat([x, found_x]), torch.cat([y, found_y])
        fit(model, *every, make_regime(Choices()), plan, say)
        keep(model, path, self.learn)
        return path, model

    def found(self, tuner: str, number: int, model: nn.Sequential) -> tuple[Tensor, Tensor]:
        """The counterexamples of all rounds so far; those of this round are looked for."""
        wanted = self.options(tuner) | ({"alpha": self.size.alpha} if tuner == "LP" else {})
        plan = Hunt(ATTACKS[tuner][0], wanted, BALL, self.size.timeout)
        x, y = (t[: self.size.tuned] for t in tensors(self.learn))
        near = in_reach(model, x, self.size.screen)
        new = hunt(model, x[near], y[near], choose_property("classification"), plan)
        print(
            f"  {tuner}, round {number}: {len(new)} counterexamples to {len(x)} training images "
            f"({new.asked} asked about)",
            flush=True,
        )
        earlier = self.folder / f"{tuner}-{number - 1}-{self.size.tuned}-found.npz"
        before_x, before_y = x[:0], y[:0]
        if earlier.is_file():
            with np.load(earlier, allow_pickle=False) as file:
                before_x, before_y = torch.from_numpy(file["x"]), torch.from_numpy(file["y"])
        both = torch.cat([before_x, new.x]), torch.cat([before_y, new.y])
        file = self.folder / f"{tuner}-{number}-{self.size.tuned}-found.npz"
        np.savez(file, x=both[0].numpy(), y=both[1].numpy())
        return both

    def options(self, attack: str) -> dict[str, object]:
        """The estimator's options at this size."""
        effort = {"rounds": self.size.weights, "iterations": self.size.iterations}
        return ATTACKS[attack][1] | (effort if attack == "base" else {})


def in_reach(model: nn.Sequential, x: Tensor, steps: int) -> Tensor:
    """Which images PGD (two starts) moves to another class within the ball; all of them without steps."""
    if steps == 0:
        return torch.ones(len(x), dtype=torch.bool)
    random, found = torch.Generator().manual_seed(0), []
    for part in torch.split(x, 250):
        with torch.no_grad():
            predicted = model(part).argmax(1)
        moved = torch.zeros(len(part), dtype=torch.bool)
        for _ in range(2):
            z = pgd(model, part, predicted, BALL, random, steps)
            with torch.no_grad():
                moved |= model(z).argmax(1) != predicted
        found.append(moved)
    return torch.cat(found)


def say(text: str) -> None:
    """Epochs as they pass, for whoever watches the log."""
    print(f"    {text}", flush=True)


def distances(study: Study, path: Path, model: nn.Sequential, near: Tensor, attack: str) -> list[float]:
    """Estimated robustness in pixels of the images `near` a counterexample, if one is found. Kept in a file."""
    file = study.folder / "distances.json"
    known: dict[str, float | None] = json.loads(file.read_text()) if file.is_file() else {}
    network, prop = Network.load(path), choose_property("classification")
    falsifier, options = ATTACKS[attack][0], study.options(attack)
    x, _ = tensors(study.check)
    found = []
    with Oracle(timeout=study.size.timeout) as oracle:
        for k in torch.nonzero(near)[:, 0].tolist():
            key = f"{network.sha256} {attack} {options} {k}"
            if key not in known:
                with torch.no_grad():
                    predicted = int(model(x[k][None]).argmax())
                query = prop.query([network], REACH[attack].reference(x[k], predicted))
                around = Around(x[k].double().numpy().ravel(), REACH[attack].epsilon, math.inf)
                nearest = oracle.closest(query, around, Choice(falsifier, options))
                known[key] = None if nearest.witness is None else 255 * nearest.distance
                file.write_text(json.dumps(known))
            value = known[key]
            found += [] if value is None else [value]
    return found


def show(study: Study, name: str, path: Path, model: nn.Sequential) -> Line:
    """Accuracy, then frequency and severity by both estimators, and the paper's line."""
    frequency, severity, counts = [], [], []
    reached = in_reach(model, tensors(study.check)[0][: study.size.tested], study.size.screen)
    for attack in ATTACKS:
        near = [d for d in distances(study, path, model, reached, attack) if d <= 255 * BALL.epsilon]
        counts.append(f"{len(near)} by {attack}")
        frequency.append(100 * len(near) / study.size.tested)
        severity.append(float(np.mean(near)) if near else math.nan)
    right = 100 * accuracy(model, *tensors(study.check))
    ours = (right, frequency[0], frequency[1], severity[0], severity[1])
    print(f"{name:<10} " + " ".join(f"{v:7.2f}" for v in ours) + "   ours")
    print(f"{'':<10} " + " ".join(f"{v:7.2f}" for v in TABLE[name]) + "   paper", flush=True)
    if study.size.screen:
        counts.append(f"{int(reached.sum())} by PGD")
    print(f"{'':<10} counterexamples of {study.size.tested} images: {', '.join(counts)}", flush=True)
    return ours


def trends(found: dict[str, Line], rounds: int) -> list[tuple[str, bool]]:
    """What the paper concludes from its table, on our numbers (a tie confirms nothing)."""
    first, base, linear = found["LeNet"], found[f"base T={rounds}"], found[f"LP T={rounds}"]
    return [
        ("linear programs find more counterexamples than the baseline", first[2] > first[1]),
        ("fine-tuning on the linear programs' lowers the frequency they see", linear[2] < first[2]),
        ("it lowers it more than fine-tuning on the baseline's does", linear[2] < base[2]),
        ("fine-tuning on the baseline's lowers the frequency it sees itself", base[1] < first[1]),
        ("fine-tuning does not cost accuracy", min(base[0], linear[0]) >= first[0] - 0.1),
    ]


def run(study: Study) -> None:
    """All rows of the table, then its trends."""
    print(f"{'network':<10} {'acc':>7} {'f base':>7} {'f LP':>7} {'s base':>7} {'s LP':>7}")
    model = study.lenet()
    found = {"LeNet": show(study, "LeNet", study.folder / "lenet.onnx", model)}
    for tuner in ATTACKS:
        for number in range(1, study.size.rounds + 1):
            path, tuned = study.tuned(tuner, number)
            found[f"{tuner} T={number}"] = show(study, f"{tuner} T={number}", path, tuned)
    judge(trends(found, study.size.rounds))


def judge(claims: Sequence[tuple[str, bool]]) -> None:
    for text, holds in claims:
        print(f"  {'confirmed    ' if holds else 'not confirmed'}  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--data", default="mnist", help="a data set of images with train and test splits")
    parser.add_argument("--output", type=Path, default=Path("out/paper003"), help="where everything is kept")
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=type(value), default=None)
    given = vars(parser.parse_args())
    chosen = {k: given[k] for k in asdict(Size()) if given[k] is not None}
    size = replace(FULL if given["full"] else Size(), **chosen)
    torch.set_num_threads(1)
    learn, check = load_data(f"{given['data']}:train"), load_data(f"{given['data']}:test")
    learn = learn.take(range(min(size.train, len(learn))))
    study = Study(learn, check, replace(size, tested=min(size.tested, len(check))), given["output"])
    study.folder.mkdir(parents=True, exist_ok=True)
    print(f"data {given['data']}, {size}", flush=True)
    run(study)


if __name__ == "__main__":
    main()
