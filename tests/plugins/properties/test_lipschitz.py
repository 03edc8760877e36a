"""The split at the centre of Lipschitz robustness, on networks whose local constants are known."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from verifolio import Network, Oracle, Reference, Verdict
from verifolio.encode.onnx_writer import write_onnx
from verifolio.encode.torch_export import export_onnx
from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.plugins.properties.affine import affine_piece
from verifolio.plugins.properties.distances import Lipschitz, LipschitzOptions
from verifolio.portfolio.tree import single_verifier
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import PropertyStatus, at_sight, decide, follow
from verifolio.testing.networks import dense_graph


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle(single_verifier("milp"), "inline", timeout=20.0) as found:
        yield found


def two_slopes(folder: Path, left: float = 1.0, right: float = 3.0, kink: float = 0.5) -> Network:
    """f(x, z) = left x + (right - left) relu(x - kink): slope `left` below the kink, `right` above."""
    first, last = nn.Linear(2, 2), nn.Linear(2, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        first.bias.copy_(torch.tensor([8.0, -kink]))  # the first neuron is always active
        last.weight.copy_(torch.tensor([[left, right - left]]))
        last.bias.fill_(-8.0 * left)
    export_onnx(nn.Sequential(first, nn.ReLU(), last), folder / "two_slopes.onnx", (2,))
    return Network.load(folder / "two_slopes.onnx")


def ask(oracle: Oracle, network: Network, x: list[float], radius: float, constant: float) -> Verdict:
    prop = Lipschitz(LipschitzOptions(constant))
    return oracle.ask(prop.query([network], Reference(np.array(x), 0, radius))).verdict


@pytest.mark.parametrize(
    ("x", "radius", "constant", "expected"),
    [
        ([0.25, 0.5], 0.2, 1.05, Verdict.UNSAT),  # only the flat side is in reach
        ([0.25, 0.5], 0.2, 0.95, Verdict.SAT),  # violated at the centre already, by the slope alone
        ([0.75, 0.5], 0.2, 3.05, Verdict.UNSAT),
        ([0.75, 0.5], 0.2, 2.95, Verdict.SAT),
        # up to the kink at 0.5 and on to 0.6: (0.25 + 3 * 0.1) / 0.35 = 1.5714...
        ([0.25, 0.5], 0.35, 1.6, Verdict.UNSAT),
        ([0.25, 0.5], 0.35, 1.5, Verdict.SAT),
        # the legal range ends at 1, so the steep side is only in reach downwards
        ([1.0, 0.5], 0.2, 3.05, Verdict.UNSAT),
        ([1.0, 0.5], 0.2, 2.95, Verdict.SAT),
    ],
)
def test_known_constants(
    x: list[float], radius: float, constant: float, expected: Verdict, oracle: Oracle, tmp_path: Path
) -> None:
    assert ask(oracle, two_slopes(tmp_path), x, radius, constant) is expected


def test_shells_decide_what_the_one_query_decides(tmp_path: Path) -> None:
    """Every network and constant by SR queries at growing radii alone, without the query of thousands of rows."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    export_onnx(model, tmp_path / "net.onnx", (3,))
    network, seen = Network.load(tmp_path / "net.onnx"), set()
    with Oracle(single_verifier("milp"), "inline", timeout=20.0, infer=False) as oracle:
        for k in range(2):
            reference = Reference(np.random.default_rng(k).uniform(0.1, 0.9, 3), 0, 0.3)
            for constant in (0.1, 0.25, 0.5, 1.0):
                prop = Lipschitz(LipschitzOptions(constant))
                whole = oracle.ask(prop.query([network], reference)).verdict
                answer = follow(prop.settle([network], reference), oracle.ask)
                assert answer is None or answer.verdict is whole, f"{constant} around {reference.x}"
                seen.add(None if answer is None else answer.verdict)
    assert seen == {Verdict.SAT, Verdict.UNSAT}


def test_shells_leave_other_norms_and_kinks_alone(oracle: Oracle, tmp_path: Path) -> None:
    network, prop = two_slopes(tmp_path), Lipschitz(LipschitzOptions(3.1))
    for reference in (Reference(np.array([0.5, 0.5]), 0, 0.1), Reference(np.array([0.3, 0.5]), 0, 0.1, 2.0)):
        assert follow(prop.settle([network], reference), oracle.ask) is None


def test_a_reference_on_a_kink_uses_the_tolerance(oracle: Oracle, tmp_path: Path) -> None:
    network = two_slopes(tmp_path)
    reference = Reference(np.array([0.5, 0.5]), 0, 0.1)
    for constant, expected in ((3.1, Verdict.UNSAT), (2.9, Verdict.SAT)):
        prop = Lipschitz(LipschitzOptions(constant, 1e-3))
        query = prop.query([network], reference)
        assert query.labels["centre"] == "tolerance 0.001"
        assert oracle.ask(query).verdict is expected


