"""Every property through every command that takes one, compared with the truth on a fine grid of points."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike, NDArray

from verifolio import Network, Oracle, Reference, current_plugins
from verifolio.cli.main import run
from verifolio.encode.onnx_writer import write_onnx
from verifolio.plugin.property import Growth, Points, Property
from verifolio.plugins.training.architectures import build
from verifolio.plugins.training.attacks import Ball, violate
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import Status, decide_many
from verifolio.testing.networks import dense_graph

Array = NDArray[np.float64]
CENTRE = (0.6, 0.35)
RADII = (0.02, 0.1, 0.3)
FINE = 241  # points along each axis
OPTIONS: dict[str, tuple[str, ...]] = {
    "classification": (),
    "strong-classification": ("eta=0.5",),
    "standard": ("delta=0.4",),
    "lipschitz": ("constant=3",),
    "targeted": (),
    "top-k": ("k=2",),
    "monotonic": ("output=1", "tolerance=0.05"),
    "equivalence": ("delta=0.5",),
    "output-range": ("output=0", "lower=0.5"),
}
NAMES = sorted(OPTIONS)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[Network]:
    """Two classifiers of the unit square with a few kinks, and not quite the same scores."""
    folder = tmp_path_factory.mktemp("everywhere")
    hidden = (np.array([[3.0, 1.0], [-2.0, 2.0], [1.0, -3.0], [2.0, 2.0]]), np.array([-1.0, 0.3, 0.2, -2.2]))
    last = np.array([[1.0, -1.0, 0.5, -1.5], [-0.5, 1.0, -0.2, 1.0], [0.2, 0.3, 1.0, -0.4]])
    found = []
    for k, bias in enumerate(([0.2, 0.1, 0.0], [0.3, 0.0, 0.1])):
        path = folder / f"net{k}.onnx"
        write_onnx(dense_graph([float32(*hidden), float32(last * (1 + 0.2 * k), bias)]), path)
        found.append(Network.load(path))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "points.npz"
    rng = np.random.default_rng(0)
    images = np.concatenate([[CENTRE], rng.uniform(size=(11, 2))]).astype(np.float32)
    np.savez(path, images=images, labels=np.array([0, 1, 2] * 4))
    return path


def float32(weight: ArrayLike, bias: ArrayLike) -> tuple[Array, Array]:
    """What a file can hold."""
    return np.asarray(weight, np.float32).astype(np.float64), np.asarray(bias, np.float32).astype(np.float64)


def chosen(name: str) -> Property:
    return choose_property(name, dict(o.split("=") for o in OPTIONS[name]))


def reference(prop: Property, nets: list[Network], radius: float, norm: float = math.inf) -> Reference:
    x = np.array(CENTRE, np.float32).astype(np.float64)
    return Reference(x, 0, radius, norm).with_outputs(nets[: prop.networks])


def violations(prop: Property, nets: list[Network], around: Reference) -> Array:
    """The distances of all violations on a fine grid of the property's region."""
    lower, upper = prop.region(around)
    axes = [np.linspace(a, b, FINE) for a, b in zip(lower, upper, strict=True)]
    x = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    distance = np.linalg.norm(x - around.x, ord=around.norm, axis=1)
    x, distance = x[distance <= around.epsilon], distance[distance <= around.epsilon]
    modules = [n.module(torch.float64) for n in nets[: prop.networks]]
    with torch.no_grad():
        y = torch.cat([m(torch.from_numpy(x)) for m in modules], 1).numpy()
    return np.asarray(distance[~prop.satisfied(Points.at(around, x, y)).numpy()])


def test_the_list_is_complete() -> None:
    """A new property belongs into it; `vnnlib` has no radius, and ensembles test their own property."""
    known = {*NAMES, "vnnlib", "simultaneous-misclassification"}
    assert {p.name for p in current_plugins().properties} == known


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", [math.inf, 2.0, 1.0])
def test_measuring_agrees_with_the_truth(name: str, norm: float, networks: list[Network]) -> None:
    prop = chosen(name)
    around = [reference(prop, networks, r, norm) for r in RADII]
    nets = networks[: prop.networks]
    with Oracle(executor="inline", timeout=3.0) as oracle:
        found = dict(decide_many(oracle, prop, nets, around))
    for k, one in enumerate(around):
        wrong = violations(prop, networks, one)
        status = found[k].status
        assert status is not Status.PROVED or not len(wrong)
        if status is Status.REFUTED:
            witness = found[k].witness
            assert witness is not None
            assert not prop.holds(witness.y, one, witness.x)
            far = np.linalg.norm(witness.x - one.x, ord=norm)
            assert far <= one.epsilon * (1 + 1e-6)
        elif len(wrong):  # only a softmax lies between what can be proved and what can be refuted
            assert prop.refutation(nets, one) is not None or not math.isinf(norm)


