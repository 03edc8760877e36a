"""`verifolio train`: from data to an ONNX file that is ready to verify."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verifolio.cli.common import Address, AsJson, ExecutorName, Layout, Range, Seed, at

if TYPE_CHECKING:
    from torch import nn

    from verifolio.plugin.data_source import Dataset

    from .setup import Choices
    from .trainer import Say, Schedule

Arch = Annotated[str, typer.Option(help="A preset such as mnist-nn, or dense:100,50.")]
Data = Annotated[str, typer.Option(help="NAME[:SPLIT] or a file; the train split of a name by default.")]
RegimeName = Annotated[
    str,
    typer.Option(help="baseline, augment, adversarial, constraint, certified, finetune, or a plugin's."),
]
AttackName = Annotated[
    str,
    typer.Option(help="augment: uniform, fgsm; adversarial: fgsm, pgd, property; finetune: any falsifier."),
]
Epsilon = Annotated[float, typer.Option(help="The radius, where the regime has one.")]


def train(
    arch: Arch,
    data: Data,
    output: Annotated[str, typer.Option("--output", "-o", help="The ONNX file to write.")],
    regime: RegimeName = "baseline",
    epsilon: Epsilon = 0.1,
    attack: AttackName = "",
    attack_option: Annotated[
        list[str] | None, typer.Option(help="An option of finetune's falsifier.")
    ] = None,
    attack_timeout: Annotated[float, typer.Option(help="Seconds per image for finetune's falsifier.")] = 0.5,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the attack inside training.")] = 10,
    property_name: Annotated[
        str,
        typer.Option("--property", help="What to train for: constraint, adversarial with --attack property."),
    ] = "standard",
    option: Annotated[list[str] | None, typer.Option(help="An option of the property, key=value.")] = None,
    alpha: Annotated[float, typer.Option(help="constraint: weight of the cross-entropy.")] = 1.0,
    beta: Annotated[float, typer.Option(help="constraint: weight of the property's loss.")] = 0.2,
    bounder: Annotated[str, typer.Option(help="certified: interval or crown.")] = "interval",
    share: Annotated[float, typer.Option(help="certified: share of the certified loss in the end.")] = 0.7,
    copies: Annotated[int, typer.Option(min=1, help="augment: images added per image.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="finetune: rounds of attack and training.")] = 2,
    points: Annotated[
        int, typer.Option(min=1, help="finetune: how many training images are attacked.")
    ] = 200,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data.")] = 20,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    batch: Annotated[int, typer.Option(min=1, help="Images per step.")] = 128,
    limit: Annotated[int, typer.Option(min=0, help="Only the first images of the data; 0 is all.")] = 0,
    start: Annotated[str, typer.Option(help="Start from these weights (npz).")] = "",
    weights: Annotated[str, typer.Option(help="Also save the weights (npz).")] = "",
    test: Annotated[str, typer.Option(help="Test data; the test split of a name by default.")] = "",
    regime_option: Annotated[list[str] | None, typer.Option(help="An option of the regime.")] = None,
    legal: Range = "0,1",
    layout: Layout = "",
    seed: Seed = 0,
    executor: ExecutorName = "process",
    address: Address = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a small network and write it as ONNX; the same seed gives the same network."""
    from verifolio.data import parse_range

    from .setup import Choices
    from .trainer import Schedule

    options, legal_range = tuple(option or ()), parse_range(legal)
    chosen = (regime, epsilon, attack, steps, property_name, options, alpha, beta, bounder, share, copies)
    choices = Choices(*chosen, *legal_range, tuple(regime_option or ()))
    plan, place, given = Schedule(epochs, rate, batch, seed=seed), at(executor, address), attack_option or ()
    rest = Rest(rounds, points, tuple(given), attack_timeout, place, start, weights)
    learn, check = split_data(data, test, limit, layout, legal_range)
    result = train_network(arch, learn, check, choices, plan, rest, output, speaker(quiet or as_json))
    show(result, as_json, choices)


@dataclass(frozen=True)
class Rest:
    """What `finetune` needs besides, and the files with weights."""

    rounds: int
    points: int
    options: tuple[str, ...]
    timeout: float
    executor: str
    start: str
    weights: str


