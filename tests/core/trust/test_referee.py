"""The referee: only points that replay are witnesses, and the flags say how far to trust them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.graph.enclosure import enclose
from verifolio.graph.exact import evaluable, evaluate
from verifolio.model.answer import Flag, Witness
from verifolio.model.outputs import outputs_from_bytes, outputs_to_bytes
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.testing.samples import reaches, sum_graph, write_sum
from verifolio.trust.referee import (
    Rejection,
    confirmed,
    in_ball,
    judge_counterexample,
    nearest_case,
    replay,
    rows_hold,
)
from verifolio.vnnlib import box_case, loads, make_rows, specification_from_cases


def test_a_counterexample_is_replayed_and_confirmed(tmp_path: Path) -> None:
    witness = judge_counterexample(reaches(write_sum(tmp_path), 1.5), np.array([1.0, 1.0]))
    assert isinstance(witness, Witness)
    assert witness.y.tolist() == [2.0, 0.0]
    assert witness.margins == (0.5,)
    assert not witness.flags
    assert confirmed(witness)


def test_a_wrong_point_is_rejected_with_its_margin(tmp_path: Path) -> None:
    rejection = judge_counterexample(reaches(write_sum(tmp_path), 1.5), np.array([0.5, 0.5]))
    assert isinstance(rejection, Rejection)
    assert rejection.margins == (-0.5,)
    assert "0.5" in rejection.reason


def test_points_outside_are_moved_into_the_box(tmp_path: Path) -> None:
    witness = judge_counterexample(reaches(write_sum(tmp_path), 1.5), np.array([7.0, 1.0 + 1e-9]))
    assert isinstance(witness, Witness)
    assert witness.x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("x", [[np.nan, 0.0], [0.0], [np.inf, 1.0]])
def test_nonsense_is_rejected(tmp_path: Path, x: list[float]) -> None:
    assert isinstance(judge_counterexample(reaches(write_sum(tmp_path), 1.5), np.array(x)), Rejection)


def test_ties_count_unless_strict(tmp_path: Path) -> None:
    network = write_sum(tmp_path)
    tie = judge_counterexample(reaches(network, 2.0), np.ones(2))
    assert isinstance(tie, Witness)
    assert tie.flags == {Flag.TIE}
    assert isinstance(judge_counterexample(reaches(network, 2.0, strict=True), np.ones(2)), Rejection)


def test_an_interval_without_float32_is_flagged(tmp_path: Path) -> None:
    text = """
    (declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)
    (assert (>= X_0 0.1)) (assert (<= X_0 0.1)) (assert (>= X_1 0)) (assert (<= X_1 1))
    (assert (>= Y_0 1))
    """
    query = Query((write_sum(tmp_path),), loads(text))
    witness = judge_counterexample(query, np.array([0.1, 1.0]))
    assert isinstance(witness, Witness)
    assert witness.flags == {Flag.INPUT_ULP}
    assert not confirmed(witness)


@pytest.mark.parametrize("tiny", [2.0**-30, 2.0**-60])
def test_what_holds_only_in_floating_point_is_flagged(tmp_path: Path, tiny: float) -> None:
    """1 + 2^-30 rounds to 1 in float32, so y_0 <= 1 holds there, but not in exact arithmetic.

    With 2^-60 doubles cannot tell either: a doubt is no confirmation, the exact evaluation decides.
    """
    query = reaches(write_sum(tmp_path), 0.0)
    rows = make_rows([({2: 1.0}, 1.0)])
    case = box_case([1.0, tiny], [1.0, tiny], [rows])
    query = replace(query, specification=specification_from_cases([case], output_size=2))
    witness = judge_counterexample(query, np.array([1.0, tiny]))
    assert isinstance(witness, Witness)
    assert Flag.FLOAT_ONLY in witness.flags
    assert not confirmed(witness)


def scaled_sign(path: Path, weight: float, scale: float, level: float) -> Network:
    """sign(scale * (weight * x) - level); ONNX Runtime multiplies scale and weight first where it may optimise."""
    tensors = {"w": np.full((1, 1, 1, 1), weight), "s": np.full((1, 1, 1, 1), scale), "t": np.array([level])}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
        helper.make_node("Sub", ["b", "t"], ["c"]),
        helper.make_node("Sign", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 1])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return Network.load(path)


@pytest.mark.parametrize("apart", [False, True])
def test_what_holds_only_with_graph_optimisations_is_flagged(tmp_path: Path, apart: bool) -> None:
    """A sign that is 1 however it is computed, and one that is 1 only if weight and scale are multiplied first."""
    rng = np.random.default_rng(0)
    for k in range(100):
        w, s, x = rng.uniform(1, 2, 3).astype(np.float32)
        plain, fused = np.float32(np.float32(w * x) * s), np.float32(np.float32(w * s) * x)
        if fused > plain:
            network = scaled_sign(tmp_path / f"{k}.onnx", w, s, float(plain) - (not apart))
            ways = [float(network.replay(np.array([x]), optimised)[0]) for optimised in (True, False)]
            if ways == [1.0, 0.0 if apart else 1.0]:
                break
    else:
        pytest.fail("ONNX Runtime computed the same with and without optimisations")
    case = box_case([float(x)], [float(x)], [make_rows([({1: -1.0}, -0.5)])])
    witness = judge_counterexample(
        Query((network,), specification_from_cases([case], output_size=1)), np.array([float(x)])
    )
    assert isinstance(witness, Witness)
    assert (Flag.FUSED in witness.flags) is apart


def test_replay_alone_says_that_exact_arithmetic_was_not_asked(tmp_path: Path) -> None:
    witness = replay(reaches(write_sum(tmp_path), 1.5), np.ones(2))
    assert isinstance(witness, Witness)
    assert witness.flags == {Flag.UNCHECKED_EXACT}


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_balls_are_respected(tmp_path: Path, norm: float) -> None:
    ball = Ball(np.array([0.3, 0.3]), 0.1, norm)
    query = reaches(write_sum(tmp_path), 0.6, ball=ball)
    witness = judge_counterexample(query, np.array([0.45, 0.44]))
    assert isinstance(witness, Witness)
    assert in_ball(ball, witness.x)


def test_the_ball_is_decided_exactly_at_its_surface() -> None:
    ball = Ball(np.zeros(2), 5.0, 2.0)
    assert in_ball(ball, np.array([3.0, 4.0], np.float32))
    assert not in_ball(ball, np.array([3.0, np.nextafter(np.float32(4), np.float32(5))], np.float32))


def test_the_case_is_chosen_by_the_point(tmp_path: Path) -> None:
    rows = make_rows([({2: -1.0}, -1.5)])
    cases = [box_case([0.0, 0.0], [0.1, 0.1], [rows]), box_case([0.9, 0.9], [1.0, 1.0], [rows])]
    spec = specification_from_cases(cases, output_size=2)
    assert nearest_case(spec.cases, np.array([0.95, 1.2])) is spec.cases[1]
    witness = judge_counterexample(Query((write_sum(tmp_path),), spec), np.array([0.95, 1.2]))
    assert isinstance(witness, Witness)
    assert witness.x[1] == 1.0


@pytest.mark.parametrize("shared", [False, True])
def test_several_networks_share_an_input_or_do_not(tmp_path: Path, shared: bool) -> None:
    network = write_sum(tmp_path)
    inputs = 2 if shared else 4
    rows = make_rows([({inputs: -1.0, inputs + 2: -1.0}, -3.5)])
    case = box_case([0.0] * inputs, [1.0] * inputs, [rows])
    spec = specification_from_cases([case], output_size=4)
    query = Query((network, network), spec, shared_input=shared)
    witness = judge_counterexample(query, np.ones(inputs))
    assert isinstance(witness, Witness)
    assert witness.y.tolist() == [2.0, 0.0, 2.0, 0.0]


def test_exact_evaluation_agrees_with_the_enclosure() -> None:
    rng = np.random.default_rng(3)
    builder = GraphBuilder(4)
    hidden = builder.add(Relu(6), builder.add(Dense(6, rng.normal(size=6), rng.normal(size=(6, 4))), 0))
    graph = builder.finish(builder.add(Dense(3, rng.normal(size=3), rng.normal(size=(3, 6))), hidden))
    assert evaluable(graph)
    for _ in range(20):
        x = rng.normal(size=4) * 10.0 ** rng.integers(-20, 20)
        value, radius = enclose(graph, x)
        for exact, v, r in zip(evaluate(graph, x), value, radius, strict=True):
            assert abs(float(exact) - v) <= r


def test_exact_evaluation_rounds_nothing() -> None:
    values = evaluate(sum_graph(), np.array([1.0, 2.0**-200]))
    assert values[0] - 1 == values[0].__class__(1, 2**200)


def test_rows_hold_or_fail_for_every_value_within_the_error() -> None:
    """Near their right-hand sides, with coefficients of both signs: what is certain holds at the worst values."""
    rng, seen = np.random.default_rng(3), set()
    for _ in range(400):
        point, error = rng.normal(size=6), rng.uniform(0, 1e-3, 6)
        weights = rng.normal(size=(2, 6))
        reach = np.abs(weights) @ error
        rhs = weights @ point + reach * rng.uniform(-2, 2, 2)
        rows = make_rows(
            [(dict(enumerate(w.tolist())), r) for w, r in zip(weights, rhs.tolist(), strict=True)]
        )
        said = rows_hold(rows, point, error)
        least, most = weights @ point - reach, weights @ point + reach
        seen.add(said)
        if said is True:
            assert (most <= rhs + 1e-12).all()
        elif said is False:
            assert (least >= rhs - 1e-12).any()
        else:
            assert (most >= rhs - 1e-12).any() and (least <= rhs + 1e-12).all()
    assert seen == {True, False, None}


def double_network(path: Path) -> Network:
    """y = (double) x + 2^-30 in double precision."""
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["d", "tiny"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.array([2.0**-30]), "tiny")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return Network.load(path)


def test_outputs_in_double_precision_are_not_rounded(tmp_path: Path) -> None:
    """At 1 the network gives 1 + 2^-30, which is 1 in single precision: `y <= 1` does not hold there."""
    network = double_network(tmp_path / "double.onnx")
    assert network.replay(np.ones(1)).tolist() == [1 + 2.0**-30]
    case = box_case([1.0], [1.0], [make_rows([({1: 1.0}, 1.0)])])
    query = Query((network,), specification_from_cases([case], output_size=1))
    assert isinstance(judge_counterexample(query, np.ones(1)), Rejection)
    above = box_case([1.0], [1.0], [make_rows([({1: -1.0}, -(1 + 2.0**-30))])])
    witness = judge_counterexample(
        Query((network,), specification_from_cases([above], output_size=1)), np.ones(1)
    )
    assert isinstance(witness, Witness)
    assert not witness.flags - {Flag.TIE}


@pytest.mark.parametrize("y", [np.array([1 + 2.0**-30, -3.0]), np.array([0.1, 2.5], np.float32), np.zeros(0)])
def test_outputs_are_stored_as_they_are(y: np.ndarray[tuple[int], np.dtype[np.floating]]) -> None:
    back = outputs_from_bytes(outputs_to_bytes(y))
    assert back.tolist() == y.tolist()
    assert back.dtype == y.dtype


def test_a_row_that_fails_decides_though_another_has_no_bound() -> None:
    rows = make_rows([({0: 1.0}, 1.0), ({1: 1.0}, 1.0)])
    assert rows_hold(rows, np.array([0.0, 2.0]), np.array([np.inf, 0.1])) is False
    for point, error in (
        ([0.0, 0.0], [np.inf, 0.1]),
        ([np.nan, 0.0], [0.1, 0.1]),
        ([0.0, np.inf], [0.1, np.inf]),
    ):
        assert rows_hold(rows, np.array(point), np.array(error)) is None
