"""Steps: their values, what single precision does to their arguments, and bounds that respect both."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from scipy import sparse

from verifolio.graph import (
    Constant,
    Dense,
    Elementwise,
    Graph,
    GraphBuilder,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Step,
    Whole,
    exact,
)
from verifolio.graph.enclosure import enclose
from verifolio.graph.matrix import linear_part, offset
from verifolio.graph.module import GraphModule
from verifolio.graph.settle import settle
from verifolio.graph.single import Span, _of_product, grid, spans
from verifolio.graph.steps import Table
from verifolio.onnx_import.network import Network

SIGN = (np.array([0.0]), np.array([-1.0, 1.0]), np.array([0.0]))


def network(path: Path, nodes: list[Any], tensors: dict[str, Any], inputs: int, outputs: int) -> Network:
    """A file with input `x` of shape (1, inputs) and output `y`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return Network.load(path)


def cast(source: str, target: str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_node("Cast", [source], [target], to=kind)


CORNERS = np.array([-2.5, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], np.float32)


def around(points: np.ndarray) -> np.ndarray:
    """The points and their neighbours in single precision."""
    sides = [np.nextafter(points, np.float32(s * np.inf)) for s in (-1, 1)]
    return np.concatenate([points, *sides]).astype(np.float32)


UNARY = ["Sign", "Floor", "Ceil", "Round"]
BINARY = ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"]


@pytest.mark.parametrize("op", [*UNARY, *BINARY, "Cast", "Bool", "Not", "Where"])
def test_values_near_corners_agree_with_onnx_runtime_and_exactly(op: str, tmp_path: Path) -> None:
    points = around(CORNERS)
    n = len(points)
    threshold = np.ones((1, n), np.float32)
    if op in UNARY:
        nodes = [helper.make_node(op, ["x"], ["y"])]
    elif op in BINARY:
        nodes = [helper.make_node(op, ["x", "c"], ["b"]), cast("b", "y")]
    elif op == "Cast":
        nodes = [cast("x", "i", TensorProto.INT64), cast("i", "y")]
    elif op == "Bool":
        nodes = [cast("x", "i", TensorProto.BOOL), cast("i", "y")]
    elif op == "Not":
        nodes = [helper.make_node("Greater", ["x", "c"], ["b"]), helper.make_node("Not", ["b"], ["d"])]
        nodes.append(cast("d", "y"))
    else:
        nodes = [
            helper.make_node("Greater", ["x", "c"], ["b"]),
            helper.make_node("Where", ["b", "x", "c"], ["y"]),
        ]
    net = network(tmp_path / "n.onnx", nodes, {"c": threshold}, n, n)
    expected = net.replay(points)
    graph = net.graph
    value, radius = enclose(graph, points.astype(np.float64))
    if exact.evaluable(graph):
        assert [float(v) for v in exact.evaluate(graph, points.astype(np.float64))] == expected.tolist()
    assert bool((np.abs(value - expected) <= radius).all())
    settled = settle(graph, points.astype(np.float64), points.astype(np.float64))
    assert settled.steps and all(getattr(settled.nodes[i].op, "settled", False) for i in settled.steps)
    middle, spread = enclose(settled, points.astype(np.float64))
    assert bool((np.abs(middle - expected) <= spread).all())


def test_logic_of_bools_agrees_with_onnx_runtime(tmp_path: Path) -> None:
    for op in ("And", "Or", "Xor"):
        nodes = [
            helper.make_node("Greater", ["x", "zero"], ["p"]),
            helper.make_node("Less", ["x", "one"], ["q"]),
            helper.make_node(op, ["p", "q"], ["b"]),
            cast("b", "y"),
        ]
        tensors = {"zero": np.zeros((1, 3), np.float32), "one": np.array([[1.0, -1.0, 0.5]], np.float32)}
        net = network(tmp_path / f"{op}.onnx", nodes, tensors, 3, 3)
        for x in np.random.default_rng(0).choice([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0], (50, 3)):
            values = exact.evaluate(net.graph, x)
            assert [float(v) for v in values] == net.replay(x).tolist()


def test_ranges_of_tables_hold_every_value_between() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        count = int(rng.integers(0, 5))
        op = Step(1, np.sort(rng.normal(size=count)), rng.normal(size=count + 1), rng.normal(size=count))
        table = Table(op, torch.float64)
        low = float(rng.choice([*op.breakpoints, rng.normal()]))
        high = max(low, float(rng.choice([*op.breakpoints, rng.normal()])))
        points = np.unique(
            [low, high, *rng.uniform(low, high, 200), *(b for b in op.breakpoints if low <= b <= high)]
        )
        values = table.value(torch.from_numpy(points))
        least, most = table.range(*(torch.tensor([v], dtype=torch.float64) for v in (low, high)))
        assert float(least) <= float(values.min()) and float(values.max()) <= float(most)
        # and no wider than what is attained on either side of the breakpoints
        near = [*points, *np.nextafter(points, -np.inf), *np.nextafter(points, np.inf)]
        inside = [v for v in near if low <= v <= high]
        sides = table.value(torch.tensor(inside, dtype=torch.float64))
        assert float(least) >= float(sides.min()) and float(sides.max()) >= float(most)


def random_steps(rng: np.random.Generator, width: int = 32, depth: int = 3, kind: str = "sign") -> Graph:
    """Dense layers, ReLUs and steps."""
    builder = GraphBuilder(6)
    node, size = 0, 6
    for k in range(depth):
        weight = rng.normal(size=(width, size)) / math.sqrt(size)
        weight = weight.astype(np.float32).astype(np.float64)
        bias = rng.normal(size=width).astype(np.float32).astype(np.float64)
        node = builder.add(Dense(width, bias=bias, weight=weight), node)
        if k % 2 == 0 and kind == "sign":
            node = builder.add(Step(width, *SIGN), node)
        elif k % 2 == 0:
            node = builder.add(Whole(width, kind), node)
        else:
            node = builder.add(Relu(width), node)
        size = width
    weight = rng.normal(size=(4, size)).astype(np.float32).astype(np.float64)
    return builder.finish(builder.add(Dense(4, bias=np.zeros(4), weight=weight), node))


@pytest.mark.parametrize("kind", ["sign", "floor", "round", "trunc"])
def test_single_precision_stays_within_the_drift(kind: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(8):
        graph = random_steps(rng, kind=kind)
        centre = rng.normal(size=(1, 6))
        box = centre - 0.3, centre + 0.3
        drift = dict(enumerate(spans(graph, *box)))
        single, double = GraphModule(graph, torch.float32), GraphModule(graph, torch.float64)
        points = (box[0] + rng.random((64, 6)) * 0.6).astype(np.float32)
        with torch.no_grad():
            rough = single.values(torch.from_numpy(points))
            for i, node in enumerate(graph.nodes[1:], start=1):
                # the exact operator on what single precision read: how far its own result is off
                fine = double.layers[i](*(rough[p].double() for p in node.parents))
                span = drift[i]
                assert bool(((rough[i].double() - fine).abs().numpy() <= span.drift + 1e-12).all())
                low, high = span.reached
                assert bool((rough[i].double().numpy() >= low - 1e-12).all())
                assert bool((rough[i].double().numpy() <= high + 1e-12).all())


def test_levels_that_single_precision_rounds_drift_by_the_most_that_one_does() -> None:
    """A third is off by 1e-8 in float32, a half by nothing: what sums up both must count the third."""
    builder = GraphBuilder(2)
    levels, at = np.array([0.5, 1 / 3, 0.1]), np.array([0.5, 0.1])
    step = builder.add(Step(2, np.array([-1.0, 1.0]), levels, at), 0)
    graph = builder.finish(builder.add(Dense(1, bias=np.zeros(1), weight=np.ones((1, 2))), step))
    off = np.abs(levels - levels.astype(np.float32).astype(np.float64))
    low, high = np.full((1, 2), -2.0), np.full((1, 2), 2.0)
    found = list(spans(graph, low, high))
    assert (found[step].drift >= off.max()).all() and (found[step].unit == 0).all()
    assert (found[-1].drift >= 2 * off.max()).all()


SUMS: dict[str, Callable[[np.random.Generator], Op]] = {
    "wide": lambda rng: Dense(3, bias=rng.normal(size=3), weight=rng.normal(size=(3, 300))),
    "narrow": lambda rng: Dense(300, bias=rng.normal(size=300), weight=rng.normal(size=(300, 3))),
    "sparse": lambda rng: Sparse(9, rng.normal(size=9), sparse.csr_array(rng.normal(size=(9, 200)))),
    "scale": lambda rng: Scale(40, bias=rng.normal(size=40), weight=rng.normal(size=40)),
}


@pytest.mark.parametrize("kind", SUMS)
def test_a_sum_drifts_by_a_rounding_for_each_of_its_terms(kind: str) -> None:
    """n u times the sum of absolute values, where it is largest on the box (Higham 2002, section 4.2)."""
    op = SUMS[kind](np.random.default_rng(7))
    matrix, bias = np.abs(linear_part(op, (size_of(op),))[0].toarray()), np.abs(offset(op))
    builder = GraphBuilder(matrix.shape[1])
    graph = builder.finish(builder.add(op, 0))
    corner = np.linspace(-3, 2, matrix.shape[1])[None]
    (_, span) = spans(graph, corner - 0.5, corner + 0.25)
    largest = np.maximum(np.abs(corner - 0.5), np.abs(corner + 0.25))[0]
    terms = int((matrix > 0).sum(1).max())
    assert (span.drift[0] >= terms * 2.0**-24 * (matrix @ largest + bias)).all()


def size_of(op: Op) -> int:
    weight = getattr(op, "weight", np.zeros(1))
    return int(weight.shape[-1])


@pytest.mark.parametrize("function", ["product", "pow", "reciprocal", "dense"])
def test_spans_of_points_hold_their_exact_values(function: str) -> None:
    """The analysis rounds as well: at a point its interval must still hold the exact value."""
    rng, count = np.random.default_rng(11), 200
    x, other = rng.uniform(1, 2, (2, count))
    builder = GraphBuilder(count)
    if function == "product":
        node = builder.add(Product(count), 0, builder.add(Constant(count, other)))
        wanted = [Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), other.tolist(), strict=True)]
    elif function == "dense":
        weight = rng.normal(size=(30, count))
        node = builder.add(Dense(30, bias=np.zeros(30), weight=weight), 0)
        wanted = [
            sum((Fraction(w) * Fraction(v) for w, v in zip(r, x.tolist(), strict=True)), Fraction(0))
            for r in weight.tolist()
        ]
    else:
        power = 3 if function == "pow" else -1
        node = builder.add(Elementwise(count, function, 3.0 if function == "pow" else 0.0), 0)
        wanted = [Fraction(v) ** power for v in x.tolist()]
    span = list(spans(builder.finish(node), x[None], x[None]))[-1]
    for low, high, value in zip(span.low[0].tolist(), span.high[0].tolist(), wanted, strict=True):
        assert Fraction(low) <= value <= Fraction(high)
        assert high - low < 1e-9


