"""Networks with one hidden layer: lines with a slope per input, their ascent, their proof, and searches with them."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from verifolio.graph import Dense, Graph, GraphBuilder, Relu
from verifolio.graph.ops import Array
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.reduce.envelope import Envelope, ExactEnvelope
from verifolio.plugins.crown.search.neurons.bounds import SubproblemBounds
from verifolio.plugins.crown.search.neurons.envelope_bounds import EnvelopeBounds, make_bounds
from verifolio.plugins.crown.search.root import Root, RootBounds
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.realistic import boxes, layered
from verifolio.testing.reference import attained
from verifolio.testing.trial import evaluate, sample
from verifolio.vnnlib import make_rows

SIZES = [(30, 40, 3), (12, 64, 2), (60, 30, 4)]


@cache
def problem(sizes: tuple[int, ...], seed: int = 0, radius: float = 0.6) -> Problem:
    """A disjunct of one row and one of two rows, the second with inputs, on a network with one hidden layer."""
    graph = layered(*sizes)(np.random.default_rng(seed))
    (domain,) = boxes(np.random.default_rng(seed), graph.input_size, (radius,))
    n, values = graph.input_size, evaluate(graph, sample(domain, 200))[graph.output]
    middle = np.quantile(values, 0.1, axis=0)
    first = make_rows([({n: 1.0}, float(middle[0]))])
    second = make_rows([({n: -1.0}, 0.0), ({n + 1: 1.0, 0: 0.25}, float(middle[1]))])
    return Problem(graph, domain, (first, second))


def rooted(case: Problem) -> Root:
    bounds = RootBounds(case, Space(torch.float32), Budget())
    bounds.tighten(Effort(tighten=False))
    bounds.live = torch.arange(len(case.disjuncts))
    return bounds.root()


def bounds_of(case: Problem) -> EnvelopeBounds:
    root = rooted(case)
    assert root.condensed is not None
    made = make_bounds(root, root.condensed, Budget(), plain=False)
    assert isinstance(made, EnvelopeBounds)
    return made


def random_variables(
    bounds: EnvelopeBounds, count: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor, Variables]:
    """Phases, weights of all rows of the goal, and variables in float64."""
    torch.manual_seed(seed)
    kept, inputs = bounds.net.kept, bounds.net.direct.shape[1]
    phase = torch.randint(-1, 2, (count, kept)) * (torch.rand(count, kept) < 0.15)
    alpha, beta = (torch.rand(count, kept, dtype=torch.float64) for _ in range(2))
    slopes = torch.rand(count, len(bounds.envelope.below), inputs, dtype=torch.float64)
    goal = torch.rand(count, bounds.root.goal.rhs.numel(), dtype=torch.float64)
    return phase.double(), goal, Variables(alpha, 0.1 * beta, goal, slopes)


def exact_bound(root: Root, below: Array, phase: Array, goal: Array, variables: list[Array]) -> Fraction:
    """The bound as its definition has it, in rational arithmetic, nothing charged."""
    stacked, region = root.stacked, root.state.region
    assert stacked is not None
    alpha, beta, slopes = ([[Fraction(v) for v in np.ravel(row)] for row in part] for part in variables)
    low, high = ([Fraction(float(v)) for v in t[0]] for t in (region.lower, region.upper))
    parts = {"direct": stacked.direct, "feed": stacked.feed, "bias": stacked.bias}
    numbers = {name: [[Fraction(v) for v in np.ravel(r)] for r in part] for name, part in parts.items()}
    kept, inputs, lined = stacked.feed.shape[1], len(low), {int(j): k for k, j in enumerate(below)}
    weights = [Fraction(g) for g in goal]

    def most(row: list[Fraction]) -> Fraction:
        return sum((max(c * a, c * b) for c, a, b in zip(row, low, high, strict=True)), Fraction(0))

    total = sum((g * numbers["bias"][kept + r][0] for r, g in enumerate(weights)), Fraction(0))
    row = [
        sum((g * numbers["direct"][kept + r][i] for r, g in enumerate(weights)), Fraction(0))
        for i in range(inputs)
    ]
    for j in range(kept):
        felt = sum((g * numbers["feed"][kept + r][j] for r, g in enumerate(weights)), Fraction(0))
        w, b = numbers["direct"][j], numbers["bias"][j][0]
        inner = -Fraction(int(phase[j])) * beta[j][0]
        if phase[j] == 0 and felt < 0:
            s = slopes[lined[j]]
            tilted = [a * c for a, c in zip(s, w, strict=True)]
            rest = [(1 - a) * c for a, c in zip(s, w, strict=True)]
            total += felt * max(most([-t for t in tilted]), b + most(rest))
            row = [r + felt * t for r, t in zip(row, tilted, strict=True)]
        elif phase[j] == 0:
            inner += felt * alpha[j][0]
        elif phase[j] > 0:
            inner += felt
        total += inner * b
        row = [r + inner * c for r, c in zip(row, w, strict=True)]
    return total - most([-r for r in row])


@pytest.mark.parametrize("sizes", SIZES)
def test_the_proof_is_the_formula_with_rounding_charged(sizes: tuple[int, ...]) -> None:
    """For any variables the float64 bound is below the exact one, and close to it."""
    bounds = bounds_of(problem(sizes))
    phase, goal, v = random_variables(bounds, 3, 1)
    assert v.slopes is not None
    proved, _ = bounds.exact_envelope.prove(phase, goal, v.alpha, v.beta, v.slopes)
    for k in range(3):
        variables = [v.alpha[k].numpy(), v.beta[k].numpy(), v.slopes[k].numpy()]
        exact = exact_bound(
            bounds.root, bounds.envelope.below.numpy(), phase[k].numpy(), goal[k].numpy(), variables
        )
        assert Fraction(float(proved[k])) <= exact
        assert float(proved[k]) == pytest.approx(float(exact), rel=1e-8, abs=1e-8)


def test_large_multipliers_are_charged() -> None:
    """Multipliers of 1e6 outweigh the goal; their products with the layer round as well."""
    bounds = bounds_of(problem(SIZES[0]))
    phase, goal, v = random_variables(bounds, 4, 2)
    assert v.slopes is not None and bool(phase.any())
    beta = 1e7 * v.beta * (phase != 0)
    proved, _ = bounds.exact_envelope.prove(phase, goal, v.alpha, beta, v.slopes)
    for k in range(4):
        variables = [v.alpha[k].numpy(), beta[k].numpy(), v.slopes[k].numpy()]
        exact = exact_bound(
            bounds.root, bounds.envelope.below.numpy(), phase[k].numpy(), goal[k].numpy(), variables
        )
        assert Fraction(float(proved[k])) <= exact


@pytest.mark.parametrize("sizes", SIZES)
def test_any_variables_are_sound(sizes: tuple[int, ...]) -> None:
    """No bound lies above what a point with the subproblem's phases attains, whatever the variables."""
    case = problem(sizes)
    bounds = bounds_of(case)
    points = sample(case.domain, 400)
    small = evaluate(bounds.root.program.graph, points)
    graph = bounds.root.program.graph
    inner, rows = small[graph.nodes[graph.relus[0]].parents[0]], small[graph.output]
    phase, goal, v = random_variables(bounds, 200, 2)
    assert v.slopes is not None
    phase[::2] = torch.as_tensor(np.sign(inner[:100])) * (torch.rand(100, phase.shape[1]) < 0.3)
    # slopes outside [0, 1] are no lines below a ReLU, and negative multipliers reward the wrong phase
    wild = v.alpha * 3 - 1, v.beta * 3 - 0.1, v.slopes * 3 - 1
    for alpha, beta, slopes in ((v.alpha, v.beta, v.slopes), wild):
        proved, _ = bounds.exact_envelope.prove(phase, goal, alpha, beta, slopes)
        met = 0
        for k in range(200):
            there = (inner * phase[k].numpy() >= 0).all(1)
            met += bool(there.any())
            assert not there.any() or float(proved[k]) <= (rows[there] @ goal[k].numpy()).min() + 1e-9
        assert met > 100


