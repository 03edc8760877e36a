"""Whatever the slopes, multipliers and weights are, a subproblem's bound stays below every point of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from verifolio.graph.module import GraphModule
from verifolio.model.problem import Domain, Problem
from verifolio.plugins.crown.optimise.ascent import Variables, ascend
from verifolio.plugins.crown.optimise.dual import Dual, Goal, Schedule, evaluate, optimise, start
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import State
from verifolio.plugins.crown.search.neurons.leaf import LeafSolver
from verifolio.plugins.crown.search.neurons.subproblems import Subproblems
from verifolio.plugins.crown.search.root import Root, bound_root
from verifolio.run.budget import Budget
from verifolio.testing.generate import KINDS, Shape, generate, random_condition, random_graph
from verifolio.testing.trial import sample
from verifolio.vnnlib import make_rows

Signs = dict[int, Tensor]


def make_root(
    seed: int, kind: str = "dense", rows: int = 2, dtype: torch.dtype = torch.float32
) -> tuple[Problem, Root]:
    """A root that stays open: the condition holds somewhere."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, Shape(kind, inputs=4, width=6, depth=2))  # type: ignore[arg-type]
    domain = Domain(-np.ones(4), np.ones(4))
    (drawn,) = random_condition(rng, graph, 1, rows)
    eased = make_rows([(dict(r.terms), float(r.rhs) + 0.5) for r in drawn.linear_rows()])
    problem = Problem(graph, domain, (eased,))
    return problem, bound_root(problem, Space(dtype), Effort(steps=2), Budget(60.0)).root()


def random_signs(rng: np.random.Generator, root: Root, count: int) -> Signs:
    """A few unstable neurons fixed at random, for each of `count` subproblems."""
    signs = {}
    for i in root.program.graph.relus:
        p = root.program.parents[i][0]
        size = root.program.sizes[p]
        signs[p] = torch.as_tensor(
            rng.choice([-1, 0, 0, 1], size=(count, size)), dtype=root.program.space.dtype
        )
    return signs


def cut(root: Root, signs: Signs, count: int) -> State:
    interval = dict(root.state.interval)
    for p, sign in signs.items():
        low, high = (t.expand(count, -1) for t in interval[p])
        low = torch.where(sign > 0, low.clamp(min=0), low)
        interval[p] = (low, torch.where(sign < 0, high.clamp(max=0), high))
    return State(root.state.region, interval, dict(root.state.noise))


def values(root: Root, domain: Domain) -> list[np.ndarray]:
    """Every node of the root's graph at many points."""
    points = torch.as_tensor(sample(domain, 600))
    with torch.no_grad():
        return [v.numpy() for v in GraphModule(root.program.graph, torch.float64).values(points)]


def inside(root: Root, signs: Signs, seen: list[np.ndarray], k: int) -> np.ndarray:
    """Which points respect the k-th subproblem's splits."""
    keep = np.ones(len(seen[0]), bool)
    for p, sign in signs.items():
        keep &= (sign[k].numpy() * seen[p] >= 0).all(axis=1)
    return keep


def random_dual(rng: np.random.Generator, root: Root, signs: Signs, count: int, mixed: bool) -> Dual:
    def draw(*size: int) -> Tensor:
        return torch.as_tensor(rng.random(size), dtype=root.program.space.dtype)

    alpha = {i: draw(count, a.shape[-1]) for i, a in start(root.program, root.state).items()}
    beta = {p: draw(*s.shape) * float(rng.choice([0.01, 1.0, 30.0])) for p, s in signs.items()}
    return Dual(alpha, beta, draw(count, root.goal.rhs.shape[1]) if mixed else None)


