"""Values of nodes at a point, in integer arithmetic; and a random layer for every operator that can be imported."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from verifolio.graph import Elementwise, GraphBuilder, Scale, exact
from verifolio.graph.functions import FUNCTIONS
from verifolio.onnx_import.table import HANDLERS
from verifolio.testing.attained import Undefined, attained, double_above, row_value
from verifolio.testing.generate import ALL_KINDS, Shape, random_graph
from verifolio.testing.operators import LAYERS
from verifolio.testing.recipe import STYLES, Recipe, RecipeStep, random_recipe, smaller
from verifolio.vnnlib import make_rows


def test_every_operator_that_can_be_imported_has_a_random_layer() -> None:
    assert set(LAYERS) == set(HANDLERS)


@pytest.mark.parametrize("operator", sorted(LAYERS))
def test_a_random_layer_uses_its_operator_and_evaluates_as_onnx_runtime_does(
    operator: str, tmp_path: Path
) -> None:
    import onnx

    steps = (
        RecipeStep("dense", 1, 12),
        RecipeStep("Relu", 2),
        RecipeStep(operator, 3),
        RecipeStep("Relu", 4),
    )
    network = Recipe(3, 2, steps).write(tmp_path / "network.onnx")
    assert operator in [node.op_type for node in onnx.load(network.path).graph.node]
    x = np.array([0.3125, -0.75, 0.21875])
    (value,) = attained(network.graph, x)[-1:]
    theirs = network.replay(x.astype(np.float32))
    assert np.abs(value.nearest - theirs).max() < 1e-4
    assert max(b - a for a, b in zip(value.lower, value.upper, strict=True)) < 1e-9


@pytest.mark.parametrize("kind", [k for k in ALL_KINDS if k != "smooth"])
def test_piecewise_linear_values_are_exact(kind: str) -> None:
    rng = np.random.default_rng(3)
    graph = random_graph(rng, Shape(kind, inputs=4))  # type: ignore[arg-type]
    x = rng.normal(size=4)
    value = attained(graph, x)[graph.output]
    assert value.exact
    assert value.lower == exact.evaluate(graph, x)


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_a_function_is_enclosed_by_less_than_a_double_can_tell(function: str) -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Elementwise(1, function, 3.0), 0))
    for x in (0.1, 0.7, 2.5, 11.0):
        value = attained(graph, np.array([x]))[graph.output]
        with mpmath.workprec(400):
            known: dict[str, Any] = {
                "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
                "softplus": lambda v: mpmath.log(1 + mpmath.exp(v)),
                "reciprocal": lambda v: 1 / v,
                "pow": lambda v: v**3,
            }
            true = (known.get(function) or getattr(mpmath, function))(mpmath.mpf(x))
            low, high = (mpmath.mpf(v.numerator) / v.denominator for v in (value.lower[0], value.upper[0]))
            assert low - abs(low) * mpmath.mpf(2) ** -390 <= true <= high + abs(high) * mpmath.mpf(2) ** -390
            assert high - low <= abs(true) * mpmath.mpf(2) ** -200


def test_outside_its_domain_a_function_has_no_value() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Elementwise(1, "log"), 0))
    with pytest.raises(Undefined):
        attained(graph, np.array([-1.0]))


def test_what_stored_numbers_may_be_off_widens_the_value() -> None:
    builder = GraphBuilder(1)
    scale = Scale(1, np.array([1.0]), np.array([2.0]), np.array([0.25]), np.array([0.5]))
    graph = builder.finish(builder.add(scale, 0))
    value = attained(graph, np.array([-3.0]))[1]
    assert (value.lower, value.upper) == ([Fraction(-25, 4)], [Fraction(-15, 4)])


def test_the_value_of_a_row_over_inputs_and_outputs() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Scale(1, np.array([0.1]), np.array([3.0])), 0))
    (row,) = make_rows([({0: 1.0, 1: -2.0}, 0.0)]).linear_rows()
    x = np.array([0.7])
    low, high = row_value(row, x, attained(graph, x)[1])
    assert low == high == Fraction(0.7) - 2 * (3 * Fraction(0.7) + Fraction(0.1))


def test_a_double_above() -> None:
    assert double_above(Fraction(1, 2)) == 0.5
    third = double_above(Fraction(1, 3))
    assert Fraction(math.nextafter(third, 0.0)) < Fraction(1, 3) <= Fraction(third)


@pytest.mark.parametrize("style", STYLES)
def test_the_same_seed_is_the_same_network_and_smaller_ones_can_be_written(
    style: str, tmp_path: Path
) -> None:
    made = [random_recipe(np.random.default_rng(5), style, "Clip") for _ in range(2)]  # type: ignore[arg-type]
    assert made[0] == made[1]
    assert made[0].write(tmp_path / "a.onnx").sha256 == made[1].write(tmp_path / "b.onnx").sha256
    less = smaller(made[0])
    assert less
    for recipe in less[:: max(1, len(less) // 4)]:
        assert recipe.write(tmp_path / "c.onnx").graph.output_size == recipe.outputs


def test_values_beyond_the_doubles_are_infinite_where_a_rough_idea_is_enough() -> None:
    builder = GraphBuilder(1)
    node = 0
    for _ in range(2):
        node = builder.add(Scale(1, np.zeros(1), np.array([-1e200])), node)
    for sign in (1.0, -1.0):
        (value,) = attained(builder.finish(node), np.array([sign]))[-1:]
        assert value.nearest[0] == sign * math.inf
        assert value.lower[0] == Fraction(sign) * Fraction(1e200) ** 2
