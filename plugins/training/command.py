"""`verifolio train`: from data to an ONNX file that is ready to verify."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, SEARCH, WRITTEN, with_default
from verifolio.cli.output import going_on
from verifolio.plugin.options import REQUIRED, described

if TYPE_CHECKING:
    from torch import nn

    from verifolio.plugin.data_source import Dataset

    from .counterexamples import Hunt
    from .setup import Choices
    from .trainer import Say, Schedule


@dataclass(frozen=True, kw_only=True)
class Inputs(bundles.About, bundles.Epsilon, bundles.Data):
    """The data, and what the network should do around it."""

    panel: ClassVar[str] = INPUTS
    epsilon: str = with_default(bundles.Epsilon, "epsilon", default="0.1")
    limit: int = described(0, "Only the first images of the data; 0 for all.", min=0)


@dataclass(frozen=True, kw_only=True)
class TrainInputs(Inputs, bundles.TestData):
    """The same with test data."""


@dataclass(frozen=True, kw_only=True)
class Training(bundles.Attack):
    """How a network is trained."""

    panel: ClassVar[str] = SEARCH
    arch: str = described(REQUIRED, "A preset such as mnist-nn, or dense:100,50.", metavar="NAME")
    regime: str = described(
        "baseline",
        "baseline, augment, adversarial, constraint, certified, finetune, or a plugin's.",
        metavar="NAME",
    )
    regime_option: tuple[str, ...] = described((), "An option of the regime, key=value.", metavar="KEY=VALUE")
    epochs: int = described(20, "Passes over the data; fewer where a network is retrained.", min=0)
    rate: float = described(1e-3, "The learning rate of Adam.")
    rounds: int = described(2, "Rounds of attack and retraining.", min=1)
    attack_points: int = described(200, "How many training images are attacked.", min=1)


@dataclass(frozen=True, kw_only=True)
class Details(Training):
    """What single regimes can be told besides."""

    panel: ClassVar[str] = SEARCH
    steps: int = described(10, "Steps of the attack inside training.", min=1)
    data_weight: float = described(1.0, "constraint: the weight of the cross-entropy.")
    property_weight: float = described(0.2, "constraint: the weight of the property's loss.")
    bounder: str = described("interval", "certified: the bounder, interval or crown.", metavar="NAME")
    share: float = described(0.7, "certified: the share of the certified loss in the end.")
    copies: int = described(2, "augment: images added per image.", min=1)
    batch: int = described(128, "Images per step.", min=1)
    start: str = described("", "Start from these weights (npz).", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class Running(bundles.Place, bundles.Seed):
    """What runs."""


@dataclass(frozen=True, kw_only=True)
class Quiet(bundles.Json, bundles.Output):
    """What is written, and said."""

    panel: ClassVar[str] = WRITTEN
    output: str = with_default(bundles.Output, "output", default=REQUIRED)
    quiet: bool = described(False, "Say nothing about the progress.")


@dataclass(frozen=True, kw_only=True)
class Written(Quiet):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    weights: str = described("", "Also save the weights here (npz).", metavar="FILE")


def train(inputs: TrainInputs, training: Details, running: Running, written: Written) -> None:
    """Train a small network and write it as ONNX.

    The same seed gives the same network. --attack is uniform or fgsm for the regime augment, fgsm, pgd or
    property for adversarial, any falsifier for finetune. Data named without a split is divided into its own
    train and test splits.

    Example:
        verifolio train --arch dense:16 --data digits --limit 200 --epochs 2 -o small.onnx
    """
    from .setup import Choices
    from .trainer import Schedule

    low, high = inputs.limits
    choices = Choices(
        regime=training.regime,
        epsilon=inputs.radius,
        attack=training.attack,
        steps=training.steps,
        prop=inputs.property,
        options=inputs.property_option,
        data_weight=training.data_weight,
        property_weight=training.property_weight,
        bounder=training.bounder,
        share=training.share,
        copies=training.copies,
        low=low,
        high=high,
        more=training.regime_option,
    )
    plan = Schedule(training.epochs, training.rate, training.batch, seed=running.seed)
    learn, check = split_data(inputs, inputs.test_data)
    task = Task(learn, check, choices, plan, training, running.place)
    with going_on("nothing is written", "the same command and seed train the same network again"):
        result = train_network(task, written, speaker(written.quiet or written.json))
    show(result, written.json, choices)


@dataclass(frozen=True)
class Task:
    """The data, the regime, the schedule, and what `finetune` needs besides."""

    learn: Dataset
    check: Dataset
    choices: Choices
    plan: Schedule
    training: Details
    executor: str


def train_network(task: Task, written: Written, say: Say) -> dict[str, Any]:
    """Train, write the files, and say how good the network is."""
    from verifolio.errors import InputError

    from .architectures import build
    from .setup import load_weights, save, save_weights

    output, learn, training = written.output, task.learn, task.training
    if Path(output).is_dir():
        raise InputError("--output", "a file", f"the folder {output}", "name the ONNX file, such as net.onnx")
    model = build(training.arch, learn.shape, learn.classes, task.plan.seed)
    if training.start:
        load_weights(model, Path(training.start))
    began = time.monotonic()
    more = run_regime(model, task, say)
    seconds = time.monotonic() - began
    difference = save(model, Path(output), learn.shape)
    if written.weights:
        save_weights(model, Path(written.weights))
    result = describe(model, learn, task.check, task.choices, task.plan.seed) | more
    return result | {"output": output, "onnx_difference": difference, "seconds": round(seconds, 3)}


def run_regime(model: nn.Sequential, task: Task, say: Say) -> dict[str, Any]:
    """Train; what the regime has to report besides the network."""
    from verifolio.properties.file import choose_property

    from .counterexamples import finetune
    from .setup import FINETUNE, make_regime
    from .trainer import fit, tensors

    plan, training = task.plan, task.training
    x, y = tensors(task.learn)
    regime = make_regime(task.choices)
    if task.choices.regime != FINETUNE:
        fit(model, x, y, regime, plan, say)
        return {}
    hunt = make_hunt(training, task.choices, plan.seed, task.executor)
    if not training.start:
        fit(model, x, y, regime, plan, say)
    slow = replace(plan, rate=plan.rate / 10, epochs=max(1, plan.epochs // 4))
    prop = choose_property("classification")
    counts = finetune(model, x, y, prop, hunt, slow, regime, training.rounds, training.attack_points, say)
    return {"counterexamples": counts}


def make_hunt(training: Training, choices: Choices, seed: int, executor: str, verifier: str = "") -> Hunt:
    """The falsifier that --attack names, or else --verifier, around training images."""
    from verifolio.plugin.options import split_pairs

    from .counterexamples import Hunt

    given = split_pairs(training.attack_option, "--attack-option")
    attack = training.attack or verifier or "pgd"
    return Hunt(attack, given, choices.ball(), training.attack_timeout, seed, executor)


def split_data(inputs: Inputs, test: str = "") -> tuple[Dataset, Dataset]:
    """Training and test data; a set by name has both splits, a file is its own test unless told."""
    from verifolio.data import check_range, in_layout, load_data
    from verifolio.plugin.manager import current_plugins

    data, layout = inputs.only_data, inputs.layout or ""
    named = data in current_plugins().datasets
    learn = in_layout(load_data(f"{data}:train" if named else data), layout)
    check = in_layout(load_data(test or (f"{data}:test" if named else data)), layout)
    if inputs.limit:
        learn = learn.take(range(min(inputs.limit, len(learn))))
    for part in (learn, check):
        check_range(part, range(len(part)), *inputs.limits)
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