def test_variables_out_of_their_range_are_brought_back() -> None:
    """An ascent may overshoot; a slope of a lower line beyond 1 or a negative multiplier would prove too much."""
    bounds = bounds_of(problem(SIZES[0]))
    phase, goal, v = random_variables(bounds, 20, 3)
    assert v.slopes is not None
    alpha, beta, slopes, weight = v.alpha * 3 - 1, v.beta * 3 - 0.1, v.slopes * 3 - 1, goal * 3 - 1
    proved, rows = bounds.exact_envelope.prove(phase, weight, alpha, beta, slopes)
    back = alpha.clamp(0, 1), beta.clamp(min=0), slopes.clamp(0, 1)
    expected, same = bounds.exact_envelope.prove(phase, weight.clamp(min=0), *back)
    assert torch.equal(proved, expected) and torch.equal(rows, same)


def hull_minimum(root: Root, goal: Array) -> float:
    """The minimum of the goal over the hulls of all neurons, by cutting planes (Anderson et al. 2020, section 3)."""
    stacked, region = root.stacked, root.state.region
    assert stacked is not None
    low, high = (t[0].double().numpy() for t in (region.lower, region.upper))
    kept, n = stacked.feed.shape[1], len(low)
    weight, bias = stacked.direct[:kept], stacked.bias[:kept]
    felt = goal @ stacked.feed[kept:]
    cost = np.r_[goal @ stacked.direct[kept:], felt]
    eye = np.eye(kept)
    matrix, limits = np.c_[weight, -eye], -bias
    box = [*zip(low, high, strict=True), *[(0, None)] * kept]
    upper = (weight.clip(0) @ high + weight.clip(max=0) @ low + bias).clip(0)
    for _ in range(200):
        caps = [*box[:n], *((0, u) for u in upper)]
        found = linprog(cost, A_ub=matrix, b_ub=limits, bounds=caps, method="highs")
        solution = np.asarray(found.x)
        x, h = solution[:n], solution[n:]
        cuts = [_cut(weight[j], bias[j], low, high, x) for j in range(kept)]
        new = [(j, g, c) for j, (g, c) in enumerate(cuts) if h[j] > g @ x + c + 1e-9]
        if not new:
            break
        matrix = np.r_[matrix, [np.r_[-g, eye[j]] for j, g, _ in new]]
        limits = np.r_[limits, [c for _, _, c in new]]
    return float(found.fun + goal @ stacked.bias[kept:])


