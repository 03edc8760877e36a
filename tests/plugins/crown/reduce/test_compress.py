"""The small graph computes what the large one does on the domain, within the errors it states."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.graph import Concat, Dense, GraphBuilder, Relu
from verifolio.graph.enclosure import enclose
from verifolio.model.problem import Domain
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce.compress import _add_direct, _Rows, _subtract, compress
from verifolio.testing.generate import KINDS, Shape, random_graph
from verifolio.testing.trial import sample


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("radius", [0.01, 0.3, 3.0])
def test_equals_the_large_graph(kind: str, radius: float, dtype: torch.dtype) -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, Shape(kind, inputs=6, width=8, depth=3, outputs=3))  # type: ignore[arg-type]
        centre = rng.normal(size=6)
        domain = Domain(centre - radius, centre + radius)
        program = Program(graph, Space(dtype))
        region = Region.of([domain], program.space)
        state = intermediate_bounds(program, region, Effort())
        known = {p: state.interval[p] for p in program.before}
        rows, direct = rng.normal(size=(4, 3)), rng.normal(size=(4, 6)) * (seed % 2)
        small = compress(graph, region, known, torch.as_tensor(rows), torch.as_tensor(direct))
        assert small.graph.neurons <= graph.neurons and small.graph.output_size == 4
        for x in sample(domain, 10, seed):
            value, error = enclose(graph, x)
            found, wide = enclose(small.graph, x)
            slack = (
                np.abs(rows) @ error
                + wide
                + 1e-14 * (np.abs(rows) @ np.abs(value) + np.abs(direct) @ np.abs(x))
            )
            assert (np.abs(found - rows @ value - direct @ x) <= slack).all()
            assert (wide <= 1e-9 * (1 + np.abs(found))).all()


def test_neurons_that_no_row_depends_on_are_left_out_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two networks side by side: rows over one of them must not make rows of the other's neurons."""
    rng = np.random.default_rng(3)
    graph = random_graph(rng, Shape("dense", inputs=6, width=30, depth=2, outputs=1))
    builder = GraphBuilder(6)
    ends = [builder.extend(graph, 0) for _ in range(2)]
    both = builder.finish(builder.add(Concat(2), *ends))
    program = Program(both, Space(torch.float64))
    region = Region.of([Domain(np.full(6, -1.0), np.ones(6))], program.space)
    state = intermediate_bounds(program, region, Effort())
    known = {p: state.interval[p] for p in program.before}
    made: list[int] = []
    backward = Program.backward

    def counted(self: Program, state: State, node: int, rows: torch.Tensor, *more: Any) -> Any:
        made.append(rows.shape[1])
        return backward(self, state, node, rows, *more)

    monkeypatch.setattr(Program, "backward", counted)
    half = compress(both, region, known, torch.tensor([[0.0, 1.0]]), torch.zeros(1, 6))
    first, made[:] = sum(made), []
    whole = compress(both, region, known, torch.eye(2), torch.zeros(2, 6))
    assert 0 < 2 * half.graph.neurons == whole.graph.neurons
    assert 2 * first == sum(made)


def test_stable_networks_become_affine() -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, Shape("dense", inputs=3, width=6, depth=3))
    x = rng.normal(size=3)
    program = Program(graph, Space(torch.float64))
    region = Region.of([Domain(x - 1e-9, x + 1e-9)], program.space)
    state = intermediate_bounds(program, region, Effort())
    known = {p: state.interval[p] for p in program.before}
    small = compress(graph, region, known, torch.eye(2), torch.zeros(2, 3))
    assert small.graph.neurons == 0 and not small.known


def test_known_intervals_belong_to_the_kept_neurons() -> None:
    builder = GraphBuilder(1)
    hidden = builder.add(Relu(3), builder.add(Dense(3, np.array([5.0, 0.0, -5.0]), np.ones((3, 1))), 0))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 3))), hidden))
    program = Program(graph, Space(torch.float64))
    region = Region.of([Domain(-np.ones(1), np.full(1, 2.0))], program.space)
    state = intermediate_bounds(program, region, Effort())
    small = compress(graph, region, {1: state.interval[1]}, torch.ones(1, 1), torch.zeros(1, 1))
    ((node, (low, high)),) = small.known.items()
    assert small.graph.neurons == 1 and small.graph.nodes[small.graph.relus[0]].parents == (node,)
    assert np.allclose([float(low), float(high)], [-1.0, 2.0])


def test_neurons_the_goal_does_not_feel_are_dropped() -> None:
    """Of three unstable neurons one reaches the goal, one cancels, and one feeds the neuron that cancels."""
    builder = GraphBuilder(1)
    first = builder.add(Relu(2), builder.add(Dense(2, np.zeros(2), np.array([[1.0], [2.0]])), 0))
    second = builder.add(Relu(1), builder.add(Dense(1, -np.ones(1), np.array([[0.0, 1.0]])), first))
    both = builder.add(Concat(3), first, second)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.array([[1.0, 0.0, 0.0]])), both))
    program = Program(graph, Space(torch.float64))
    region = Region.of([Domain(-np.ones(1), np.full(1, 2.0))], program.space)
    state = intermediate_bounds(program, region, Effort())
    known = {p: state.interval[p] for p in program.before}
    small = compress(graph, region, known, torch.ones(1, 1), torch.zeros(1, 1))
    ((low, high),) = small.known.values()
    assert small.graph.neurons == 1 and np.allclose([float(low), float(high)], [-1.0, 2.0])
    assert small.stacked.sizes == [1]


def test_rows_over_the_inputs_are_added_with_their_rounding() -> None:
    """Coefficients of 1 and ones that vanish beside it; the forms come in two parts."""
    region = Region.of([Domain(np.array([-4.0, 0.0]), np.array([1.0, 2.0]))], Space(torch.float64))
    before, direct = np.ones((3, 2)), np.array([[2.0**-54, 0.0], [3e-17, -5e-17], [0.0, 0.1]])
    known = np.array([0.0, 1e-3, 0.0])
    goal = _Rows([before[:1], before[1:]], [], [], [known[:1], known[1:]])
    _add_direct(goal, direct, region)
    (total,), (error,) = goal.on_input, goal.error
    for k in range(3):
        off = [abs(Fraction(1) + Fraction(direct[k, i]) - Fraction(total[k, i])) for i in range(2)]
        assert Fraction(known[k]) + 4 * off[0] + 2 * off[1] <= Fraction(error[k])


def test_right_hand_sides_are_subtracted_with_their_rounding() -> None:
    rng = np.random.default_rng(6)
    bias, rhs, known = rng.normal(size=40), rng.normal(size=40) * 1e-3, np.zeros(40)
    goal = _Rows([], [], [bias[:15], bias[15:]], [known[:15], known[15:]])
    _subtract(goal, rhs)
    (shifted,), (error,) = goal.bias, goal.error
    for k in range(40):
        assert abs(Fraction(bias[k]) - Fraction(rhs[k]) - Fraction(shifted[k])) <= Fraction(error[k])
