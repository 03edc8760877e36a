"""Every property against brute force on networks of one input, where the nearest violation can be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from verifolio import Network, Oracle, Property, Reference, Verdict
from verifolio.encode.torch_export import export_onnx
from verifolio.plugin.property import Points
from verifolio.plugins.properties.distances import Lipschitz, LipschitzOptions
from verifolio.portfolio.tree import single_verifier
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import PropertyStatus, decide
from verifolio.vnnlib import write

Array = NDArray[np.float64]
CENTRE = 0.5
# all but `lipschitz`, whose violations often begin at the centre itself; its constants are tested below
CASES: list[tuple[str, dict[str, object]]] = [
    ("classification", {}),
    ("strong-classification", {"eta": 0.36}),
    ("strong-classification", {"eta": 0.1, "scale": "outputs"}),
    ("standard", {"delta": 0.5}),
    ("targeted", {}),
    ("top-k", {"k": 2}),
    ("monotonic", {"tolerance": 0.05}),
    ("monotonic", {"tolerance": 0.05, "direction": "down"}),
    ("equivalence", {"delta": 0.5}),
    ("equivalence", {"mode": "class"}),
    ("output-range", {"lower": -0.3, "upper": 0.6}),
    ("vnnlib", {}),
]


def line(seed: int, folder: Path) -> Network:
    """One input, three classes, two hidden layers; scores near 0 in the middle."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
        last = model[4]
        assert isinstance(last, nn.Linear)
        last.bias.sub_(model(torch.tensor([CENTRE])) - torch.tensor([0.3, 0.1, 0.0]))
    export_onnx(model, folder / f"line{seed}.onnx", (1,))
    return Network.load(folder / f"line{seed}.onnx")


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle(single_verifier("milp"), "inline", timeout=20.0, infer=False) as found:
        yield found


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[Network]:
    folder = tmp_path_factory.mktemp("lines")
    return [line(seed, folder) for seed in range(10)]


def values(networks: list[Network], x: Array) -> Array:
    with torch.no_grad():
        batch = torch.from_numpy(x)[:, None]
        return np.concatenate([n.module(torch.float64)(batch).numpy() for n in networks], axis=1)


def violated(prop: Property, networks: list[Network], reference: Reference, x: Array) -> NDArray[np.bool_]:
    points = Points.at(reference, x[:, None], values(networks, x))
    return ~np.asarray(prop.satisfied(points).numpy())


def nearest_violation(prop: Property, networks: list[Network], reference: Reference) -> float:
    """The distance of the nearest violating point: a fine scan of both sides, then bisection."""
    found = np.inf
    for side in (-1.0, 1.0) if prop.name != "monotonic" else (1.0,):
        steps = np.linspace(0, CENTRE, 20_001)[1:]
        bad = violated(prop, networks, reference, CENTRE + side * steps)
        if not bad.any():
            continue
        k = int(bad.argmax())
        low, high = (steps[k - 1] if k else 0.0), steps[k]
        for _ in range(30):
            middle = (low + high) / 2
            wrong = violated(prop, networks, reference, np.array([CENTRE + side * middle]))[0]
            low, high = (low, middle) if wrong else (middle, high)
        found = min(found, high)
    return found


def in_a_file(networks: list[Network], reference: Reference, folder: Path) -> Property:
    """Classification as a file states it, for the radius of the reference."""
    query = choose_property("classification").query(networks, reference)
    path = folder / f"{networks[0].sha256[:8]}-{reference.epsilon}.vnnlib"
    path.write_text(write(query.specification))
    return choose_property("vnnlib", {"path": str(path)})


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{k}" for k, (n, _) in enumerate(CASES)])
def test_verdicts_change_where_the_nearest_violation_is(
    name: str, options: dict[str, object], networks: list[Network], oracle: Oracle, tmp_path: Path
) -> None:
    """Proved a little below the distance of the nearest violation, refuted a little above."""
    make = name == "vnnlib"
    prop, checked = choose_property("classification" if make else name, options), 0
    groups = [networks[k : k + 2] for k in range(9)] if prop.networks == 2 else [[n] for n in networks]
    for group in groups:
        reference = Reference(np.array([CENTRE]), 0, 0.25).with_outputs(group)
        radius = nearest_violation(prop, group, reference)
        if not 0.005 < radius < 0.48:
            continue
        for factor, wrong in ((0.998, PropertyStatus.REFUTED), (1.002, PropertyStatus.PROVED)):
            at = Reference(np.array([CENTRE]), 0, radius * factor)
            asked = in_a_file(group, at, tmp_path) if make else prop
            status = decide(oracle, asked, group, at).status
            assert status is not wrong, f"{name} at {factor} of {radius}"
            if prop.refutation(group, at) is None:  # only the softmax may stay open
                assert status is not PropertyStatus.OPEN, f"{name} at {factor} of {radius}"
        checked += 1
    assert checked >= 3, f"{name}: only {checked} networks have a violation in reach"