def test_the_grid_of_a_number_is_the_power_of_two_that_divides_it() -> None:
    values = np.array([1.0, 6.0, -0.75, 1024.0, 3 * 2.0**-30, 2.0**40 + 1])
    assert grid(values).tolist() == [1.0, 2.0, 0.25, 1024.0, 2.0**-30, 1.0]
    assert np.isinf(grid(np.zeros(1))).all()


@pytest.mark.parametrize("where", [0, 2])
def test_one_weight_that_is_too_far_off_is_enough(where: int) -> None:
    """Weights that were folded may be off by a few units; a larger error has no bound."""
    error = np.full(3, 1e-12)
    for large, known in ((1e-12, True), (1e-3, False)):
        error[where] = large
        builder = GraphBuilder(3)
        graph = builder.finish(builder.add(Scale(3, np.zeros(3), np.ones(3), weight_error=error.copy()), 0))
        (_, span) = spans(graph, np.ones((1, 3)), np.full((1, 3), 2.0))
        assert bool(np.isfinite(span.drift[0, where])) is known or span.drift[0, where] >= large


def test_constants_with_an_error_have_no_unit() -> None:
    for error, unit in ((None, [1.0, 0.5]), (np.array([0.0, 1e-9]), [1.0, 0.0])):
        builder = GraphBuilder(1)
        graph = builder.finish(builder.add(Constant(2, np.array([3.0, 0.5]), error)))
        assert list(spans(graph, np.zeros((1, 1)), np.zeros((1, 1))))[-1].unit.tolist() == unit


