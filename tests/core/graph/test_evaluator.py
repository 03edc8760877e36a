"""Values and gradients in numpy are those of torch; and what is evaluated without torch does not import it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from verifolio.graph import (
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Graph,
    GraphBuilder,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
)
from verifolio.graph.evaluator import PLAIN, ArrayEvaluator, TensorEvaluator, evaluator, is_plain
from verifolio.onnx_import import noise

WIDE = 40


def plain_graph(seed: int) -> Graph:
    """Every operator that numpy evaluates, 40 wide; entries are read twice or not at all, constants are shared."""
    random = np.random.default_rng(seed)
    b = GraphBuilder(WIDE)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape)

    dense = b.add(Dense(WIDE, bias=normal(WIDE), weight=normal(WIDE, WIDE) / 6), 0)
    hidden = b.add(Relu(WIDE), dense)
    few = normal(WIDE, WIDE) * (random.random((WIDE, WIDE)) < 0.1)
    sparsely = b.add(Sparse(WIDE, bias=normal(WIDE), weight=sparse.csr_array(few)), hidden)
    picked = b.add(Select(WIDE, random.integers(-1, WIDE, WIDE)), sparsely)
    constant = b.add(Constant(WIDE, normal(WIDE)))
    total = b.add(Sum(WIDE, (1.0, -2.0, 1.0)), picked, constant, 0)
    product = b.add(Product(WIDE), total, b.add(Relu(WIDE), total))
    joined = b.add(Concat(3 * WIDE), product, constant, hidden)
    scaled = b.add(Scale(3 * WIDE, bias=normal(3 * WIDE), weight=normal(3 * WIDE)), joined)
    return b.finish(b.add(Dense(7, bias=normal(7), weight=normal(7, 3 * WIDE)), scaled))


def test_the_graph_of_these_tests_has_every_plain_operator() -> None:
    graph = plain_graph(0)
    assert {type(node.op) for node in graph.nodes} == set(PLAIN)
    assert is_plain(graph)


@pytest.mark.parametrize("seed", range(5))
def test_values_and_gradients_are_those_of_torch(seed: int) -> None:
    graph, random = plain_graph(seed), np.random.default_rng(seed)
    ours, theirs = ArrayEvaluator(graph), TensorEvaluator(graph)
    x, weight = random.standard_normal((30, WIDE)), random.standard_normal((30, 7))
    x[0] = 0.0
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    (value, pull), (expected, back) = ours.linearise(x), theirs.linearise(x)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pull(weight), back(weight), rtol=1e-11, atol=1e-11)


def test_a_constant_output_has_a_row_per_point_and_no_gradient() -> None:
    b = GraphBuilder(3)
    graph = b.finish(b.add(Constant(2, np.array([1.0, -1.0]))))
    value, pull = ArrayEvaluator(graph).linearise(np.ones((4, 3)))
    assert value.tolist() == [[1.0, -1.0]] * 4
    assert pull(np.ones((4, 2))).tolist() == np.zeros((4, 3)).tolist()


def test_overflow_is_infinite_and_not_a_number_stays_so() -> None:
    b = GraphBuilder(1)
    big = b.add(Scale(1, bias=np.zeros(1), weight=np.array([1e200])), 0)
    graph = b.finish(b.add(Sum(1, (1.0, -1.0)), b.add(Product(1), big, big), b.add(Product(1), big, big)))
    x = np.array([[1e200], [0.0]])
    assert np.array_equal(ArrayEvaluator(graph)(x), TensorEvaluator(graph)(x), equal_nan=True)


def test_roundings_are_estimated_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, points = plain_graph(3), np.random.default_rng(1).random((5, WIDE))
    ours = noise.evaluate(graph, points)
    monkeypatch.setattr(noise, "evaluator", TensorEvaluator)
    theirs = noise.evaluate(graph, points)
    for i in range(len(graph.nodes)):
        np.testing.assert_allclose(ours.clean[i], theirs.clean[i], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours.rounded[i], theirs.rounded[i], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", ["conv", "function"])
def test_what_numpy_does_not_evaluate_torch_does(op: str) -> None:
    b = GraphBuilder(9)
    kernel = Conv(
        4, bias=np.zeros(1), weight=np.ones((1, 1, 2, 2)), input_shape=(1, 3, 3), output_shape=(1, 2, 2)
    )
    graph = b.finish(b.add(kernel if op == "conv" else Elementwise(9, "tanh"), 0))
    assert not is_plain(graph)
    assert isinstance(evaluator(graph), TensorEvaluator)
    assert evaluator(graph)(np.zeros((2, 9))).shape == (2, graph.output_size)
