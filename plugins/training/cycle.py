"""`verifolio cycle`: train, attack, verify, retrain on what was found, and keep a table of what improved."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS
from verifolio.cli.common import open_oracle
from verifolio.cli.output import going_on

from .command import Inputs, Quiet, Training, make_hunt, speaker, split_data

if TYPE_CHECKING:
    from torch import nn

    from verifolio.onnx_import.network import Network
    from verifolio.plugin.data_source import Dataset
    from verifolio.plugin.property import Property
    from verifolio.plugin.regime import Regime
    from verifolio.solve.oracle import Oracle

    from .attacks import Ball
    from .counterexamples import Hunt
    from .trainer import Say, Schedule


@dataclass(frozen=True)
class Round:
    """What one turn of the cycle came to; shares are of the verified test images, in percent."""

    number: int
    network: str
    accuracy: float
    proved: float
    refuted: float
    open: float
    counterexamples: int
    training_images: int


@dataclass(frozen=True)
class Judge:
    """Who decides, about what, around which test images."""

    oracle: Oracle
    prop: Property
    dataset: Dataset
    indices: list[int]
    ball: Ball

    def shares(self, network: Network) -> dict[str, float]:
        """Proved, refuted and open, in percent."""
        from verifolio.plugin.property import Reference
        from verifolio.properties.verdict import PropertyStatus, decide_many

        data, ball = self.dataset, self.ball
        references = [
            Reference(data.image(i), int(data.labels[i]), ball.epsilon, lower=ball.low, upper=ball.high)
            for i in self.indices
        ]
        found = [f.status for _, f in decide_many(self.oracle, self.prop, [network], references)]
        return {s.value: 100.0 * found.count(s) / max(1, len(found)) for s in PropertyStatus}


@dataclass(frozen=True, kw_only=True)
class Verified(Inputs, bundles.Indices):
    """The data, and the test images that are verified."""

    panel: ClassVar[str] = INPUTS


def cycle(inputs: Verified, training: Training, running: bundles.RunningMany, written: Quiet) -> None:
    """Train, attack, verify and retrain.

    One line per round says what improved. --output is a folder for the networks and the table cycle.csv,
    which has a line as soon as a round is done. --indices are the test images that are verified.

    Example (not run: it takes a minute, and docs/guides/training.md has one that is run):
        verifolio cycle --arch dense:16 --data digits --limit 200 --epochs 2 --rounds 1 --indices 0:2 \\
            --attack-points 10 --timeout 5 -o rounds
    """
    from verifolio.cli.output import say_json, table

    from .architectures import build
    from .setup import Choices, make_regime
    from .trainer import Schedule

    say = speaker(written.quiet or written.json)
    low, high = inputs.limits
    learn, check = split_data(inputs)
    choices = Choices(training.regime, inputs.radius, low=low, high=high)
    plan = Schedule(training.epochs, training.rate, seed=running.seed)
    hunt = make_hunt(training, choices, running.seed, running.place, running.verifier)
    chosen, prop = inputs.positions(len(check)), inputs.chosen_property()
    model = build(training.arch, learn.shape, learn.classes, running.seed)
    folder = Path(written.output)
    folder.mkdir(parents=True, exist_ok=True)
    kept = f"the rounds that are done are in {folder}"
    with (
        going_on(kept, "the same command and seed begin again; with --store, its answers are known"),
        open_oracle(running, running.jobs) as oracle,
    ):
        judge = Judge(oracle, prop, check, chosen, choices.ball())
        turns = run(model, learn, make_regime(choices), plan, hunt, judge, training, folder, say)
    if written.json:
        say_json({"rounds": [asdict(t) for t in turns]})
    else:
        table(list(asdict(turns[0])), [[_cell(v) for v in asdict(t).values()] for t in turns])


def run(
    model: nn.Sequential,
    learn: Dataset,
    regime: Regime,
    plan: Schedule,
    hunt: Hunt,
    judge: Judge,
    training: Training,
    folder: Path,
    say: Say,
) -> list[Round]:
    """Round 0 trains; every later one attacks the original images, appends what was found and trains on."""
    import torch

    from .counterexamples import hunt as find
    from .trainer import fit, tensors

    x, y = tensors(learn)
    fit(model, x, y, regime, plan, say)
    turns = [_turn(0, model, judge, folder, 0, len(y))]
    write(folder / "cycle.csv", turns)
    later = replace(plan, epochs=max(1, plan.epochs // 4), rate=plan.rate / 2)
    every_x, every_y = x, y
    for number in range(1, training.rounds + 1):
        points = training.attack_points
        found = find(model, x[:points], y[:points], judge.prop, hunt)
        say(f"round {number}: {len(found)} counterexamples to {found.asked} images")
        every_x, every_y = torch.cat([every_x, found.x]), torch.cat([every_y, found.y])
        if len(found):
            fit(model, every_x, every_y, regime, replace(later, seed=plan.seed + number), say)
        turns.append(_turn(number, model, judge, folder, len(found), len(every_y)))
        write(folder / "cycle.csv", turns)
        if not len(found):
            break
    return turns


def _turn(number: int, model: nn.Sequential, judge: Judge, folder: Path, found: int, images: int) -> Round:
    from verifolio.onnx_import.network import Network

    from .setup import save
    from .trainer import accuracy, tensors

    path = folder / f"round{number}.onnx"
    save(model, path, judge.dataset.shape, judge.oracle.compute)
    x, y = tensors(judge.dataset)
    shares = judge.shares(Network.load(path))
    return Round(
        number,
        path.name,
        100 * accuracy(model, x, y),
        **shares,
        counterexamples=found,
        training_images=images,
    )


def write(path: Path, turns: list[Round]) -> None:
    """The table of the rounds so far."""
    import csv

    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(turns[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(t) for t in turns)


def _cell(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value