def test_a_selection_has_the_spans_of_what_it_selects() -> None:
    builder = GraphBuilder(3)
    graph = builder.finish(builder.add(Select(4, np.array([2, -1, 0, 2])), 0))
    low, high = np.array([[1.0, 2.0, 3.0]]), np.array([[1.5, 2.5, 3.5]])
    (_, span) = spans(graph, low, high)
    assert span.low[0].tolist() == [3.0, 0.0, 1.0, 3.0] and span.high[0].tolist() == [3.5, 0.0, 1.5, 3.5]


@pytest.mark.parametrize("rule", ["floor", "trunc", "round"])
def test_nothing_is_known_of_a_whole_number_beyond_the_limits(rule: str) -> None:
    builder = GraphBuilder(1)
    values = builder.add(Constant(3, np.array([2.25, 126.0, -127.5]), np.array([0.5, 3.0, 2.0])))
    graph = builder.finish(builder.add(Whole(3, rule, (-128.0, 127.0)), values))
    _, radius = enclose(graph, np.zeros(1))
    assert np.isinf(radius).tolist() == [False, True, True]


def test_nothing_is_known_of_a_quotient_that_may_divide_by_nought() -> None:
    builder = GraphBuilder(4)
    graph = builder.finish(builder.add(Elementwise(4, "reciprocal"), 0))
    low, high = np.array([[-1.0, -0.0, 0.5, -2.0]]), np.array([[2.0, 1.0, 2.0, -1e-3]])
    (_, span) = spans(graph, low, high)
    assert np.isinf(span.drift[0]).tolist() == [True, True, False, False]
    assert (span.drift[0, 2:] >= 2.0**-24 / np.array([0.5, 1e-3])).all()


