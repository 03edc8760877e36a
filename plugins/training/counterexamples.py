"""Counterexamples around training images, by any falsifier through the oracle, and retraining on them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from verifolio.encode.torch_export import export_onnx
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugin.choice import Choice
from verifolio.plugin.property import Property
from verifolio.plugin.regime import Regime
from verifolio.portfolio.tree import single_verifier
from verifolio.properties.verdict import decide_many
from verifolio.solve.oracle import Oracle

from .attacks import Ball
from .trainer import Say, Schedule, fit


@dataclass(frozen=True)
class Hunt:
    """Who looks for counterexamples, how far around each image and how long."""

    falsifier: str = "pgd"
    options: Mapping[str, object] = field(default_factory=dict)
    ball: Ball = field(default_factory=lambda: Ball(0.1))
    timeout: float = 0.5
    seed: int = 0
    executor: str = "process"

    def __post_init__(self) -> None:
        """Wrong names and options are better told before the training than after it."""
        if not Choice(self.falsifier, self.options).build().can_falsify:
            raise InputError(
                "--attack", "a verifier that falsifies", repr(self.falsifier), "verifolio plugins"
            )


@dataclass(frozen=True, eq=False)
class Found:
    """Counterexamples with the labels of the images they came from."""

    x: Tensor
    y: Tensor
    asked: int

    def __len__(self) -> int:
        return len(self.y)


def hunt(model: nn.Sequential, x: Tensor, y: Tensor, prop: Property, plan: Hunt) -> Found:
    """One counterexample per image where the falsifier finds one.

    As in Bastani et al. 2016 the reference label is what the network predicts, so misclassified images count
    too; what is learned is the image's own label.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        export_onnx(model, path, tuple(x.shape[1:]))
        network = Network.load(path)
        with torch.no_grad():
            predicted = torch.cat([model(p).argmax(1) for p in torch.split(x, 512)])
        around = [plan.ball.reference(a, int(label)) for a, label in zip(x, predicted, strict=True)]
        points, labels = [], []
        chosen = single_verifier(plan.falsifier, plan.options)
        with Oracle(chosen, plan.executor, infer=False, timeout=plan.timeout, seed=plan.seed) as oracle:
            found = sorted(decide_many(oracle, prop, [network], around), key=lambda pair: pair[0])
        for k, finding in found:
            if finding.witness is not None:
                points.append(torch.from_numpy(np.array(finding.witness.x)).reshape(x.shape[1:]))
                labels.append(y[k])
    if not points:
        return Found(x[:0], y[:0], len(x))
    return Found(torch.stack(points).to(x), torch.stack(labels), len(x))


def finetune(
    model: nn.Sequential,
    x: Tensor,
    y: Tensor,
    prop: Property,
    plan: Hunt,
    schedule: Schedule,
    regime: Regime,
    rounds: int,
    points: int,
    say: Say,
) -> list[int]:
    """Rounds of attack, append, train on (Bastani et al. 2016); gives how many were found in each.

    Every round attacks the original images (the first `points` of them), never the appended ones; training
    goes on at the schedule's rate, which should be lower than before.
    """
    found_x, found_y, counts = x[:0], y[:0], []
    for number in range(rounds):
        found = hunt(model, x[:points], y[:points], prop, plan)
        counts.append(len(found))
        say(f"round {number + 1}/{rounds}: {len(found)} counterexamples to {found.asked} images")
        found_x, found_y = torch.cat([found_x, found.x]), torch.cat([found_y, found.y])
        every_x, every_y = torch.cat([x, found_x]), torch.cat([y, found_y])
        fit(model, every_x, every_y, regime, replace(schedule, seed=schedule.seed + number + 1), say)
    return counts