def test_a_steep_piece_is_a_violation_at_sight(tmp_path: Path) -> None:
    network, prop = two_slopes(tmp_path), Lipschitz(LipschitzOptions(2.9))
    steep, flat = (Reference(np.array([x, 0.5]), 0, 0.1) for x in (0.75, 0.25))
    found = at_sight(prop, [network], steep)
    assert found is not None and found.status is PropertyStatus.REFUTED and found.witness is not None
    assert not prop.holds(found.witness.y, steep.with_outputs([network]), found.witness.x)
    assert prop.candidates([network], flat) == []


def test_the_affine_radius_is_the_distance_to_the_nearest_kink(tmp_path: Path) -> None:
    graph = two_slopes(tmp_path).graph
    assert affine_piece(graph, np.array([0.25, 0.5]))[0] == pytest.approx(0.25, rel=1e-5)
    assert affine_piece(graph, np.array([0.5, 0.5]))[0] == 0.0


def test_within_the_affine_radius_nothing_bends(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))
    export_onnx(model, tmp_path / "net.onnx", (4,))
    x = np.random.default_rng(0).uniform(0, 1, 4)
    radius = affine_piece(Network.load(tmp_path / "net.onnx").graph, x)[0]
    assert 0 < radius < 1
    module = Network.load(tmp_path / "net.onnx").module(torch.float64)
    moves = torch.from_numpy(np.random.default_rng(1).choice([-1.0, 1.0], (64, 4)))
    centre = module(torch.from_numpy(x)[None])
    far = module(torch.from_numpy(x) + radius * moves) - centre
    near = module(torch.from_numpy(x) + 0.25 * radius * moves) - centre
    torch.testing.assert_close(far, 4 * near, rtol=1e-7, atol=1e-9)


def test_what_cancels_may_bend_sooner_than_it_seems() -> None:
    """Numbers of a billion cancel but for rounding in what the last neuron reads: its kink is where they vanish."""
    n = 6
    for seed in range(20):
        rng = np.random.default_rng(seed)
        first, bias, x = rng.uniform(1, 2, (30, n)), rng.uniform(1e9, 2e9, 30), rng.uniform(1, 2, n)
        last = rng.choice([-1.0, 1.0], (1, 30)) * rng.uniform(1, 2, 30)
        builder = GraphBuilder(n)
        hidden = builder.add(Relu(30), builder.add(Dense(30, bias, first), 0))
        bend = builder.add(Dense(1, -(last @ (first @ x + bias)), last), hidden)
        graph = builder.finish(builder.add(Relu(1), bend))
        w, c, v = (np.vectorize(Fraction)(part) for part in (first, bias, x))
        steep = np.vectorize(Fraction)(last)[0] @ w
        reads = np.vectorize(Fraction)(last)[0] @ (w @ v + c) + Fraction(float(graph.nodes[bend].op.bias[0]))  # type: ignore[attr-defined]
        assert affine_piece(graph, x)[0] <= abs(reads) / np.abs(steep).sum()


def test_a_neuron_that_reads_only_dead_ones_is_no_kink() -> None:
    """h = relu(x - 3) is nought around 1, so relu(2 h) does not move there."""
    builder = GraphBuilder(1)
    dead = builder.add(Relu(1), builder.add(Dense(1, np.array([-3.0]), np.ones((1, 1))), 0))
    after = builder.add(Relu(1), builder.add(Dense(1, np.zeros(1), np.full((1, 1), 2.0)), dead))
    assert affine_piece(builder.finish(after), np.ones(1))[0] == pytest.approx(2.0, rel=1e-5)


def test_smooth_networks_have_no_affine_radius(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 2))
    export_onnx(model, tmp_path / "net.onnx", (2,))
    assert affine_piece(Network.load(tmp_path / "net.onnx").graph, np.array([0.5, 0.5]))[0] == 0.0


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_other_norms_stretch_no_farther_than_their_ball(norm: float, tmp_path: Path) -> None:
    """f = 2.5 (x0 + x1): along the diagonal outputs move 5 times as far, along an axis 2.5 times."""
    path = tmp_path / "sum.onnx"
    write_onnx(dense_graph([([[2.5, 2.5], [0.0, 0.0]], [0.0, -1.0])]), path)
    network = Network.load(path)
    with Oracle(executor="inline", timeout=5.0) as oracle:
        for constant, status in ((4.0, PropertyStatus.REFUTED), (5.5, PropertyStatus.PROVED)):
            prop = choose_property("lipschitz", {"constant": constant})
            reference = Reference(np.array([0.5, 0.5]), 0, 0.1, norm)
            assert decide(oracle, prop, [network], reference).status is status
            answer = oracle.ask(prop.query([network], reference))  # the one query, without any help
            assert answer.verdict is (Verdict.SAT if status is PropertyStatus.REFUTED else Verdict.UNSAT)
