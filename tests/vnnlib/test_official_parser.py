"""The standard's own parser as an oracle for version 2.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.vnnlib import Specification, VnnlibError, load, loads, normalise, parse, write
from verifolio.vnnlib.symbols import element_name

official: Any = pytest.importorskip("vnnlib", reason="the official parser (dev extra) is not installed")
if not hasattr(official, "parse_query_string"):
    pytest.skip("`import vnnlib` found another package; set PYTHONSAFEPATH=1", allow_module_level=True)

HEAD = """(vnnlib-version <2.0>)
(declare-network N (declare-input X real [2]) (declare-output Y real [1, 2]))
"""
BOX = "(assert (and (<= X[0] 1.0) (>= X[0] -1.0) (<= X[1] 1.0) (>= X[1] -1.0)))\n"
FORMULAS = [
    "(<= Y[0,0] Y[0,1])",
    "(or (<= Y[0,0] 0.25) (and (> Y[0,1] 0.5) (<= X[0] 0.0)))",
    "(and (or (< Y[0,0] 0.0) (> Y[0,1] 0.0)) (or (>= X[0] X[1]) (<= (+ X[0] Y[0,0]) 0.5)))",
    "(<= (- (* 2.0 Y[0,0]) (* 3.0 -1.5 X[1]) 0.5) (- Y[0,1]))",
    "(!= Y[0,0] 0.0)",
    "(or (<= X[0] -0.5) (>= X[0] 0.5))",
]
COMPARE = {
    "LessEqual": np.less_equal,
    "LessThan": np.less,
    "GreaterEqual": np.greater_equal,
    "GreaterThan": np.greater,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}


def truth(dnfs: list[Any], values: dict[str, float]) -> bool:
    """Evaluate the official disjunctive forms at a point."""

    def value(expression: Any) -> float:
        linear = expression.to_linear_expr()
        return float(linear.constant + sum(term.coeff * values[term.var_name] for term in linear.terms))

    def compare(node: Any) -> bool:
        return bool(COMPARE[type(node).__name__](value(node.lhs), value(node.rhs)))

    return all(any(all(compare(atom) for atom in clause) for clause in dnf) for dnf in dnfs)


def agree(text: str, specification: Specification, samples: int) -> int:
    """Compare verdicts at random points in and around the boxes; the number of points that hold."""
    query = official.parse_query_string(text)
    dnfs = [assertion.expr.to_dnf() for assertion in query.assertions]
    rng = np.random.default_rng(0)
    size = specification.input_size
    columns = range(size + specification.output_size)
    names = [element_name(specification.networks, size, column, "2.0") for column in columns]
    held = 0
    for _ in range(samples):
        case = specification.cases[int(rng.integers(len(specification.cases)))]
        margin = 0.0 if rng.random() < 0.8 else 1e-3
        x = np.clip(rng.uniform(*case.inner), *case.inner) + margin
        y = rng.normal(size=specification.output_size)
        ours = specification.check(x, y).holds
        assert truth(dnfs, dict(zip(names, [*x.tolist(), *y.tolist()], strict=True))) == ours
        held += ours
    return held


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_mean_the_same(formula: str) -> None:
    text = f"{HEAD}{BOX}(assert {formula})"
    specification = loads(text)
    assert agree(text, specification, 200) > 0
    agree(write(specification), specification, 100)


def test_public_files_mean_the_same(public: Path) -> None:
    held = 0
    for path in sorted((public / "vnnlib2").glob("*.vnnlib")):
        text = path.read_text()
        if text.startswith("(vnnlib-version") and len(text) < 5000:
            held += agree(text, load(path), 100)
    assert held


def test_our_conversions_are_accepted(public: Path) -> None:
    for folder in sorted(public.iterdir()):
        for path in sorted(folder.glob("vnnlib/*.vnnlib*"))[:1]:
            document = parse(path)
            specification = normalise(document)
            for text in (write(document, "2.0"), write(specification, "2.0")):
                query = official.parse_query_string(text)
                assert query.networks[0].inputs[0].shape == [specification.input_size]


@pytest.mark.parametrize(
    "body",
    [
        "(assert (<= X[0] 1.0)",
        "(assert (<= X[2] 1.0))",
        "(assert (<= X[0,0] 1.0))",
        "(assert (<= X 1.0))",
        "(assert (<= Z[0] 1.0))",
        "(assert (X[0] < X[1]))",
        "(assert (not (<= X[0] 1.0)))",
        "(assert (= X[0] 1.0))",
        "(assert (and))",
        "(assert (<= X[0]))",
        "(assert (<= X[0] X[1] 1.0))",
        "(assert true)",
        "(declare-network M (declare-input A real [2])) (assert (<= X[0] 1.0))",
        "(declare-network M (equal-to K) (declare-input A real []) (declare-output B real []))"
        "(assert (<= B 1.0))",
    ],
)
def test_what_it_refuses_we_refuse(body: str) -> None:
    with pytest.raises(official.VNNLibException):
        official.parse_query_string(HEAD + body)
    with pytest.raises(VnnlibError):
        loads(HEAD + body)