def train_network(
    arch: str,
    learn: Dataset,
    check: Dataset,
    choices: Choices,
    plan: Schedule,
    rest: Rest,
    output: str,
    say: Say,
) -> dict[str, Any]:
    """Train, write the files, and say how good the network is."""
    from verifolio.errors import InputError

    from .architectures import build
    from .setup import load_weights, save, save_weights

    if Path(output).is_dir():
        raise InputError("--output", "a file", f"the folder {output}", "name the ONNX file, such as net.onnx")
    model = build(arch, learn.shape, learn.classes, plan.seed)
    if rest.start:
        load_weights(model, Path(rest.start))
    began = time.monotonic()
    more = run_regime(model, learn, choices, plan, rest, say)
    seconds = time.monotonic() - began
    difference = save(model, Path(output), learn.shape)
    if rest.weights:
        save_weights(model, Path(rest.weights))
    result = describe(model, learn, check, choices, plan.seed) | more
    return result | {"output": output, "onnx_difference": difference, "seconds": round(seconds, 3)}


def run_regime(
    model: nn.Sequential, learn: Dataset, choices: Choices, plan: Schedule, rest: Rest, say: Say
) -> dict[str, Any]:
    """Train; what the regime has to report besides the network."""
    from verifolio.plugin.options import split_pairs
    from verifolio.properties.file import choose_property

    from .counterexamples import Hunt, finetune
    from .setup import FINETUNE, make_regime
    from .trainer import fit, tensors

    x, y = tensors(learn)
    regime = make_regime(choices)
    if choices.regime != FINETUNE:
        fit(model, x, y, regime, plan, say)
        return {}
    given = split_pairs(rest.options)
    hunt = Hunt(choices.attack or "pgd", given, choices.ball(), rest.timeout, plan.seed, rest.executor)
    if not rest.start:
        fit(model, x, y, regime, plan, say)
    slow = replace(plan, rate=plan.rate / 10, epochs=max(1, plan.epochs // 4))
    prop = choose_property("classification")
    counts = finetune(model, x, y, prop, hunt, slow, regime, rest.rounds, rest.points, say)
    return {"counterexamples": counts}


def split_data(
    data: str, test: str, limit: int, layout: str, legal: tuple[float, float]
) -> tuple[Dataset, Dataset]:
    """Training and test data; a set by name has both splits, a file is its own test unless told."""
    from verifolio.data import check_range, in_layout, load_data
    from verifolio.plugin.manager import current_plugins

    named = data in current_plugins().datasets
    learn = in_layout(load_data(f"{data}:train" if named else data), layout)
    check = in_layout(load_data(test or (f"{data}:test" if named else data)), layout)
    if limit:
        learn = learn.take(range(min(limit, len(learn))))
    for part in (learn, check):
        check_range(part, range(len(part)), *legal)
    return learn, check


def describe(
    model: nn.Sequential, learn: Dataset, check: Dataset, choices: Choices, seed: int, most: int = 1000
) -> dict[str, Any]:
    """How good the network is: on the data, under attack, by intervals."""
    from .trainer import accuracy, attacked_accuracy, certified_share, tensors

    x, y = tensors(check)
    ball = choices.ball()
    sure = certified_share(model, x[:most], y[:most], ball)
    return {
        "regime": choices.regime,
        "epsilon": choices.epsilon,
        "train_accuracy": accuracy(model, *tensors(learn)),
        "test_accuracy": accuracy(model, x, y),
        "attacked_accuracy": attacked_accuracy(model, x[:most], y[:most], ball, seed),
        "interval_accuracy": sure,
    }


def show(result: dict[str, Any], as_json: bool, choices: Choices) -> None:
    """The result for people or for programs."""
    from verifolio.cli.output import say, say_json

    if as_json:
        say_json(result | {"choices": asdict(choices)})
        return
    for name, value in result.items():
        say(f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}")


def speaker(quiet: bool) -> Say:
    """Progress on standard error."""
    return (lambda _: None) if quiet else (lambda text: typer.echo(text, err=True))