@pytest.mark.parametrize("name", NAMES)
def test_critical_radii_agree_with_the_truth(
    name: str, networks: list[Network], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prop = chosen(name)
    wrong = violations(prop, networks, reference(prop, networks, 0.65))
    true, slack = float(wrong.min(initial=math.inf)), 4 * 1.3 / (FINE - 1)
    paths = [str(n.path) for n in networks[: prop.networks]]
    common = [*paths, "--data", str(data), "--property", name, "--reference", "predicted", "--json"]
    common += [word for o in OPTIONS[name] for word in ("--property-option", o)]
    common += ["--executor", "inline", "--budget", "6"]
    assert run(["critical", *common, "--tolerance", "0.01"]) in (0, 3)
    one = json.loads(capsys.readouterr().out)
    assert one["lower"] <= true + 1e-6
    if one["upper"] is not None:
        assert one["upper"] >= true - slack
    if prop.refutation(networks[: prop.networks], reference(prop, networks, 0.1)) is None:
        assert one["status"] == "closed"
        assert one["upper"] is not None or true >= 0.6
    grid = ["--indices", "0", "--search", "binary", "--epsilons", "0.02,0.1,0.3,0.6"]
    assert run(["distribution", *common, *grid]) in (0, 3)
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert float(row["lower"]) <= true + 1e-6
    assert not row["upper"] or float(row["upper"]) >= true - slack


@pytest.mark.parametrize("name", [n for n in NAMES if n != "equivalence"])
def test_training_and_the_cycle_take_it(
    name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for o in OPTIONS[name] for word in ("--option", o)]
    common = ["--arch", "dense:4", "--data", str(data), "--property", name, *options]
    common += ["--epochs", "1", "--json", "--executor", "inline"]
    target = str(tmp_path / "net.onnx")
    assert run(["train", *common, "--output", target, "--regime", "constraint", "--steps", "2"]) == 0
    capsys.readouterr()
    short = [
        "--rounds",
        "1",
        "--points",
        "2",
        "--indices",
        "0:2",
        "--attack-timeout",
        "0.5",
        "--timeout",
        "3",
    ]
    assert run(["cycle", *common, "--output", str(tmp_path / "cycle"), *short]) == 0
    for turn in json.loads(capsys.readouterr().out)["rounds"]:
        assert turn["proved"] + turn["refuted"] + turn["open"] == pytest.approx(100)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "equivalence"])
def test_training_attacks_inside_the_region(name: str) -> None:
    prop, model = chosen(name), build("dense:4", (2,), 3, 0)
    x = torch.rand((6, 2), generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    ball = Ball(0.1)
    found = violate(prop, model, x, y, ball, torch.Generator().manual_seed(1), 4)
    for point, image, label in zip(found.double().numpy(), x, y, strict=True):
        lower, upper = prop.region(ball.reference(image, int(label)))
        assert bool((point >= lower - 1e-6).all()) and bool((point <= upper + 1e-6).all())


@pytest.mark.parametrize(
    ("text", "words"), [("holds: norm(y - y0) <= 4 * epsilon\n", "mentions epsilon"), ("", "the file's")]
)
def test_searches_refuse_what_is_not_monotone(
    text: str,
    words: str,
    networks: list[Network],
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    prop = str(tmp_path / "p.yaml") if text else "vnnlib"
    for command in ("critical", "distribution"):
        arguments = [command, str(networks[0].path), "--data", str(data), "--property", prop]
        assert run([*arguments, "--executor", "inline"]) == 2
        said = capsys.readouterr().err
        assert words in said and "verifolio measure" in said


def test_only_declared_properties_are_searched() -> None:
    assert chosen("lipschitz").growth is Growth.MONOTONE
    assert chosen("classification").growth is Growth.FIXED
    assert Property.growth is Growth.OTHER
