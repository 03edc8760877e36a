"""The network of a box: its forms hold what the graph computes, its bounds are the reference's and never above it."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import Dense, Graph, GraphBuilder, Op, Relu, Scale, Sparse, Sum
from verifolio.graph.ops import Array
from verifolio.model.problem import Domain, Problem
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce.box_network import BoxNetwork, _NodeForms, _Walk, box_network
from verifolio.plugins.crown.reduce.kept import Forms, KeptNeurons
from verifolio.plugins.crown.search.root import make_goal
from verifolio.run.budget import Budget
from verifolio.testing.attained import attained as exactly
from verifolio.testing.realistic import NETWORKS, boxes
from verifolio.testing.reference import Reference, attained
from verifolio.testing.reference.lines import default_slopes
from verifolio.testing.trial import evaluate as values_at
from verifolio.testing.trial import sample
from verifolio.vnnlib import make_rows

PIECEWISE = (
    "dense",
    "scale_after_second",
    "clip",
    "min",
    "abs",
    "residual",
    "conv",
    "conv_max_pool",
    "joined",
)
ROOM = 1 << 27


@cache
def network(name: str) -> Graph:
    return NETWORKS[name](np.random.default_rng(0))


def problem_of(graph: Graph, domain: Domain) -> Problem:
    """Two disjuncts, of one row and of two, one of which reads inputs."""
    n, m = graph.input_size, graph.output_size
    rows = [{n: 1.0, n + m - 1: -1.0}, {n + 1: -1.5, 0: 0.5}, {0: 0.25, n - 1: -1.0, n + m - 1: 1.0}]
    return Problem(graph, domain, (make_rows([(rows[0], 0.3)]), make_rows([(r, 0.1) for r in rows[1:]])))


def on_box(problem: Problem, domain: Domain | None = None) -> BoxNetwork:
    space = Space(torch.float64)
    region = Region.of([domain or problem.domain], space)
    made = box_network(problem.graph, region, make_goal(space, problem), Budget(), ROOM)
    assert made is not None
    return made[0]


def inner(domain: Domain, share: float) -> Domain:
    width = domain.upper - domain.lower
    return Domain(domain.lower + 0.1 * width, domain.lower + (0.1 + share) * width)


def goal_rows(problem: Problem) -> tuple[Array, Array, Array]:
    """Outputs, inputs and right-hand sides of the rows, flat, as the goal pads them."""
    goal = make_goal(Space(torch.float64), problem)
    assert goal.inputs is not None
    return tuple(t.flatten(0, 1).numpy() for t in (goal.rows, goal.inputs, goal.rhs))  # type: ignore[return-value]


def values_of(network: BoxNetwork, x: Array) -> Array:
    """What the forms say of the goal at a point, the neurons evaluated one layer after the other."""
    columns = torch.as_tensor(x)
    for layer in network.kept.layers:
        z = layer.forms.rows @ columns + layer.forms.bias
        assert (layer.low - 1e-9 <= z).all() and (z <= layer.high + 1e-9).all()
        columns = torch.cat([columns, z.clamp(min=0)])
    return np.asarray((network.goal.rows @ columns + network.goal.bias).numpy())


@pytest.mark.parametrize("radius", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("name", PIECEWISE)
def test_forms_hold_what_the_graph_computes(name: str, radius: float) -> None:
    graph = network(name)
    problem = problem_of(graph, boxes(np.random.default_rng(1), graph.input_size, (radius,))[0])
    outputs, inputs, rhs = goal_rows(problem)
    small = inner(problem.domain, 0.5)
    whole = on_box(problem)
    part = whole.narrowed(Region.of([small], Space(torch.float64)), Budget())
    assert part is not None
    assert part.kept.count <= whole.kept.count
    for made, domain in ((whole, problem.domain), (part, small)):
        points = sample(domain, 20)
        exact = values_at(graph, points)[graph.output] @ outputs.T + points @ inputs.T - rhs
        found = np.stack([values_of(made, x) for x in points])
        assert np.abs(found - exact).max() <= 1e-9 * (1 + np.abs(exact).max())
        assert (made.goal.error <= 1e-8).all() and (made.goal.error > 0).all()


@pytest.mark.parametrize("radius", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("name", PIECEWISE)
def test_bounds_are_the_references(name: str, radius: float) -> None:
    """Given the same intervals, the plain backward bound; and never above a value that is attained."""
    graph = network(name)
    problem = problem_of(graph, boxes(np.random.default_rng(2), graph.input_size, (radius,))[0])
    outputs, inputs, rhs = goal_rows(problem)
    reference, space = Reference(graph), Space(torch.float64)
    region = Region.of([problem.domain], space)
    made = box_network(graph, region, make_goal(space, problem), Budget(), ROOM)
    assert made is not None
    known = {p: (low[0].numpy(), high[0].numpy()) for p, (low, high) in made[1].items()}
    intervals = reference.intervals(problem.domain, known)
    for p, (low, high) in known.items():  # what was proved of neurons holds
        values = values_at(graph, sample(problem.domain, 50))[p]
        assert (values >= low - 1e-9).all() and (values <= high + 1e-9).all()
    lines = {}
    for i in graph.relus:
        slopes = default_slopes(graph.nodes[i].op, [intervals[p] for p in graph.nodes[i].parents])
        lines[i] = reference.lines(i, intervals, *slopes)
    plain = reference.lower(problem.domain, intervals, lines, {graph.output: outputs, 0: inputs})
    found = made[0].kept.lower(made[0].goal).bound.numpy()
    assert (found <= plain.high - rhs + 1e-12 * np.abs(rhs)).all()
    assert (found >= plain.low - rhs - 1e-9 * (1 + np.abs(plain.low))).all()
    assert (found <= attained(graph, problem.domain, outputs, inputs) - rhs).all()


@pytest.mark.parametrize("name", ("dense", "residual", "conv"))
def test_any_slopes_and_weights_are_sound(name: str) -> None:
    graph, rng = network(name), np.random.default_rng(3)
    problem = problem_of(graph, boxes(rng, graph.input_size, (0.3,))[0])
    outputs, inputs, rhs = goal_rows(problem)
    made = on_box(problem)
    slopes = torch.as_tensor(rng.uniform(-1, 2, (2, made.kept.count)))
    weights = torch.as_tensor(rng.uniform(0, 1, (2, len(made.goal))))
    found = made.kept.lower(made.goal.combined(weights, made.kept.reach), slopes).bound.numpy()
    mixed = weights.numpy()
    reached = attained(graph, problem.domain, mixed @ outputs, mixed @ inputs) - mixed @ rhs
    assert (found <= reached + 1e-12).all()


@pytest.mark.parametrize("name", ("dense", "residual", "conv", "joined"))
def test_rounding_is_charged(name: str) -> None:
    """On single points, where a bound is a value minus what was charged: never above the exact value, and close."""
    graph = network(name)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        # at 0 nothing is charged for the inputs, and the constants' own rounding must be
        x = (seed % 2) * rng.normal(size=graph.input_size)
        problem = problem_of(graph, Domain(x, x))
        made = on_box(problem)
        wide = on_box(problem_of(graph, Domain(x - 1, x + 1)))  # with neurons that are open
        part = wide.narrowed(Region.of([problem.domain], Space(torch.float64)), Budget())
        assert part is not None and wide.kept.count > 0
        outputs, inputs, rhs = goal_rows(problem)
        (*_, last) = exactly(graph, x)
        for k, found in enumerate(
            zip(*(m.kept.lower(m.goal).bound.tolist() for m in (made, part)), strict=True)
        ):
            terms = [*zip(outputs[k], last.lower, strict=True), *zip(inputs[k], x, strict=True)]
            exact = sum((Fraction(a) * Fraction(b) for a, b in terms), -Fraction(rhs[k]))
            assert all(Fraction(f) <= exact for f in found)
            assert all(f >= exact - 1e-9 * (1 + abs(exact)) for f in found)


def test_too_large_is_no_network() -> None:
    graph = network("dense")
    problem = problem_of(graph, boxes(np.random.default_rng(1), graph.input_size, (0.5,))[0])
    space = Space(torch.float64)
    region, goal = Region.of([problem.domain], space), make_goal(space, problem)
    assert box_network(graph, region, goal, Budget(), 10) is None
    assert box_network(graph, region, goal, Budget(0.0), ROOM) is None


def in_fractions(kept: KeptNeurons, rows: list[Fraction], constant: Fraction) -> Fraction:
    """The backward pass of one form over a box that is the point 0, in rational arithmetic."""
    for layer in reversed(kept.layers):
        start = len(rows) - len(layer)
        met, rows = rows[start:], rows[:start]
        for j, row in enumerate(met):
            lower, slope, lift = (Fraction(float(t[j])) for t in (layer.lower, layer.slope, layer.lift))
            inner = row * (lower if row > 0 else slope)
            constant += inner * Fraction(float(layer.forms.bias[j])) + (row * lift if row < 0 else 0)
            rows = [a + inner * Fraction(b) for a, b in zip(rows, layer.forms.rows[j].tolist(), strict=True)]
    return constant


def drawn(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.as_tensor(rng.normal(size=shape))


def test_the_backward_pass_is_charged() -> None:
    """Neither the pass itself nor the forms on a smaller box may gain by rounding."""
    for seed in range(10):
        zero = torch.zeros(1, 2, dtype=torch.float64)
        kept = KeptNeurons(Region(zero, zero))
        draw = partial(drawn, np.random.default_rng(seed))
        for size in (9, 7):
            none = torch.zeros(size, dtype=torch.float64)
            forms = Forms(draw(size, len(kept.reach)), draw(size), none)
            kept.add(forms, -draw(size).abs() - 0.1, draw(size).abs() + 0.1)
        goal = Forms(draw(20, len(kept.reach)), draw(20), torch.zeros(20, dtype=torch.float64))
        found = kept.lower(goal).bound
        for k in range(20):
            exact = in_fractions(
                kept, [Fraction(v) for v in goal.rows[k].tolist()], Fraction(float(goal.bias[k]))
            )
            assert exact - Fraction(1e-9) <= Fraction(float(found[k])) <= exact
        # on the point itself, where all neurons are stable, the forms have the exact value within their error
        part = BoxNetwork(kept, goal).narrowed(Region(zero, zero), Budget())
        assert part is not None and not part.kept.count
        columns = [Fraction(0)] * 2
        for layer in kept.layers:
            own = zip(layer.forms.rows.tolist(), layer.forms.bias.tolist(), strict=True)
            z = [sum((Fraction(a) * b for a, b in zip(r, columns, strict=True)), Fraction(c)) for r, c in own]
            columns += [max(v, Fraction(0)) for v in z]
        for k in range(20):
            exact = sum(
                (Fraction(a) * b for a, b in zip(goal.rows[k].tolist(), columns, strict=True)),
                Fraction(float(goal.bias[k])),
            )
            off = abs(Fraction(float(part.goal.bias[k])) - exact)
            assert off <= Fraction(float(part.goal.error[k])) < Fraction(1e-9)


@pytest.mark.parametrize("name", ("dense", "residual", "conv", "joined"))
def test_forms_of_nodes_state_their_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0 a form is its constant: it differs from the exact value, by no more than it says."""
    graph, off, made = network(name), [], _Walk._affine
    zero = np.zeros(graph.input_size)
    exact = exactly(graph, zero)

    def seen(walk: _Walk, node: int, alive: NDArray[np.int64]) -> _NodeForms:
        forms = made(walk, node, alive)
        for k, bias, error in zip(alive, forms.bias, forms.error, strict=True):
            off.append(abs(Fraction(float(bias)) - exact[node].lower[k]))
            assert off[-1] <= Fraction(float(error)) < 1e-9
        return forms

    monkeypatch.setattr(_Walk, "_affine", seen)
    on_box(problem_of(graph, Domain(zero, zero)))
    assert max(off) > 0


