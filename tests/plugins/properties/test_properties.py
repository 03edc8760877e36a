"""Every property against brute force on tiny networks: query, truth and loss must tell one story."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from verifolio import Network, Oracle, Property, Reference, Verdict, parse_portfolio
from verifolio.encode.torch_export import export_onnx
from verifolio.errors import InputError
from verifolio.plugin.property import Points
from verifolio.properties.file import choose_property

Array = NDArray[np.float64]
CASES: list[tuple[str, dict[str, object]]] = [
    ("classification", {}),
    ("strong-classification", {"eta": 0.4}),
    ("strong-classification", {"eta": 0.1, "scale": "outputs"}),
    ("standard", {"delta": 0.5}),
    ("lipschitz", {"constant": 2.0}),
    ("targeted", {}),
    ("targeted", {"target": 1}),
    ("top-k", {"k": 2}),
    ("monotonic", {"features": "0"}),
    ("monotonic", {"direction": "down", "output": 0}),
    ("output-range", {"lower": -1.0, "upper": 1.0}),
    ("output-range", {"upper": 0.5, "output": 1}),
]
RADII = (0.01, 0.08, 0.3)


def small(seed: int, folder: Path, name: str = "net") -> tuple[Network, nn.Sequential]:
    """Two inputs, three classes, two hidden layers."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
        last = model[4]
        if isinstance(last, nn.Linear):  # a close race in the middle, so that both verdicts come up
            last.bias.add_(torch.tensor([0.1, 0.05, 0.0]) - model(torch.full((2,), 0.5)))
    path = folder / f"{name}{seed}.onnx"
    export_onnx(model, path, (2,))
    return Network.load(path), model


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    quick = "{verifier: pgd, options: {rounds: 1, samples: 1000}}"
    stages = f"sequence: [{quick}, {{verifier: crown, share: 0.5}}, {{verifier: milp}}]"
    with Oracle(parse_portfolio(stages), "inline", timeout=20.0) as found:
        yield found


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Network, nn.Sequential]]:
    folder = tmp_path_factory.mktemp("networks")
    return [small(seed, folder) for seed in range(3)]


def grid(lower: Array, upper: Array, count: int = 50) -> Array:
    axes = [np.linspace(a, b, count if b > a else 1) for a, b in zip(lower, upper, strict=True)]
    return np.stack([m.ravel() for m in np.meshgrid(*axes)], axis=1)


def outputs(models: list[nn.Sequential], x: Array) -> Array:
    with torch.no_grad():
        return np.concatenate([m.double()(torch.from_numpy(x)).numpy() for m in models], axis=1)


def compare(
    prop: Property, networks: list[Network], models: list[nn.Sequential], reference: Reference, oracle: Oracle
) -> str:
    """The verdict must agree with every point of a dense grid; gives what it was."""
    reference = reference.with_outputs(networks)
    x = grid(*prop.region(reference))
    points = Points.at(reference, x, outputs(models, x))
    held = prop.satisfied(points)
    check_loss(prop, points)
    answer = oracle.ask(prop.query(networks, reference))
    if answer.verdict is Verdict.UNSAT:
        assert bool(held.all()), f"{prop.name}: proved, but a point of the grid violates it"
        return "proved"
    weaker = prop.refutation(networks, reference)
    if weaker is not None:
        answer = oracle.ask(weaker)
    if answer.verdict is Verdict.SAT and answer.witness is not None:
        assert not prop.holds(answer.witness.y, reference, answer.witness.x), prop.name
        return "refuted"
    assert weaker is not None, f"{prop.name}: {answer.reason}"
    return "open"


def check_loss(prop: Property, points: Points) -> None:
    held, loss = prop.satisfied(points), prop.loss(points)
    assert bool((loss[held] == 0).all()), f"{prop.name}: positive loss where it holds"
    assert bool((loss[~held] > 0).all()), f"{prop.name}: no loss where it is violated"


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_verdicts_agree_with_a_dense_grid(
    name: str, options: dict[str, object], networks: list[tuple[Network, nn.Sequential]], oracle: Oracle
) -> None:
    prop, seen = choose_property(name, options), []
    for seed, (network, model) in enumerate(networks):
        x = np.random.default_rng(seed).uniform(0.2, 0.8, 2)
        label = int(outputs([model], x[None]).argmax())
        for radius in RADII:
            seen.append(compare(prop, [network], [model], Reference(x, label, radius), oracle))
    assert len(set(seen)) > 1, f"{name}: the cases are all {seen[0]}, a weak test"