def repeated(goal: Goal, count: int) -> Goal:
    return goal.pick(torch.zeros(count, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixed", [False, True])
def test_any_dual_is_sound(kind: str, mixed: bool, dtype: torch.dtype) -> None:
    count, checked = 24, 0
    for seed in range(3):
        problem, root = make_root(seed, kind, dtype=dtype)
        if not len(root.disjuncts):
            continue
        rng = np.random.default_rng(seed)
        signs = random_signs(rng, root, count)
        seen = values(root, problem.domain)
        dual = random_dual(rng, root, signs, count, mixed)
        goal = repeated(root.goal, count)
        with torch.no_grad():
            margin = (
                evaluate(root.program, cut(root, signs, count), goal, signs, dual).margin.double().numpy()
            )
        gaps = (
            seen[root.program.graph.output] @ root.goal.rows[0].double().numpy().T
            - root.goal.rhs[0].double().numpy()
        )
        for k in range(count):
            keep = inside(root, signs, seen, k)
            truth = gaps[keep] @ dual.mix[k].double().numpy()[:, None] if dual.mix is not None else gaps[keep]
            assert (margin[k] <= truth + 1e-12).all()
            checked += int(keep.any())
    assert checked > 5


@pytest.mark.parametrize("kind", KINDS)
def test_ascending_never_exceeds_the_truth(kind: str) -> None:
    """Against points under splits; what the search believes is what is proved but for rounding; it does improve."""
    count, gains = 12, []
    for seed in range(3):
        problem, root = make_root(seed, kind)
        if not len(root.disjuncts) or root.condensed is None:
            continue
        net, signs = root.condensed, random_signs(np.random.default_rng(seed), root, count)
        phase = torch.cat([*signs.values(), torch.zeros(count, 0)], 1).to(torch.int8)
        seen = values(root, problem.domain)
        first = Variables(torch.ones(phase.shape), torch.zeros(phase.shape), torch.full((count, 2), 0.5))
        disjunct, rows = torch.zeros(count, dtype=torch.long), torch.arange(2).expand(count, -1)
        found = ascend(net, phase, rows, first, 15, 1e9, Budget(60.0))
        margin = root.prove(disjunct, phase, found.best).margin[:, 0]
        assert torch.allclose(margin, found.margin, atol=1e-3, rtol=1e-3)
        gaps = seen[root.program.graph.output] - root.goal.rhs[0].double().numpy()
        for k in range(count):
            worst = gaps[inside(root, signs, seen, k)].max(axis=1, initial=-np.inf)
            # weights add up to one, so the bound is below the largest row
            assert (float(margin[k]) <= worst + 1e-5).all()
        gains.append(float((margin - root.prove(disjunct, phase, first).margin[:, 0]).mean()))
    assert not gains or max(gains) > 0


def test_what_the_relaxed_network_does_is_the_gradient() -> None:
    """Slopes, multipliers and weights, against finite differences of the bound."""
    problem, root = make_root(1, dtype=torch.float64)
    net = root.condensed
    assert net is not None and net.kept > 2 and problem.graph.piecewise_linear
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.rand(*size, generator=generator, dtype=torch.float64)

    phase = torch.randint(-1, 2, (8, net.kept), generator=generator)
    lines, point = net.lines(phase), [draw(8, net.kept), draw(8, net.kept), draw(8, 2)]
    passed = net.backward(lines, *point)
    z, _ = net.forward(lines, passed)
    inner = z[:, : net.kept]
    slopes = torch.where((passed.rows > 0) & (phase == 0), passed.rows * inner, 0.0)
    for which, gradient in enumerate((slopes, -phase * inner, z[:, net.kept :])):
        way = torch.rand(gradient.shape, generator=generator, dtype=torch.float64)
        step = 1e-7
        moved = [p + step * way if k == which else p for k, p in enumerate(point)]
        difference = (net.backward(lines, *moved).bound - passed.bound) / step
        assert torch.allclose(difference, (gradient * way).sum(1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_root_bound_is_below_the_exact_minimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % 4]
    made = generate(rng, Shape(kind, inputs=4 if kind == "conv" else 2, width=4), 0.1, rows=1 + seed % 2)
    if made.margin is None:
        pytest.skip("the truth is unknown")
    root = bound_root(made.problem, Space(torch.float32), Effort(steps=3), Budget(60.0)).root()
    assert len(root.disjuncts), "a satisfiable condition was proved impossible"
    height = root.goal.rhs.shape[1]
    result = optimise(root.program, root.state, root.goal, Schedule(40), Budget(60.0))
    assert float(result.margin.amax()) <= made.margin + 1e-6
    if root.condensed is not None:
        kept = torch.zeros(1, root.condensed.kept)
        first = Variables(kept, kept, torch.full((1, height), 1.0 / height))
        found = ascend(root.condensed, kept, torch.arange(height)[None], first, 40, 1e9, Budget(60.0))
        proved = root.prove(torch.zeros(1, dtype=torch.long), kept, found.best)
        assert float(proved.margin) <= made.margin + 1e-6


def subproblem(phase: Tensor, beta: Tensor) -> Subproblems:
    index = torch.zeros(1, dtype=torch.long)
    variables = Variables(torch.zeros_like(beta), beta, torch.ones(1, 1))
    return Subproblems(index, torch.zeros(1), torch.full((1, 1), -1), phase, variables)


def test_half_precision_holds_large_multipliers() -> None:
    """A multiplier beyond 65504 must not become infinite, or its subproblem is lost for good."""
    items = subproblem(torch.ones(1, 2, dtype=torch.int8), torch.full((1, 2), 1e9))
    stored = items.bounded(items.variables, items.bound, items.branch)
    assert bool(torch.isfinite(stored.variables.to(torch.float32).beta).all())


def leaf_at(root: Root, seen: list[np.ndarray], k: int) -> Subproblems:
    """The subproblem with every neuron in the phase it has at the k-th point."""
    nodes = [root.program.parents[i][0] for i in root.program.graph.relus]
    phase = np.concatenate([np.where(seen[p][k] >= 0, 1, -1) for p in nodes])[None]
    return subproblem(torch.as_tensor(phase, dtype=torch.int8), torch.zeros(phase.shape))


def test_leaves_are_not_proved_where_points_exist() -> None:
    """A leaf with a point that satisfies the condition stays open; some without one are proved."""
    proved = 0
    for seed in range(8):
        problem, root = make_root(seed, rows=1 + seed % 2)
        if not len(root.disjuncts) or not root.program.graph.relus:
            continue
        solver = LeafSolver(root.double())
        seen = values(root, problem.domain)
        gaps = (seen[root.program.graph.output] - root.goal.rhs[0].double().numpy()).max(axis=1)
        for k in np.argsort(gaps)[:: len(gaps) // 12]:
            proof, point = solver.solve(leaf_at(root, seen, int(k)))
            impossible = proof is not None
            assert not impossible or gaps[k] > 0
            proved += impossible
            if not impossible and point is not None:
                assert ((point >= problem.domain.lower) & (point <= problem.domain.upper)).all()
    assert proved
