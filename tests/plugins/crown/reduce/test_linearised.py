"""Networks in which smooth functions and products are lines with an error: they take every old value."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import sparse

from verifolio.graph import Dense, Elementwise, Graph, GraphBuilder, Sparse
from verifolio.graph.ops import Array
from verifolio.plugins.crown.optimise.intermediate import Effort, intermediate_bounds
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.plugins.crown.reduce import linearised
from verifolio.plugins.crown.reduce.linearised import Linearised, _Band, _piece, linearise
from verifolio.testing.realistic import NETWORKS, boxes
from verifolio.testing.trial import evaluate, sample

NAMES = ["transformer", "attention", "gate", "quadratic", "products_last", "layer_norm", "softmax", "gelu"]
NAMES += ["Tanh", "Exp", "Reciprocal", "pow", "hard_swish", "Sqrt", "Sin"]


@cache
def grown(name: str, radius: float) -> tuple[Graph, Program, State]:
    graph = NETWORKS[name](np.random.default_rng(5))
    program = Program(graph, Space(torch.float64))
    region = Region.of(boxes(np.random.default_rng(6), graph.input_size, (radius,)), program.space)
    with torch.no_grad():
        return graph, program, intermediate_bounds(program, region, Effort())


def made(name: str, radius: float, seed: int = 0) -> Linearised:
    """Linearised for a random row, with lines anywhere in their range."""
    _, program, state = grown(name, radius)
    torch.manual_seed(seed)
    for i in program.nonlinear:
        rule = program.relaxations[i]
        assert rule is not None
        program.relax(state, i, torch.rand_like(rule.start(*state.inputs(program, i))))
    rows: dict[int, torch.Tensor] = {}
    row = torch.randn(1, 1, program.sizes[program.graph.output], dtype=torch.float64)
    program.lower(state, program.graph.output, row, None, rows.__setitem__)
    found = linearise(program, state, {i: r[0, 0] for i, r in rows.items()})
    assert found is not None
    return found


def stray(found: Linearised, old: list[Array], inputs: Array) -> list[tuple[Array, Array]]:
    """For nodes that stand for old ones: how far old values lie from the new operator's, and how far they may."""
    program = Program(found.graph, Space(torch.float64))
    zeros = np.zeros((len(inputs), found.symbols))
    values = [torch.as_tensor(np.concatenate([inputs, zeros], 1))]
    reach = [torch.zeros(program.sizes[0], dtype=torch.float64)]
    reach[0][inputs.shape[1] :] = 1.0
    distances = []
    for i, node in enumerate(found.graph.nodes[1:], start=1):
        parents = [values[p] for p in node.parents]
        layer = program.layers[i]
        assert layer is not None or i in found.graph.relus
        value = parents[0].clamp(min=0) if layer is None else layer.forward(*parents)
        own = torch.zeros(program.sizes[i], dtype=torch.float64)
        if layer is not None and node.parents:
            own = layer.spread(*(reach[p][None] for p in node.parents))[0]
        if isinstance(node.op, Sparse) and node.op.bias_error is not None:
            own = own + torch.as_tensor(node.op.bias_error)
        if i in found.origin:
            wanted = torch.as_tensor(old[found.origin[i]])
            distances.append(((wanted - value).abs().numpy(), own.numpy()))
            value, own = wanted, torch.zeros_like(own)
        values.append(value)
        reach.append(own)
    return distances


def worst(name: str, radius: float, seed: int) -> float:
    """The greatest share of the room that an error takes."""
    graph, _, _ = grown(name, radius)
    domain = boxes(np.random.default_rng(6), graph.input_size, (radius,))[0]
    points = sample(domain, 300, seed=seed)
    shares = [0.0]
    for far, room in stray(made(name, radius, seed), evaluate(graph, points), points):
        assert (far <= room + 1e-11 * (1 + np.abs(far).max())).all()
        shares.append(float((far / np.maximum(room, 1e-9)).max()))
    return max(shares)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_the_old_network(name: str) -> None:
    """With the right errors t each node has its old value; and some error is about as large as it may be."""
    assert max(worst(name, radius, seed) for seed, radius in enumerate((0.01, 0.2))) > 0.3