def _cut(w: Array, b: float, low: Array, high: Array, x: Array) -> tuple[Array, float]:
    """The line of the neuron's concave envelope at x."""
    start, end = np.where(w >= 0, low, high), np.where(w >= 0, high, low)
    span, left = end - start, float(w @ end + b)
    line, constant = np.zeros(len(w)), 0.0
    for i in np.argsort(np.divide(x - start, span, out=np.full(len(w), np.inf), where=span != 0)):
        slope = w[i] if left - w[i] * span[i] >= 0 else left / span[i]
        line[i], constant = slope, constant - slope * start[i]
        left -= w[i] * span[i]
        if left < 0:
            break
    return line, constant


@pytest.mark.parametrize("sizes", [(8, 14, 2), (20, 16, 2)])
def test_the_ascent_approaches_the_hull(sizes: tuple[int, ...]) -> None:
    """Slopes per input reach the bound of the neurons' hulls, which is above the triangles'."""
    case = problem(sizes, 3, 1.0)
    bounds = bounds_of(case)
    plain = SubproblemBounds(bounds.root, bounds.net, Budget())
    with_slopes, without = (b.bound(b.first(), 400).margin[0].item() for b in (bounds, plain))
    goal = np.zeros(bounds.root.goal.rhs.numel())
    goal[0] = 1.0  # the first disjunct has one row, repeated
    hull = hull_minimum(bounds.root, goal)
    assert without < hull
    assert with_slopes <= hull + 1e-9
    assert with_slopes > hull - 0.05 * (hull - without)


def context(seconds: float = 20.0) -> Context:
    return Context(Budget(seconds), Evidence(), check=lambda _: False)


@pytest.mark.parametrize("seed", range(6))
def test_thresholds_at_attained_values(seed: int) -> None:
    """Where a point attains the threshold, `unsat` is wrong; just below the least value it is right."""
    graph: Graph = layered(24, 30, 1)(np.random.default_rng(seed))
    (domain,) = boxes(np.random.default_rng(seed), 24, (0.3,))
    least = float(attained(graph, domain, np.ones((1, 1)))[0])
    crown = Crown()
    at, below = (
        crown.run(Problem(graph, domain, (make_rows([({24: 1.0}, limit)]),)), context())
        for limit in (least, least - 0.05 * abs(least) - 0.01)
    )
    assert at.verdict is not Verdict.UNSAT
    assert below.verdict is Verdict.UNSAT


def test_certificates_use_plain_bounds() -> None:
    root = rooted(problem(SIZES[0]))
    assert root.condensed is not None
    assert not isinstance(make_bounds(root, root.condensed, Budget(), plain=True), EnvelopeBounds)


def test_lines_lie_above_their_neuron() -> None:
    """At corners of the box too, where they are tight."""
    bounds = bounds_of(problem(SIZES[1]))
    net: Envelope = bounds.envelope
    exact: ExactEnvelope = bounds.exact_envelope
    rng = np.random.default_rng(0)
    corners = torch.as_tensor(np.where(rng.random((300, len(exact.lower))) < 0.5, exact.lower, exact.upper))
    slopes = torch.as_tensor(rng.random((1, *net.weight.shape)))
    weight, bias = exact.weight[net.below], exact.bias[net.below]
    lift = torch.maximum(exact._most(-slopes * weight), bias + exact._most((1 - slopes) * weight))[0]
    gap = corners @ (slopes[0] * weight).T + lift - (corners @ weight.T + bias).clamp(min=0)
    assert gap.min() > -1e-12 and gap.min() < 1e-3


def test_coefficients_too_small_for_single_precision_count() -> None:
    """10^-46 (1/2 - relu(x)) is negative at 1."""
    builder = GraphBuilder(1)
    value = builder.add(Relu(1), builder.add(Dense(1, np.zeros(1), np.ones((1, 1))), 0))
    for bias, weight in ((0.5, -1.0), (0.0, 1e-23), (0.0, 1e-23)):
        value = builder.add(Dense(1, np.array([bias]), np.array([[weight]])), value)
    graph, domain = builder.finish(value), Domain(-np.ones(1), np.ones(1))
    bounds = bounds_of(Problem(graph, domain, (make_rows([({1: 1.0}, 0.0)]),)))
    assert not bounds.bound(bounds.first(), 20).margin[0] > 0