def test_the_softmax_of_two_classes_is_exact(oracle: Oracle, tmp_path: Path) -> None:
    """Scores (x, 0.25): the first has probability 0.6 at x = 0.25 + ln 1.5."""
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [0.0]]))
        layer.bias.copy_(torch.tensor([0.0, 0.25]))
    export_onnx(nn.Sequential(layer), tmp_path / "two.onnx", (1,))
    network, prop = (
        Network.load(tmp_path / "two.onnx"),
        choose_property("strong-classification", {"eta": 0.6}),
    )
    limit = 0.25 + np.log(1.5)
    for radius, expected in (
        (1 - limit - 1e-4, PropertyStatus.PROVED),
        (1 - limit + 1e-4, PropertyStatus.REFUTED),
    ):
        assert decide(oracle, prop, [network], Reference(np.array([1.0]), 0, radius)).status is expected


def kinks(network: Network, low: float, high: float) -> Array:
    """The places where the slope changes, by bisection on a scan of second differences."""
    t = np.linspace(low, high, 4001)
    y = values([network], t)
    bent = np.abs(np.diff(y, 2, axis=0)).max(axis=1) > 1e-9
    return np.asarray(t[1:-1][bent], np.float64)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("radius", [0.02, 0.1, 0.4])
def test_local_lipschitz_constants_of_random_networks(
    seed: int, radius: float, networks: list[Network], oracle: Oracle
) -> None:
    """On a piece, |f(x) - f(x0)| / |x - x0| is largest at an end, so the ends and a step off x0 decide."""
    network = networks[seed]
    ends = kinks(network, CENTRE - radius, CENTRE + radius)
    near = [CENTRE + s * d for s in (-1, 1) for d in (1e-6, radius)]
    t = np.concatenate([ends, near])
    t = t[np.abs(t - CENTRE) > 1e-7]
    y0 = values([network], np.array([CENTRE]))
    slopes = np.abs(values([network], t) - y0).max(axis=1) / np.abs(t - CENTRE)
    constant = float(slopes.max())
    for factor, expected in ((1.02, Verdict.UNSAT), (0.98, Verdict.SAT)):
        prop = Lipschitz(LipschitzOptions(constant * factor))
        query = prop.query([network], Reference(np.array([CENTRE]), 0, radius))
        assert query.labels["centre"].startswith("affine")
        assert oracle.ask(query).verdict is expected, f"{factor} of {constant}"


# What each property says, once more and plainly, of numbers x, y, x0, y0 and a label.
Says = Callable[[Array, Array, Array, Array, int], bool]


def others(y: Array, label: int) -> Array:
    return np.delete(y, label)


def runner_up(y0: Array, label: int) -> int:
    return max((i for i in range(len(y0)) if i != label), key=lambda i: y0[i])


def one_winner(y: Array) -> int | None:
    best = np.flatnonzero(y == y.max())
    return int(best[0]) if len(best) == 1 else None


def agree(y: Array) -> bool:
    first, second = one_winner(y[:3]), one_winner(y[3:])
    return first is not None and first == second


PLAIN: list[tuple[str, dict[str, object], Says]] = [
    ("classification", {}, lambda x, y, x0, y0, k: bool(y[k] > others(y, k).max())),
    (
        "strong-classification",
        {"eta": 0.4},
        lambda x, y, x0, y0, k: bool(np.exp(y[k]) / np.exp(y).sum() >= 0.4),
    ),
    ("strong-classification", {"eta": 0.5, "scale": "outputs"}, lambda x, y, x0, y0, k: bool(y[k] >= 0.5)),
    ("standard", {"delta": 1.0}, lambda x, y, x0, y0, k: bool(np.abs(y - y0).max() <= 1.0)),
    (
        "lipschitz",
        {"constant": 2.0},
        lambda x, y, x0, y0, k: bool(np.abs(y - y0).max() <= 2 * np.abs(x - x0).max()),
    ),
    (
        "targeted",
        {},
        lambda x, y, x0, y0, k: bool(y[runner_up(y0, k)] < others(y, runner_up(y0, k)).max()),
    ),
    ("targeted", {"target": 1}, lambda x, y, x0, y0, k: k == 1 or bool(y[1] < others(y, 1).max())),
    ("top-k", {"k": 2}, lambda x, y, x0, y0, k: int((others(y, k) >= y[k]).sum()) < 2),
    ("monotonic", {"tolerance": 0.5}, lambda x, y, x0, y0, k: bool(y[k] - y0[k] >= -0.5)),
    (
        "monotonic",
        {"tolerance": 0.5, "direction": "down", "output": 1},
        lambda x, y, x0, y0, k: bool(y[1] - y0[1] <= 0.5),
    ),
    (
        "output-range",
        {"lower": -1.0, "upper": 0.5},
        lambda x, y, x0, y0, k: bool(y.min() >= -1 and y.max() <= 0.5),
    ),
    ("equivalence", {"delta": 0.5}, lambda x, y, x0, y0, k: bool(np.abs(y[:3] - y[3:]).max() <= 0.5)),
    ("equivalence", {"mode": "class"}, lambda x, y, x0, y0, k: agree(y)),
]