def test_a_quotient_drifts_by_its_slope_times_the_drift_of_its_argument() -> None:
    builder = GraphBuilder(20)
    total = builder.add(Dense(2, bias=np.array([0.02, 30.0]), weight=np.ones((2, 20))), 0)
    graph = builder.finish(builder.add(Elementwise(2, "reciprocal"), total))
    _, inner, outer = spans(graph, np.zeros((1, 20)), np.full((1, 20), 0.01))
    assert (inner.drift > 0).all()
    assert (outer.drift[0] >= inner.drift[0] / np.array([0.02, 30.0]) ** 2).all()


@pytest.mark.parametrize("fine", [2.0**-9, float(np.float32(0.1))])
def test_a_bias_that_is_finer_than_the_weights_sets_the_unit(fine: float) -> None:
    """Sums of ones and of a tenth are no multiples of one: their unit is that of the tenth, or unknown."""
    bias = np.array([1.0, fine, 0.0])
    ops = [Dense(3, bias=bias, weight=np.ones((3, 4))), Sparse(3, bias, sparse.csr_array(np.ones((3, 4))))]
    for op in ops:
        builder = GraphBuilder(4)
        graph = builder.finish(builder.add(op, builder.add(Step(4, *SIGN), 0)))
        unit = list(spans(graph, -np.ones((1, 4)), np.ones((1, 4))))[-1].unit
        assert all(u == 0 or float(b / u).is_integer() for u, b in zip(unit, bias, strict=True))


def test_sums_of_ones_are_exact_and_their_zero_is_a_level() -> None:
    rng = np.random.default_rng(3)
    builder = GraphBuilder(4)
    first = builder.add(Step(4, *SIGN), 0)
    weight = rng.choice([-1.0, 1.0], (8, 4))
    total = builder.add(Dense(8, bias=np.zeros(8), weight=weight), first)
    graph = builder.finish(builder.add(Step(8, *SIGN), total))
    settled = settle(graph, -np.ones(4), np.ones(4))
    last = settled.nodes[settled.output].op
    assert isinstance(last, Step) and last.settled
    assert last.breakpoints.tolist() == [-0.5, 0.5] and last.levels.tolist() == [-1.0, 0.0, 1.0]
    for x in rng.uniform(-1, 1, (50, 4)):
        value, radius = enclose(settled, x)
        assert radius.max() == 0 and value.tolist() == [float(v) for v in exact.evaluate(graph, x)]


def test_a_step_of_a_shifted_step_is_one_step() -> None:
    builder = GraphBuilder(3)
    first = builder.add(Step(3, *SIGN), 0)
    tenth = float(np.float32(0.1))
    shifted = builder.add(Scale(3, bias=np.full(3, tenth), weight=np.ones(3)), first)
    graph = builder.finish(builder.add(Step(3, *SIGN), shifted))
    settled = settle(graph, -np.ones(3), np.ones(3))
    assert len(settled.steps) == 1
    step = settled.nodes[settled.output].op
    assert isinstance(step, Step) and step.levels.tolist() == [-1.0, 1.0] and step.at.tolist() == [1.0]


def test_nothing_is_settled_where_single_precision_is_not_known() -> None:
    builder = GraphBuilder(3)
    curve = builder.add(Elementwise(3, "sigmoid"), 0)
    graph = builder.finish(builder.add(Step(3, *SIGN), curve))
    settled = settle(graph, -np.ones(3), np.ones(3))
    assert not any(getattr(settled.nodes[i].op, "settled", False) for i in settled.steps)


def test_a_cast_beyond_its_type_is_not_settled() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Whole(1, "trunc", (-128.0, 127.0)), 0))
    assert isinstance(settle(graph, -np.ones(1), np.full(1, 100.0)).nodes[-1].op, Step)
    assert isinstance(settle(graph, -np.ones(1), np.full(1, 300.0)).nodes[-1].op, Whole)


