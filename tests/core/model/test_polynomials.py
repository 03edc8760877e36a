"""Polynomial conditions and hidden tensors end to end: products in the graph, the referee in rationals."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.graph import exact
from verifolio.graph.monomials import with_monomials
from verifolio.model.answer import Flag, Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.choice import Choice
from verifolio.testing.attained import attained
from verifolio.testing.trial import attempt
from verifolio.trust.knowledge import key_of
from verifolio.trust.referee import judge_counterexample

HEAD = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2]){hidden} (declare-output Y real [1,1]))
(assert (and (>= X[0,0] -1.0) (<= X[0,0] 1.0) (>= X[0,1] -1.0) (<= X[0,1] 1.0)))
"""
DISC = "(assert (<= (+ (* X[0,0] X[0,0]) (* X[0,1] X[0,1])) 0.25))"
HIDDEN = ' (declare-hidden H real [1,2] "h")'


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """y = relu(x0 + x1) + relu(x0 - x1) = max(x0 + |x1|, 2 x0, 0)."""
    weights = {"w": [[1.0, 1.0], [1.0, -1.0]], "v": [[1.0], [1.0]]}
    stored = [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in weights.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["h"], name="bend"),
        helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("x", 2), ("y", 1))]
    opset = [helper.make_opsetid("", 17)]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=8), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def query_of(network: Path, assertions: str, hidden: str = "") -> Query:
    path = network.with_name("p.vnnlib")
    path.write_text(HEAD.replace("{hidden}", hidden) + assertions)
    return Query.from_files([network], path)


def verdict(verifier: str, query: Query) -> Verdict:
    return attempt(Choice(verifier).build(), query, 20.0).report.verdict


@pytest.mark.parametrize(
    ("assertions", "truth"),
    [
        # y^2 <= 4 on the box, attained at (1, x1)
        ("(assert (>= (* Y[0,0] Y[0,0]) 4.1))", Verdict.UNSAT),
        ("(assert (>= (* Y[0,0] Y[0,0]) 3.9))", Verdict.SAT),
        # inside the disc of radius 1/2, y <= 1
        (f"{DISC}(assert (> Y[0,0] 1.01))", Verdict.UNSAT),
        (f"{DISC}(assert (> Y[0,0] 0.95))", Verdict.SAT),
        # y x0 >= 2 x0^2 where x0 > 0; below 0 it is at least -1/4, at x0 = -1/2 and x1 = 1
        ("(assert (< (* X[0,0] Y[0,0]) -0.26))", Verdict.UNSAT),
        ("(assert (< (* X[0,0] Y[0,0]) -0.24))", Verdict.SAT),
        ("(assert (> (* X[0,0] X[0,1] Y[0,0]) 2.02))", Verdict.UNSAT),
    ],
)
def test_polynomials_are_decided(network: Path, assertions: str, truth: Verdict) -> None:
    assert verdict("crown", query_of(network, assertions)) is truth


def test_smooth_knows_them_too(network: Path) -> None:
    assert verdict("smooth", query_of(network, "(assert (>= (* Y[0,0] Y[0,0]) 4.1))")) is Verdict.UNSAT


def test_the_referee_multiplies_exactly(network: Path) -> None:
    """x0^2 <= (1 + 2^-12)^2, missed by less than a double can tell from the bound."""
    edge = Fraction(2**12 + 1, 2**13) ** 2
    digits = f"{float(edge):.60f}"  # a double, so these are all its digits
    assert Fraction(digits) == edge
    query = query_of(network, f"(assert (>= (* X[0,0] X[0,0]) {digits}))")
    x = np.array([float(Fraction(2**12 + 1, 2**13)), 0.0])
    found = judge_counterexample(query, x)
    assert isinstance(found, Witness) and Flag.FLOAT_ONLY not in found.flags and Flag.TIE in found.flags
    tiny = query_of(network, f"(assert (> (* X[0,0] X[0,0]) {digits}))")
    assert not isinstance(judge_counterexample(tiny, x), Witness)
    beyond = query_of(network, f"(assert (>= (* X[0,0] X[0,0]) {digits}1))")
    assert not isinstance(judge_counterexample(beyond, x), Witness)


def test_the_graph_multiplies_what_the_property_does(network: Path) -> None:
    graph = Network.load(network).graph
    monomials = ((0, 0), (0, 1, 2), (1, 1, 1, 2), (2, 2))
    whole = with_monomials(graph, monomials)
    rng = np.random.default_rng(0)
    for x in rng.uniform(-1, 1, (20, 2)):
        values = [Fraction(float(v)) for v in x]
        values += exact.evaluate(graph, x)
        wanted = [values[2], *(math.prod((values[k] for k in one), start=Fraction(1)) for one in monomials)]
        assert exact.evaluable(whole) and exact.evaluate(whole, x) == wanted
        seen = attained(whole, x)[whole.output]
        assert all(a <= w <= b for a, w, b in zip(seen.lower, wanted, seen.upper, strict=True))


def test_proofs_about_other_products_are_not_inferred(network: Path) -> None:
    one = query_of(network, "(assert (>= (* X[0,0] Y[0,0]) 3.0))")
    other = query_of(network, "(assert (>= (* X[0,1] Y[0,0]) 3.0))")
    keys = [key_of(q, q.specification.cases[0]) for q in (one, other)]
    assert keys[0] != keys[1]
    hidden = [query_of(network, "(assert (>= H[0,0] 3.0))", HIDDEN.replace('"h"', n)) for n in ('"h"', '"a"')]
    assert key_of(hidden[0], hidden[0].specification.cases[0]) != key_of(
        hidden[1], hidden[1].specification.cases[0]
    )


@pytest.mark.parametrize("name", ["h", "bend"])
def test_hidden_tensors_are_decided_and_replayed(network: Path, name: str) -> None:
    hidden = HIDDEN.replace('"h"', f'"{name}"')
    both = "(assert (>= H[0,0] 1.9))(assert (>= H[0,1] {}))"
    sat = query_of(network, both.format("0.05"), hidden)
    assert verdict("crown", sat) is Verdict.SAT
    found = judge_counterexample(sat, np.array([1.0, 0.92]))
    assert isinstance(found, Witness) and len(found.y) == 3
    assert found.y[1:].tolist() == pytest.approx([1.92, 0.08], abs=1e-6)
    # relu(x0 + x1) >= 1.9 leaves x0 - x1 <= 0.1
    assert verdict("crown", query_of(network, both.format("0.15"), hidden)) is Verdict.UNSAT


@pytest.mark.parametrize("name", ["y", "x", "nowhere", "w"])
def test_hidden_tensors_must_be_inside(network: Path, name: str) -> None:
    with pytest.raises(InputError, match="between inputs and outputs"):
        query_of(network, "(assert (>= H[0,0] 1.9))", HIDDEN.replace('"h"', f'"{name}"'))


def test_hidden_tensors_have_the_networks_size(network: Path) -> None:
    query = query_of(network, "(assert (>= H[0,0] 1.9))", HIDDEN.replace("[1,2]", "[1,3]"))
    with pytest.raises(InputError, match="2 elements, as hidden tensor 'h'"):
        _ = query.problems


@pytest.mark.parametrize("verifier", ["milp", "smt"])
def test_others_refuse_products_by_name(network: Path, verifier: str) -> None:
    query = query_of(network, "(assert (>= (* X[0,0] Y[0,0]) 3.0))")
    report = attempt(Choice(verifier).build(), query, 5.0).report
    assert report.refused and "Product" in report.reason
