"""The training loop: seeded, plain, the same for every regime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from verifolio.errors import InputError
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.regime import Regime

from .attacks import Ball, pgd
from .regimes import Baseline, label_rows

Say = Callable[[str], None]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast; the rate drops tenfold for the last `cool` part of the epochs."""

    epochs: int = 20
    rate: float = 1e-3
    batch: int = 128
    cool: float = 0.25
    decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1 or not self.rate > 0:
            got = f"{self.epochs}, {self.batch}, {self.rate}"
            raise InputError("training", "epochs >= 0, batch >= 1 and a positive rate", got)


@dataclass(frozen=True)
class Epoch:
    """One pass over the data."""

    number: int
    loss: float
    accuracy: float


def tensors(data: Dataset) -> tuple[Tensor, Tensor]:
    """Images (N, *shape) in float32 and labels; data without labels cannot be trained on."""
    if len(data) == 0 or int(data.labels.min()) < 0:
        raise InputError(f"data {data.name}:{data.split}", "labelled inputs", "none", "choose another set")
    x = torch.tensor(data.images, dtype=torch.float32).reshape(-1, *data.shape)
    return x, torch.tensor(data.labels)


def fit(model: nn.Sequential, x: Tensor, y: Tensor, regime: Regime, plan: Schedule, say: Say) -> list[Epoch]:
    """Train in place; everything random comes from the plan's seed."""
    random = torch.Generator().manual_seed(plan.seed)

    def ordinary(x: Tensor, y: Tensor) -> nn.Module:
        other = copy_of(model)
        say("training an ordinary network to augment the data with")
        fit(other, x, y, Baseline(regime.ball), plan, lambda _: None)
        return other

    x, y = regime.prepare(x, y, random, ordinary)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(weights, lr=plan.rate, weight_decay=plan.decay)
    cool = torch.optim.lr_scheduler.MultiStepLR(
        optimiser, [max(1, round(plan.epochs * (1 - plan.cool)))], 0.1
    )
    history = []
    for number in range(plan.epochs):
        history.append(_epoch(model, x, y, regime, plan, optimiser, random, number))
        cool.step()
        last = history[-1]
        say(f"epoch {number + 1}/{plan.epochs}: loss {last.loss:.4f}, accuracy {last.accuracy:.4f}")
    model.eval()
    return history


def _epoch(
    model: nn.Sequential,
    x: Tensor,
    y: Tensor,
    regime: Regime,
    plan: Schedule,
    optimiser: torch.optim.Optimizer,
    random: torch.Generator,
    number: int,
) -> Epoch:
    model.train()
    total, right = 0.0, 0
    batches = torch.split(torch.randperm(len(y), generator=random), plan.batch)
    for k, batch in enumerate(batches):
        part = (number + k / len(batches)) / plan.epochs
        loss = regime.loss(model, x[batch], y[batch], part, random)
        if not bool(torch.isfinite(loss)):
            raise InputError(
                "training", "a finite loss", f"{float(loss)} in epoch {number + 1}", "lower --rate"
            )
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        total += float(loss.detach()) * len(batch)
        with torch.no_grad():
            right += int((model(x[batch]).argmax(1) == y[batch]).sum())
    return Epoch(number + 1, total / len(y), right / len(y))


def copy_of(model: nn.Sequential) -> nn.Sequential:
    """A network with the same layers and weights."""
    import copy

    return copy.deepcopy(model)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    parts = [model(p).argmax(1) for p in torch.split(x, 512)]
    return float((torch.cat(parts) == y).float().mean())


def attacked_accuracy(
    model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int = 0, steps: int = 20
) -> float:
    """The share of points that plain PGD leaves correctly classified: an upper bound of the truth."""
    random = torch.Generator().manual_seed(seed)
    found = [
        pgd(model, a, b, ball, random, steps)
        for a, b in zip(torch.split(x, 512), torch.split(y, 512), strict=True)
    ]
    return accuracy(model, torch.cat(found), y)


@torch.no_grad()
def certified_share(model: nn.Sequential, x: Tensor, y: Tensor, ball: Ball) -> float | None:
    """The share with positive interval margins, a rough lower bound; None where layers have no intervals."""
    from verifolio.plugin.manager import current_plugins

    bounder = current_plugins().all_bounders().get("interval")
    if bounder is None or not bounder.differentiable:
        return None
    try:
        sure = 0
        for a, b in zip(torch.split(x, 256), torch.split(y, 256), strict=True):
            classes = model(a[:1]).shape[1]
            margins = bounder.margins(model, *ball.box(a), label_rows(b, classes, a))
            own = torch.nn.functional.one_hot(b, classes).bool()
            sure += int((margins.masked_fill(own, torch.inf).amin(1) > 0).sum())
    except InputError:
        return None
    return sure / len(y)