def test_few_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors without a number of their own are charged."""
    monkeypatch.setattr(linearised, "MOST_SYMBOLS", 20)
    assert made("transformer", 0.2).symbols <= 20
    assert worst("transformer", 0.2, 1) > 0.3


@pytest.mark.parametrize("name", ["transformer", "attention", "quadratic", "layer_norm"])
def test_the_row_has_the_same_bound(name: str) -> None:
    """On its own lines, and from the same intervals, a row's bound is the one that it had."""
    _, program, state = grown(name, 0.1)
    found = made(name, 0.1)
    torch.manual_seed(0)
    for i in program.nonlinear:
        rule = program.relaxations[i]
        assert rule is not None
        program.relax(state, i, torch.rand_like(rule.start(*state.inputs(program, i))))
    row = torch.randn(1, 1, program.sizes[program.graph.output], dtype=torch.float64)
    wanted = float(program.lower(state, program.graph.output, row))
    new = Program(found.graph, Space(torch.float64))
    ones = torch.ones(1, found.symbols, dtype=torch.float64)
    low, high = (
        torch.cat([end, s * ones], 1) for s, end in ((-1, state.region.lower), (1, state.region.upper))
    )
    region = Region(low, high)
    known = {p: state.interval[i] for p, i in found.origin.items()}
    after = intermediate_bounds(new, region, Effort(tighten=False), known)
    for i in new.nonlinear:
        after.lines[i] = state.lines[found.origin[i]]
    bound = float(new.lower(after, found.graph.output, row))
    assert bound == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_weights_times_slopes_are_charged_for_their_rounding() -> None:
    """A sum of functions that are lines exactly: all that is left are the roundings of the new weights."""
    rng, builder = np.random.default_rng(0), GraphBuilder(5)
    size, reader = 24, np.arange(24) // 8  # three sums of eight
    read = builder.add(Dense(size, rng.normal(size=size), rng.normal(size=(size, 5))), 0)
    node = builder.add(Elementwise(size, "tanh"), read)
    matrix = sparse.csr_array((rng.normal(size=size), (reader, np.arange(size))), shape=(3, size))
    at = builder.add(Sparse(3, rng.normal(size=3), matrix), node)
    program = Program(builder.finish(at), Space(torch.float64))
    region = Region.of(boxes(rng, 5, (0.5,)), program.space)
    state = intermediate_bounds(program, region, Effort())
    slopes, middle = rng.uniform(0, 1, size), rng.normal(size=size)
    piece = _piece(program, state, node, at, _Band([slopes], middle, np.zeros(size)))
    assert piece.sources == [read]
    off = []
    for z in (end[0].numpy() for end in state.interval[read]):
        for k, (start, end) in enumerate(pairwise(matrix.indptr)):
            entries = zip(matrix.indices[start:end], matrix.data[start:end], strict=True)
            exact = Fraction(program.graph.nodes[at].op.bias[k])  # type: ignore[attr-defined]
            exact += sum(
                Fraction(w) * (Fraction(slopes[j]) * Fraction(z[j]) + Fraction(middle[j])) for j, w in entries
            )
            row = piece.matrices[0].toarray()[k]
            made = Fraction(piece.constant[k]) + sum(
                Fraction(a) * Fraction(v) for a, v in zip(row, z, strict=True)
            )
            off.append(abs(made - exact))
            assert off[-1] <= Fraction(piece.radius[k]) <= 1e-12
    assert max(off) > 0
    spread = rng.uniform(0, 1, size)
    wide = _piece(program, state, node, at, _Band([slopes], middle, spread))
    every = np.abs(matrix.toarray()) @ spread
    assert (wide.radius >= every).all() and (wide.radius <= every * (1 + 1e-9)).all()
