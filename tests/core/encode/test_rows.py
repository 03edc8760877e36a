"""The rows of a graph hold every exact behaviour of the network, and safe bounds never overstate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import Bounds as Box
from scipy.optimize import LinearConstraint, linprog, milp

from verifolio.encode.condition import margin_model
from verifolio.encode.model import Model
from verifolio.encode.onnx_writer import write_onnx
from verifolio.encode.rows import NotLinear, encode
from verifolio.encode.safe import proves_infeasible, safe_lower_bound
from verifolio.errors import InputError
from verifolio.graph import Constant, Dense, Elementwise, GraphBuilder, Relu, Sum
from verifolio.graph.enclosure import enclose
from verifolio.model.problem import Ball, Domain
from verifolio.onnx_import.network import Network
from verifolio.testing.generate import KINDS, Kind, Shape, random_domain, random_graph
from verifolio.vnnlib import make_rows


def minimum(model: Model) -> float:
    rows = LinearConstraint(model.matrix, model.row_lower, model.row_upper)
    answer = milp(
        model.cost,
        integrality=model.integer.astype(np.int64),
        bounds=Box(model.lower, model.upper),
        constraints=rows,
    )
    assert answer.status == 0, answer.message
    return float(answer.fun)


@pytest.mark.parametrize("kind", KINDS)
def test_at_a_fixed_input_the_rows_leave_only_the_networks_output(kind: Kind) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    graph = random_graph(rng, Shape(kind, inputs=4, width=3))
    domain = random_domain(rng, 4)
    for _ in range(3):
        x = rng.uniform(domain.lower, domain.upper)
        value = enclose(graph, x)[0]
        encoding = encode(graph, domain)
        model = encoding.builder.model().with_bounds(list(range(4)), x.tolist(), x.tolist())
        for k in range(graph.output_size):
            row = encoding.output.take(np.array([k]))
            cost = np.zeros(model.columns)
            cost[row.matrix.indices] = row.matrix.data
            low = minimum(model.minimising(cost)) + row.constant[0]
            high = -minimum(model.minimising(-cost)) + row.constant[0]
            assert low == pytest.approx(value[k], abs=1e-5)
            assert high == pytest.approx(value[k], abs=1e-5)


def test_triangle_and_relaxed_big_m_give_the_same_bound() -> None:
    rng = np.random.default_rng(5)
    graph, domain = random_graph(rng, Shape(inputs=3, width=5, outputs=1)), random_domain(rng, 3)
    rows = make_rows([({3: 1.0}, 0.0)])
    found = []
    for form in ("bigm", "triangle"):
        encoding = encode(graph, domain, form=form)
        found.append(minimum(margin_model(encoding, domain, [rows], 100.0).model.relaxed()))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_stable_neurons_cost_no_binaries() -> None:
    builder = GraphBuilder(1)
    pre = builder.add(Dense(2, np.array([5.0, -5.0]), np.array([[1.0], [1.0]])), 0)
    relu = builder.add(Relu(2), pre)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), relu))
    encoding = encode(graph, Domain(-np.ones(1), np.ones(1)))
    assert encoding.unstable_count == 0
    assert encoding.builder.columns == 1
    assert encoding.interval(encoding.output)[1][0] == pytest.approx(6.0)


def test_error_terms_widen_the_rows() -> None:
    builder = GraphBuilder(1)
    noisy = Dense(1, np.zeros(1), np.ones((1, 1)), weight_error=np.full((1, 1), 0.25))
    fixed = builder.add(Constant(1, np.ones(1), np.full(1, 0.5)))
    graph = builder.finish(builder.add(Sum(1, (1.0, 1.0)), builder.add(noisy, 0), fixed))
    encoding = encode(graph, Domain(-np.ones(1), np.ones(1)))
    low, high = encoding.interval(encoding.output)
    assert low[0] <= -1.25 + 0.5
    assert high[0] >= 1.25 + 1.5


def test_what_is_not_linear_is_refused() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Elementwise(1, "tanh"), 0))
    with pytest.raises(NotLinear, match="piecewise"):
        encode(graph, Domain(-np.ones(1), np.ones(1)))
    plain = random_graph(np.random.default_rng(0), Shape(inputs=1))
    with pytest.raises(NotLinear, match="L2"):
        encode(plain, Domain(-np.ones(1), np.ones(1), ball=Ball(np.zeros(1), 1.0, 2.0)))
    with pytest.raises(NotLinear, match="unbounded"):
        encode(plain, Domain(np.full(1, -np.inf), np.full(1, np.inf)))


def test_safe_bounds_hold_for_good_and_for_senseless_duals() -> None:
    rng = np.random.default_rng(7)
    graph, domain = random_graph(rng, Shape(inputs=3, width=4, outputs=1)), random_domain(rng, 3)
    model = margin_model(encode(graph, domain), domain, [make_rows([({3: 1.0}, 0.0)])], 100.0).model.relaxed()
    upper = np.isfinite(model.row_upper)
    sides = np.concatenate([model.row_upper[upper], -model.row_lower[np.isfinite(model.row_lower)]])
    matrix = np.vstack([model.matrix.toarray()[upper], -model.matrix.toarray()[np.isfinite(model.row_lower)]])
    answer = linprog(
        model.cost, matrix, sides, bounds=list(zip(model.lower.tolist(), model.upper.tolist(), strict=True))
    )
    stacked = Model(
        type(model.matrix)(matrix),
        np.full(len(sides), -np.inf),
        sides,
        model.lower,
        model.upper,
        model.cost,
        model.integer,
    )
    assert answer.fun is not None
    assert safe_lower_bound(stacked, answer.ineqlin.marginals) == pytest.approx(answer.fun, abs=1e-7)
    for _ in range(20):
        duals = rng.normal(size=len(sides)) * 10.0 ** rng.integers(-3, 3)
        assert safe_lower_bound(stacked, duals) <= answer.fun + 1e-12
    assert safe_lower_bound(stacked, np.full(len(sides), np.nan)) == -np.inf
    assert not proves_infeasible(stacked, rng.normal(size=len(sides)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_graph_reads_back_as_the_same_function(kind: Kind, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    graph = random_graph(rng, Shape(kind, inputs=4, width=3))
    write_onnx(graph, tmp_path / "net.onnx")
    network = Network.load(tmp_path / "net.onnx")
    for x in rng.normal(size=(5, 4)).astype(np.float32):
        expected = enclose(graph, x.astype(np.float64))[0]
        assert network.replay(x) == pytest.approx(expected, abs=1e-5)
        assert enclose(network.graph, x.astype(np.float64))[0] == pytest.approx(expected, abs=1e-9)


def test_weights_that_float32_cannot_hold_are_not_written(tmp_path: Path) -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.full((1, 1), 0.1)), 0))
    with pytest.raises(InputError, match="float32"):
        write_onnx(graph, tmp_path / "net.onnx")