@pytest.mark.parametrize("stored", [0.0, -0.5])
@pytest.mark.parametrize("kind", [Dense, Sparse, Scale])
def test_a_weight_of_nought_that_may_be_off_counts(kind: type[Op], stored: float) -> None:
    """y = h_0 + w h_1 with |w - stored| <= 0.5: on [1, 2] x [-1, 2] it may be as little as 0."""
    builder = GraphBuilder(2)
    hidden = builder.add(Relu(2), builder.add(Dense(2, np.zeros(2), np.eye(2)), 0))
    weight, error = np.array([[1.0, stored]]), np.array([[0.0, 0.5]])
    if kind is Dense:
        last = builder.add(Dense(1, np.zeros(1), weight, error), hidden)
    elif kind is Sparse:
        matrices = (sparse.csr_array(weight), sparse.csr_array(error))
        last = builder.add(Sparse(1, np.zeros(1), *matrices), hidden)
    else:
        scaled = builder.add(Scale(2, np.zeros(2), weight[0], error[0]), hidden)
        last = builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), scaled)
    domain = Domain(np.array([1.0, -1.0]), np.array([2.0, 2.0]))
    made = on_box(Problem(builder.finish(last), domain, (make_rows([({2: 1.0}, 0.0)]),)))
    assert made.kept.lower(made.goal).bound.max() <= 0