@pytest.mark.parametrize(("name", "options", "says"), PLAIN, ids=[f"{p[0]}-{k}" for k, p in enumerate(PLAIN)])
def test_truth_and_loss_at_random_points(name: str, options: dict[str, object], says: Says) -> None:
    """Coarse numbers, so that ties and borders come up; the loss is 0 exactly where the property holds."""
    prop, rng, count = choose_property(name, options), np.random.default_rng(0), 600
    size = 3 * prop.networks
    x, x0 = (np.round(4 * rng.uniform(0, 1, (count, 2))) / 4 for _ in range(2))
    y, y0 = (np.round(2 * rng.normal(size=(count, size))) / 2 for _ in range(2))
    y0 += 0.01 * rng.normal(size=(count, size)) * (name == "targeted")  # one runner-up, not two
    labels = rng.integers(0, 3, count)
    there, before = [torch.from_numpy(a) for a in (x, y)], [torch.from_numpy(a) for a in (x0, y0)]
    points = Points(there[0], there[1], before[0], before[1], torch.from_numpy(labels), 0.5)
    held, loss = prop.satisfied(points).numpy(), prop.loss(points).numpy()
    plain = np.array([says(x[k], y[k], x0[k], y0[k], int(labels[k])) for k in range(count)])
    assert (held == plain).all(), np.flatnonzero(held != plain)[:5]
    assert ((loss == 0) == held).all() and bool((loss >= 0).all())
    assert 0 < held.sum() < count


def test_truth_and_loss_of_a_file_at_random_points(networks: list[Network], tmp_path: Path) -> None:
    """Inside the file's box the condition decides; outside it nothing is asked."""
    prop = in_a_file([networks[0]], Reference(np.array([CENTRE]), 0, 0.25), tmp_path)
    rng, count = np.random.default_rng(0), 400
    x = np.round(8 * rng.uniform(0, 1, (count, 1))) / 8
    y = np.round(2 * rng.normal(size=(count, 3))) / 2
    points = Points.at(Reference(np.array([CENTRE]), 0, 0.25), x, y)
    held, loss = prop.satisfied(points).numpy(), prop.loss(points).numpy()
    outside = (np.abs(x[:, 0] - CENTRE) > 0.25) | (y[:, 0] > y[:, 1:].max(axis=1))
    assert (held == outside).all()
    assert ((loss == 0) == held).all()
    assert 0 < held.sum() < count


@pytest.mark.parametrize("eta", [0.499, 0.5001, 0.52, 0.6, 0.9])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_limits_of_a_probability_are_rounded_to_the_safe_side(
    eta: float, classes: int, tmp_path: Path
) -> None:
    """Of differences of scores; near eta = 0.5 the quotient's rounding is many units of the logarithm's."""
    model = nn.Linear(1, classes)
    export_onnx(model, tmp_path / "n.onnx", (1,))
    network, reference = Network.load(tmp_path / "n.onnx"), Reference(np.zeros(1), 0, 0.1)
    prop = choose_property("strong-classification", {"eta": eta})
    with localcontext(prec=60):
        odds = (Decimal(1) - Decimal(eta)) / Decimal(eta)
        enough, broken = (odds / (classes - 1)).ln(), odds.ln()
    asked, other = prop.query([network], reference), prop.refutation([network], reference)
    # rows are Y_label - Y_l < -limit
    assert all(-rows.exact_rhs[0] <= enough for rows in asked.specification.cases[0].disjuncts)
    if other is not None:
        assert all(-rows.exact_rhs[0] >= broken for rows in other.specification.cases[0].disjuncts)
