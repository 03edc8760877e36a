"""`verifolio cycle`: train, attack, verify, retrain on what was found, and keep a table of what improved."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verifolio.cli.common import (
    Address,
    AsJson,
    ExecutorName,
    Layout,
    PortfolioFile,
    Range,
    Seed,
    StoreFile,
    Timeout,
    VerifierName,
    at,
    open_oracle,
)

from .command import Arch, Data, Epsilon, RegimeName, speaker, split_data

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
        from verifolio.properties.verdict import Status, decide_many

        data, ball = self.dataset, self.ball
        references = [
            Reference(data.image(i), int(data.labels[i]), ball.epsilon, lower=ball.low, upper=ball.high)
            for i in self.indices
        ]
        found = [f.status for _, f in decide_many(self.oracle, self.prop, [network], references)]
        return {s.value: 100.0 * found.count(s) / max(1, len(found)) for s in Status}


def cycle(
    arch: Arch,
    data: Data,
    folder: Annotated[str, typer.Option("--output", "-o", help="A folder for networks and the table.")],
    regime: RegimeName = "baseline",
    epsilon: Epsilon = 0.05,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of retraining.")] = 2,
    indices: Annotated[str, typer.Option(help="Test images that are verified.")] = "0:20",
    property_name: Annotated[
        str, typer.Option("--property", help="What is attacked and verified.")
    ] = "classification",
    option: Annotated[list[str] | None, typer.Option(help="An option of the property, key=value.")] = None,
    attack: Annotated[str, typer.Option(help="Any falsifier.")] = "pgd",
    attack_timeout: Annotated[float, typer.Option(help="Seconds per attacked image.")] = 0.5,
    points: Annotated[int, typer.Option(min=1, help="Training images that are attacked each round.")] = 200,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data at first; a quarter later.")] = 20,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    limit: Annotated[int, typer.Option(min=0, help="Only the first training images; 0 is all.")] = 0,
    legal: Range = "0,1",
    layout: Layout = "",
    verifier: VerifierName = "",
    portfolio: PortfolioFile = "",
    timeout: Timeout = 10.0,
    store: StoreFile = "",
    executor: ExecutorName = "process",
    address: Address = "",
    seed: Seed = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train, attack, verify and retrain; one line per round says what improved."""
    from verifolio.cli.output import say_json, table
    from verifolio.data import parse_indices, parse_range
    from verifolio.plugin.options import split_pairs
    from verifolio.properties.file import choose_property

    from .architectures import build
    from .counterexamples import Hunt
    from .setup import Choices, make_regime
    from .trainer import Schedule

    say = speaker(quiet or as_json)
    low, high = parse_range(legal)
    learn, check = split_data(data, "", limit, layout, (low, high))
    prop = choose_property(property_name, split_pairs(option or []))
    choices = Choices(regime, epsilon, low=low, high=high)
    plan = Schedule(epochs, rate, seed=seed)
    place = at(executor, address)
    hunt = Hunt(attack, {}, choices.ball(), attack_timeout, seed, place)
    chosen = parse_indices(indices, len(check))
    model = build(arch, learn.shape, learn.classes, seed)
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open_oracle(verifier, portfolio, timeout=timeout, seed=seed, store=store, executor=place) as oracle:
        judge = Judge(oracle, prop, check, chosen, choices.ball())
        turns = run(model, learn, make_regime(choices), plan, hunt, judge, rounds, points, Path(folder), say)
    write(Path(folder) / "cycle.csv", turns)
    if as_json:
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
    rounds: int,
    points: int,
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
    later = replace(plan, epochs=max(1, plan.epochs // 4), rate=plan.rate / 2)
    every_x, every_y = x, y
    for number in range(1, rounds + 1):
        found = find(model, x[:points], y[:points], judge.prop, hunt)
        say(f"round {number}: {len(found)} counterexamples to {found.asked} images")
        every_x, every_y = torch.cat([every_x, found.x]), torch.cat([every_y, found.y])
        if len(found):
            fit(model, every_x, every_y, regime, replace(later, seed=plan.seed + number), say)
        turns.append(_turn(number, model, judge, folder, len(found), len(every_y)))
        if not len(found):
            break
    return turns


def _turn(number: int, model: nn.Sequential, judge: Judge, folder: Path, found: int, images: int) -> Round:
    from verifolio.onnx_import.network import Network

    from .setup import save
    from .trainer import accuracy, tensors

    path = folder / f"round{number}.onnx"
    save(model, path, judge.dataset.shape)
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
    import csv

    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(turns[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(t) for t in turns)


def _cell(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value
