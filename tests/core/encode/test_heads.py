"""Heads say in one graph what rows, balls and several networks say together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verifolio.encode.heads import (
    clamp_head,
    identity_head,
    joint_head,
    margin_head,
    margin_is_strict,
    norm_head,
    sum_head,
)
from verifolio.errors import InputError
from verifolio.graph import Dense, Graph, GraphBuilder, Relu
from verifolio.graph.enclosure import enclose
from verifolio.model.problem import Ball, dense_rows
from verifolio.vnnlib import Rows, make_rows

INPUTS, OUTPUTS = 3, 4


def random_graph(rng: np.random.Generator) -> Graph:
    builder = GraphBuilder(INPUTS)
    hidden = builder.add(Dense(5, rng.normal(size=5), rng.normal(size=(5, INPUTS))), 0)
    relu = builder.add(Relu(5), hidden)
    return builder.finish(builder.add(Dense(OUTPUTS, rng.normal(size=4), rng.normal(size=(4, 5))), relu))


def value(graph: Graph, x: np.ndarray) -> np.ndarray:
    return enclose(graph, x)[0]


def random_rows(rng: np.random.Generator, count: int, mixed: bool) -> Rows:
    columns = INPUTS + OUTPUTS if mixed else OUTPUTS
    start = 0 if mixed else INPUTS
    chosen = [rng.choice(columns, size=2, replace=False) + start for _ in range(count)]
    return make_rows([({int(c): float(rng.normal()) for c in cs}, float(rng.normal())) for cs in chosen])


@pytest.mark.parametrize("form", ["dnf", "cnf"])
@pytest.mark.parametrize("mixed", [False, True])
def test_margin_head_is_the_condition(form: str, mixed: bool) -> None:
    rng = np.random.default_rng(1)
    for sizes in ([1], [3], [1, 1], [2, 3, 1, 5]):
        graph = random_graph(rng)
        groups = [random_rows(rng, size, mixed) for size in sizes]
        head = margin_head(graph, groups, form)  # type: ignore[arg-type]
        assert head.output_size == 1
        for x in rng.normal(size=(20, INPUTS)):
            y = value(graph, x)
            margins = []
            for rows in groups:
                a, b, rhs = dense_rows(rows, INPUTS, OUTPUTS)
                margins.append(a @ x + b @ y - rhs)
            if form == "dnf":
                expected = min(float(m.max()) for m in margins)
            else:
                expected = max(float(m.min()) for m in margins)
            assert value(head, x)[0] == pytest.approx(expected, abs=1e-9)


def test_margin_head_refuses_constant_conditions() -> None:
    graph = random_graph(np.random.default_rng(0))
    with pytest.raises(InputError, match="at least one row"):
        margin_head(graph, [])
    with pytest.raises(InputError, match="at least one row"):
        margin_head(graph, [make_rows([])])


def test_strictness_is_kept_only_where_every_row_is_strict() -> None:
    strict, loose = make_rows([({3: 1.0}, 0.0)], strict=True), make_rows([({4: 1.0}, 0.0)])
    assert margin_is_strict([strict])
    assert not margin_is_strict([strict, loose])


@pytest.mark.parametrize("norm", [1.0, math.inf])
def test_norm_head_appends_the_distance(norm: float) -> None:
    rng = np.random.default_rng(2)
    graph = random_graph(rng)
    ball = Ball(rng.normal(size=INPUTS), 1.0, norm)
    head = norm_head(graph, ball)
    for x in rng.normal(size=(20, INPUTS)):
        out = value(head, x)
        assert out[:-1] == pytest.approx(value(graph, x))
        assert out[-1] == pytest.approx(ball.distance(x))


def test_norm_head_refuses_l2() -> None:
    graph = random_graph(np.random.default_rng(0))
    with pytest.raises(InputError, match="norm 1 or infinity"):
        norm_head(graph, Ball(np.zeros(INPUTS), 1.0, 2.0))


def test_clamp_identity_joint_and_mean() -> None:
    rng = np.random.default_rng(3)
    a, b = random_graph(rng), random_graph(rng)
    clamped, identity, joint, mean = (
        clamp_head(a, -0.5, 0.5),
        identity_head(a),
        joint_head([a, b]),
        sum_head([a, b]),
    )
    for x in rng.normal(size=(20, INPUTS)):
        ya, yb = value(a, x), value(b, x)
        assert value(clamped, x) == pytest.approx(np.clip(ya, -0.5, 0.5))
        assert value(identity, x) == pytest.approx(np.concatenate([ya, x]))
        assert value(joint, x) == pytest.approx(np.concatenate([ya, yb]))
        assert value(mean, x) == pytest.approx(ya + yb)


def test_clamp_wants_ordered_bounds() -> None:
    with pytest.raises(InputError, match="lower <= upper"):
        clamp_head(random_graph(np.random.default_rng(0)), 1.0, 0.0)