@pytest.mark.parametrize("readers", [1, 2])
def test_overflow_proves_nothing(readers: int) -> None:
    """y = 1e-300 relu(1e200 (h_1 - h_0)) with h = 1e200 x exceeds 1 at (1, 2): what is not a number is not nought."""
    builder = GraphBuilder(2)
    hidden = builder.add(Relu(2), builder.add(Dense(2, np.zeros(2), 1e200 * np.eye(2)), 0))
    gap = builder.add(Dense(1, np.zeros(1), np.array([[-1e200, 1e200]])), hidden)
    last = builder.add(Dense(1, np.zeros(1), np.array([[1e-300]])), builder.add(Relu(1), gap))
    if readers == 2:  # the ReLU's input is read by others, too
        nothing = builder.add(Dense(1, np.zeros(1), np.zeros((1, 1))), gap)
        last = builder.add(Sum(1, (1.0, 1.0)), last, nothing)
    domain = Domain(np.ones(2), np.array([2.0, 2.0]))
    made = on_box(Problem(builder.finish(last), domain, (make_rows([({2: -1.0}, -1.0)]),)))
    assert not (made.kept.lower(made.goal).bound > 0).any()
    smaller = made.narrowed(Region(torch.ones(1, 2).double(), torch.tensor([[1.5, 2.0]]).double()), Budget())
    assert smaller is not None
    assert not (smaller.kept.lower(smaller.goal).bound > 0).any()


