"""Graphs of what depends on the inputs that vary: they have the old values, and hold what hardly varies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from verifolio.graph import Dense, Graph, GraphBuilder, Step
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce import varying
from verifolio.plugins.crown.reduce.varying import Layout, Varying
from verifolio.testing.networks import dense_graph
from verifolio.testing.realistic import NETWORKS
from verifolio.testing.trial import evaluate, sample

ROUNDING = 1e-9  # of values about one


def _made(graph: Graph, seed: int, vary: float = 0.2) -> tuple[Varying, np.ndarray]:
    """For random inputs that vary; two more are kept as they are."""
    rng = np.random.default_rng(seed)
    mask = rng.random(graph.input_size) < vary
    mask[rng.integers(graph.input_size)] = True
    also = np.zeros(graph.input_size, bool)
    also[:2] = True
    layout = Layout(Program(graph, Space(torch.float64)))
    assert layout.applies()
    return Varying(layout, mask, also), mask


def _boxes(graph: Graph, mask: np.ndarray, seed: int, fixed: float) -> list[Domain]:
    """Three boxes: inputs of the mask vary by a half, the others by `fixed`."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(3):
        centre, reach = rng.uniform(0.2, 1, graph.input_size), np.where(mask, 0.25, fixed)
        found.append(Domain(centre - reach, centre + reach))
    return found


def _ends(domains: list[Domain]) -> tuple[Array, Array]:
    return np.stack([d.lower for d in domains]), np.stack([d.upper for d in domains])


@pytest.mark.parametrize("name", NETWORKS)
def test_it_has_the_old_values(name: str) -> None:
    graph = NETWORKS[name](np.random.default_rng(5))
    small, mask = _made(graph, 1)
    assert 0 < len(small.inputs) < graph.input_size
    for k, domain in enumerate(domains := _boxes(graph, mask, 2, 0.0)):
        low, high = (e[k] for e in small.box(*_ends(domains)))
        points = sample(domain, 20)
        inside = np.repeat(((low + high) / 2)[None], len(points), 0)
        inside[:, : len(small.inputs)] = points[:, small.inputs]
        new, old = evaluate(small.graph, inside)[small.graph.output], evaluate(graph, points)[graph.output]
        assert np.abs(new - old).max() <= ROUNDING * (1 + np.abs(old).max())
        fixed = np.s_[len(small.inputs) :]
        assert (high[fixed] - low[fixed] <= ROUNDING * (1 + np.abs(low[fixed]))).all()


@pytest.mark.parametrize("fixed", [0.0, 1e-3])
@pytest.mark.parametrize("name", NETWORKS)
def test_its_box_holds_every_value(name: str, fixed: float) -> None:
    """Inputs that hardly vary are among what is fixed: intervals over the new box hold what they do to the output."""
    graph = NETWORKS[name](np.random.default_rng(6))
    small, mask = _made(graph, 3)
    domains = _boxes(graph, mask, 4, fixed)
    program = Program(small.graph, Space(torch.float64))
    low, high = (program.space.tensor(e) for e in small.box(*_ends(domains)))
    state = program.enter(Region(low, high))
    for i in range(1, program.graph.output + 1):
        program.forward(state, i)
    low, high = state.interval[program.graph.output]
    for k, domain in enumerate(domains):
        value = evaluate(graph, sample(domain, 50))[graph.output]
        assert not (value < low[k].numpy()).any() and not (value > high[k].numpy()).any()


def test_what_a_fixed_part_adds_may_be_negative() -> None:
    """What a fixed input adds may have either sign: here x - x / 2 with one copy of x fixed, so the sum has too."""
    first, last = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, -0.5]])
    graph = dense_graph([(first, np.zeros(2)), (last, np.array([0.25]))])
    layout = Layout(Program(graph, Space(torch.float64)))
    small = Varying(layout, np.array([True, False]), np.zeros(2, bool))
    low, high = small.box(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]]))
    value = evaluate(small.graph, (low + high) / 2)[small.graph.output]
    assert small.graph.input_size == 2 and np.allclose(value, 0.5 - 0.5 + 0.25)
    assert low[0, 1] <= -0.25 <= high[0, 1]


def test_parts_of_many_regions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = NETWORKS["gate"](np.random.default_rng(5))
    small, mask = _made(graph, 1)
    ends = _ends(_boxes(graph, mask, 2, 0.0))
    whole = small.box(*ends)
    monkeypatch.setattr(varying, "ELEMENTS", 1)
    assert all(np.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(small.box(*ends), whole, strict=True))


def test_weights_that_are_off_stay_so() -> None:
    """A weight of nought that may be off counts, and so does what it may be off by."""
    weight, error = np.array([[1.0, 0.0]]), np.array([[0.0, 0.5]])
    builder = GraphBuilder(2)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), weight, error), 0))
    layout = Layout(Program(graph, Space(torch.float64)))
    small = Varying(layout, np.array([False, True]), np.zeros(2, bool))
    low, high = (torch.as_tensor(e) for e in small.box(np.zeros((1, 2)), np.array([[0.0, 2.0]])))
    program = Program(small.graph, Space(torch.float64))
    state = program.enter(Region(low, high))
    for i in range(1, program.graph.output + 1):
        program.forward(state, i)
    low, high = state.interval[program.graph.output]
    assert -1.02 < low <= -1 and 1 <= high < 1.02


def test_steps_have_none() -> None:
    builder = GraphBuilder(1)
    step = Step(1, np.zeros(1), np.array([0.0, 1.0]), np.zeros(1))
    assert not Layout(Program(builder.finish(builder.add(step, 0)), Space(torch.float64))).applies()