@pytest.mark.parametrize("mode", ["outputs", "class"])
def test_two_networks(
    mode: str, networks: list[tuple[Network, nn.Sequential]], oracle: Oracle, tmp_path: Path
) -> None:
    first = networks[0]
    near = nn.Sequential(
        *(type(m)(m.in_features, m.out_features) if isinstance(m, nn.Linear) else m for m in first[1])
    )
    near.load_state_dict({k: v + 0.02 for k, v in first[1].float().state_dict().items()})
    export_onnx(near, tmp_path / "near.onnx", (2,))
    pairs = [(Network.load(tmp_path / "near.onnx"), near), networks[1]]
    prop, seen = choose_property("equivalence", {"mode": mode, "delta": 0.3}), set()
    for second in pairs:
        for radius in RADII:
            reference = Reference(np.array([0.4, 0.6]), 0, radius)
            both = [first[0], second[0]], [first[1], second[1]]
            seen.add(compare(prop, *both, reference, oracle))
    assert seen == {"proved", "refuted"}


def test_norms_narrow_the_box(networks: list[tuple[Network, nn.Sequential]]) -> None:
    network = networks[0][0]
    prop = choose_property("classification")
    reference = Reference(np.array([0.05, 0.9]), 0, 0.2, norm=2.0)
    query = prop.query([network], reference)
    assert query.ball is not None and query.ball.norm == 2
    case = query.specification.cases[0]
    np.testing.assert_allclose(case.lower, [0.0, 0.7])
    np.testing.assert_allclose(case.upper, [0.25, 1.0])


def test_a_file_as_a_property(
    networks: list[tuple[Network, nn.Sequential]], oracle: Oracle, tmp_path: Path
) -> None:
    from verifolio.vnnlib import write

    network, model = networks[1]
    x = np.array([0.3, 0.7])
    label = int(outputs([model], x[None]).argmax())
    seen = set()
    for radius in RADII:
        query = choose_property("classification").query([network], Reference(x, label, radius))
        file = tmp_path / f"{radius}.vnnlib"
        file.write_text(write(query.specification))
        prop = choose_property("vnnlib", {"path": str(file)})
        seen.add(compare(prop, [network], [model], Reference(x, label, 0.0), oracle))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("standard", {"delta": -1.0}, "delta"),
        ("lipschitz", {"constant": 0.0}, "constant"),
        ("strong-classification", {"eta": 1.5}, "probability"),
        ("standard", {"gamma": 1.0}, "gamma"),
        ("monotonic", {"tolerance": 0.0}, "tolerance"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        choose_property(name, options)


@pytest.mark.parametrize(
    ("name", "options", "label", "words"),
    [
        ("classification", {}, 7, "label from 0 to 2"),
        ("top-k", {"k": 3}, 0, "from 1 to 2"),
        ("targeted", {"target": 5}, 0, "-1 to 2"),
        ("vnnlib", {"path": "nowhere.vnnlib"}, 0, "nowhere"),
        ("output-range", {}, 0, "finite end"),
        ("output-range", {"upper": 1.0, "output": 9}, 0, "position from 0 to 2"),
        ("equivalence", {}, 0, "2 network"),
        ("monotonic", {"features": "9"}, 0, "positions from 0 to 1"),
    ],
)
def test_bad_questions_are_refused(
    name: str,
    options: dict[str, object],
    label: int,
    words: str,
    networks: list[tuple[Network, nn.Sequential]],
) -> None:
    with pytest.raises(InputError, match=words):
        choose_property(name, options).query([networks[0][0]], Reference(np.zeros(2), label, 0.1))


def test_a_target_that_is_the_label_is_vacuous(
    networks: list[tuple[Network, nn.Sequential]], oracle: Oracle
) -> None:
    prop = choose_property("targeted", {"target": 2})
    query = prop.query([networks[0][0]], Reference(np.zeros(2), 2, 0.1))
    assert oracle.ask(query).verdict is Verdict.UNSAT


@pytest.mark.parametrize(("epsilon", "norm"), [(-0.1, np.inf), (np.nan, np.inf), (0.1, 3.0)])
def test_bad_references_are_refused(epsilon: float, norm: float) -> None:
    with pytest.raises(InputError):
        Reference(np.zeros(2), 0, epsilon, norm)