def test_every_neuron_has_one_coefficient() -> None:
    graph = network("dense")
    made = on_box(problem_of(graph, boxes(np.random.default_rng(1), graph.input_size, (0.2,))[0]))
    assert made.kept.count > 0
    assert made.kept.lower(made.goal).met.shape == (len(made.goal), made.kept.count)


@pytest.mark.parametrize("side", [1e12, -1e12])
def test_large_right_hand_sides_are_charged(side: float) -> None:
    graph = network("dense")
    n = graph.input_size
    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=n)
        rows = [({n + k: 1.0}, side) for k in range(graph.output_size)]
        made = on_box(Problem(graph, Domain(x, x), (make_rows(rows),)))
        (*_, last) = exactly(graph, x)
        found = made.kept.lower(made.goal).bound.tolist()
        assert all(
            Fraction(f) <= Fraction(v) - Fraction(side) for f, v in zip(found, last.lower, strict=True)
        )


def test_errors_of_a_layer_reach_the_bounds_behind_it() -> None:
    """z = x +- 0.1 on [-1, 1], so that -relu(z) may be as low as -1.1."""
    one = torch.ones(1, dtype=torch.float64)
    kept = KeptNeurons(Region(-one[None], one[None]))
    kept.add(Forms(one[None], 0 * one, 0.1 * one), -1.1 * one, 1.1 * one)
    behind = Forms(torch.tensor([[0.0, -1.0]], dtype=torch.float64), 0 * one, 0 * one)
    bound = float(kept.lower(behind).bound)
    assert -1.1 - 0.01 <= bound <= -1.1


def test_no_bound_is_no_number() -> None:
    """A form without a bound in doubles: its values may lie beyond the largest of them."""
    one = torch.ones(1, 1, dtype=torch.float64)
    kept = KeptNeurons(Region(-1e200 * one, 1e200 * one))
    low, high = kept.ends(Forms(1e200 * one, 0 * one[0], 0 * one[0]))
    assert low.item() == -torch.inf
    assert high.item() == torch.inf
