"""Certified against adversarial training: how much of each network the complete portfolio proves.

    python benchmarks/certified.py --output out/certified

Both networks of a setting have the same layers, images, epochs, rate and seed; only the regime differs. Every
test image is decided by the default portfolio (attack, bounds, branch and bound); what is neither proved nor
refuted is open, and the comparison counts as decided only if it comes out the same whatever the open ones are.
Networks and verdicts are kept; a second run does what is missing.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from verifolio import Network, Oracle, Reference
from verifolio.data import load_data
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.manager import current_plugins
from verifolio.plugins.training.attacks import Ball
from verifolio.plugins.training.keep import train_once
from verifolio.plugins.training.setup import Choices
from verifolio.plugins.training.trainer import Schedule, accuracy, attacked_accuracy, tensors
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import decide_many
from verifolio.storage.store import Store


@dataclass(frozen=True)
class Setting:
    """One comparison."""

    data: str
    arch: str
    epsilon: float
    train: int
    epochs: int
    rate: float
    batch: int
    steps: int
    share: float
    bounder: str = "interval"

    def regimes(self) -> dict[str, Choices]:
        certified = Choices("certified", self.epsilon, bounder=self.bounder, share=self.share)
        return {
            "adversarial": Choices("adversarial", self.epsilon, "pgd", steps=self.steps),
            "certified": certified,
        }


SETTINGS = (
    Setting("digits", "dense:64,64", 0.1, 1500, 40, 3e-3, 64, 10, 0.9),
    Setting("digits", "dense:64,64", 0.2, 1500, 40, 3e-3, 64, 10, 0.9),
    Setting("mnist", "dense:100,100", 0.2, 20_000, 15, 1e-3, 128, 10, 0.9),
    Setting("mnist", "dense:100,100", 0.3, 20_000, 15, 1e-3, 128, 10, 0.9),
)


def verified(
    oracle: Oracle, network: Network, check: Dataset, epsilon: float, images: int
) -> dict[str, float]:
    """Proved, refuted and open among the first test images, in percent; misclassified ones are refuted."""
    prop = choose_property("classification")
    references = [Reference(check.image(i), int(check.labels[i]), epsilon) for i in range(images)]
    found = [f.status.value for _, f in decide_many(oracle, prop, [network], references)]
    return {s: 100 * found.count(s) / images for s in ("proved", "refuted", "open")}


def compare(setting: Setting, folder: Path, images: int, timeout: float) -> None:
    """Train both, verify both, say which one is ahead and whether that is decided."""
    learn, check = load_data(f"{setting.data}:train"), load_data(f"{setting.data}:test")
    learn = learn.take(range(min(setting.train, len(learn))))
    images = min(images, len(check))
    x, y = tensors(check)
    print(f"\n{setting}", flush=True)
    print(f"  {'regime':<12} {'accuracy':>8} {'under PGD':>9} {'proved':>7} {'refuted':>8} {'open':>6}")
    plan = Schedule(setting.epochs, setting.rate, setting.batch)
    shares = {}
    store = Store(folder / "verdicts.sqlite")
    with Oracle(store=store, timeout=timeout) as oracle:
        for name, choices in setting.regimes().items():
            path = folder / f"{setting.data}-{setting.epsilon}-{name}.onnx"
            model = train_once(path, setting.arch, learn, choices, plan, lambda _: None)
            under = 100 * attacked_accuracy(model, x[:images], y[:images], Ball(setting.epsilon))
            found = verified(oracle, Network.load(path), check, setting.epsilon, images)
            shares[name] = found
            cells = f"{100 * accuracy(model, x, y):8.1f} {under:9.1f} {found['proved']:7.1f}"
            print(f"  {name:<12} {cells} {found['refuted']:8.1f} {found['open']:6.1f}", flush=True)
    print(f"  {judge(shares['adversarial'], shares['certified'])} ({images} images)", flush=True)


def judge(adversarial: dict[str, float], certified: dict[str, float]) -> str:
    """In words; open images of either network may turn out either way."""
    least, most = certified["proved"], certified["proved"] + certified["open"]
    low, high = adversarial["proved"], adversarial["proved"] + adversarial["open"]
    numbers = (
        f"{least:g} to {most:g} % of certified, {low:g} to {high:g} % of adversarial training are robust"
    )
    if least > high:
        return f"decided: certified training raises verified accuracy; {numbers}"
    if most <= low:
        return f"decided: certified training does not raise verified accuracy; {numbers}"
    word = "more" if least > low else "not more"
    return f"not decided: {word} is proved of the certified network, but {numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100, help="test images that are verified")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds per image")
    parser.add_argument("--data", default="", help="only the settings of this set")
    parser.add_argument("--epsilon", type=float, default=0.0, help="only this radius")
    parser.add_argument("--output", type=Path, default=Path("out/certified"), help="networks and verdicts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.output.mkdir(parents=True, exist_ok=True)
    for setting in SETTINGS:
        why = current_plugins().datasets.unavailable(setting.data)
        if why is not None:
            print(f"{setting.data}: {why}")
        elif given.data in ("", setting.data) and given.epsilon in (0.0, setting.epsilon):
            compare(setting, given.output, given.images, given.timeout)


if __name__ == "__main__":
    main()