def test_exact_values_are_those_of_the_definition() -> None:
    builder = GraphBuilder(5)
    graph = builder.finish(builder.add(Whole(5, "round"), 0))
    x = np.array([0.5, 1.5, -0.5, 2.5000000001, -1.5])
    assert exact.evaluate(graph, x) == [Fraction(v) for v in (0, 2, 0, 3, -2)]


def test_gradients_pass_through_steps() -> None:
    graph = random_steps(np.random.default_rng(5))
    x = torch.zeros(1, 6, requires_grad=True)
    GraphModule(graph)(x).sum().backward()
    assert x.grad is not None and bool((x.grad != 0).any())


def folded_scale(how: str) -> tuple[list[Any], dict[str, Any]]:
    """A factor that is 1 in exact arithmetic and 1 - 2^-24 in single precision, from `a` to `b`."""
    one = np.ones(1, np.float32)
    if how == "norm":  # 41 * (1 / 41)
        names = ["gamma", "beta", "mean", "variance"]
        node = helper.make_node("BatchNormalization", ["a", *names], ["b"], epsilon=0.0)
        numbers = [41 * one, 0 * one, 0 * one, 1681 * one]
        return [node], dict(zip(names, numbers, strict=True))
    nodes = [
        helper.make_node("Add", ["one", "small"], ["more"]),
        helper.make_node("Sub", ["more", "small"], ["w"]),
    ]
    nodes.append(helper.make_node("Mul", ["a", "w"], ["b"]))
    return nodes, {"one": one, "small": one * np.float32(3 * 2.0**-26)}


@pytest.mark.parametrize("how", ["norm", "constants"])
def test_a_folded_weight_is_rounded_by_single_precision(how: str, tmp_path: Path) -> None:
    """The sum of six whole numbers is 42, and 42 (1 - 2^-24) - 42 is below zero."""
    middle, tensors = folded_scale(how)
    nodes = [
        helper.make_node("Floor", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "ones"], ["a"]),
        *middle,
    ]
    nodes += [helper.make_node("Sub", ["b", "c"], ["d"]), helper.make_node("Sign", ["d"], ["y"])]
    tensors |= {"ones": np.ones((6, 1), np.float32), "c": np.array([42], np.float32)}
    net = network(tmp_path / "n.onnx", nodes, tensors, 6, 1)
    x = np.full(6, 7.25)
    assert net.replay(x, optimised=False).tolist() == [-1.0]
    settled = settle(net.graph, np.full(6, 7.1), np.full(6, 500.0))
    value, radius = enclose(settled, x)
    assert value[0] - radius[0] <= -1 <= value[0] + radius[0]


def test_a_step_of_nothing_but_zeros_keeps_its_value_there(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sign", ["x"], ["s"]), helper.make_node("Mul", ["s", "zero"], ["z"])]
    nodes.append(helper.make_node("Sign", ["z"], ["y"]))
    net = network(tmp_path / "n.onnx", nodes, {"zero": np.zeros(1, np.float32)}, 2, 2)
    settled = settle(net.graph, np.full(2, -1.0), np.ones(2))
    value, radius = enclose(settled, np.full(2, 0.5))
    assert net.replay(np.full(2, 0.5)).tolist() == value.tolist() == [0.0, 0.0]
    assert not radius.any()


def test_scaling_by_a_power_of_two_may_underflow() -> None:
    builder = GraphBuilder(1)
    graph = builder.finish(builder.add(Scale(1, np.zeros(1), np.array([2.0**-140])), 0))
    *_, span = spans(graph, np.zeros((1, 1)), np.full((1, 1), 2.0**-20))
    assert np.float32(2.0**-20) * np.float32(2.0**-140) == 0
    assert span.drift[0, 0] >= 2.0**-160


def test_errors_of_weights_widen_exact_values() -> None:
    builder = GraphBuilder(1)
    error = np.array([[2.0**-31]])
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 1)), error), 0))
    *_, span = spans(graph, np.ones((1, 1)), np.ones((1, 1)), exact=True)
    assert span.low[0, 0] <= 1 - 2.0**-31 and span.high[0, 0] >= 1 + 2.0**-31


def test_spans_of_products_hold_all_products() -> None:
    """Factors on either side of nought, five at once."""
    rng = np.random.default_rng(0)
    ends = np.sort(rng.normal(size=(2, 2, 5)), 1)
    a, b = (Span(low, high, np.zeros(5), np.zeros(5), np.maximum(-low, high)) for low, high in ends)
    made = _of_product(a, b)
    for share in rng.uniform(size=(50, 2, 5)):
        first, second = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
        assert (made.low <= first * second).all()
        assert (first * second <= made.high).all()
    assert made.low.shape == made.high.shape == (5,)
