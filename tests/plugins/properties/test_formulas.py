"""Formulas from text: what they mean, how they fail, and a property of a user's own from one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from verifolio import Network, Oracle, Reference, Verdict
from verifolio.errors import InputError
from verifolio.export import export_onnx
from verifolio.formula import Formula, negate, parse_formula
from verifolio.formula.evaluate import loss, truth
from verifolio.formula.rows import Binding, disjuncts_of
from verifolio.property import Points
from verifolio.property_file import choose_property
from verifolio.vnnlib.check import row_margins

TEXTS = [
    "y[label] > y[others]",
    "norm(y - y0) <= 0.5 * norm(x - x0) + epsilon",
    "max(y) - min(y) < 2 and (y[0] >= y0[0] or x[1] <= 0.25)",
    "any(y[others] > y[label] - 1)",
    "not (y[0] <= y[1] and y[1] <= y[2])",
    "x[0] >= 0.5 implies sum(abs(y)) <= 3",
    "-1 <= y[0] < 1.5",
    "y[0:2] != 0 or y[2] == y[2]",
    "abs(max(y[0], -2 * y[1]) - y[2] / 4) <= limit",
]


def random_points(seed: int, count: int = 400) -> tuple[Points, Binding]:
    rng = np.random.default_rng(seed)
    # multiples of 1/8, so that ties happen and are exact
    x0, y0 = np.round(rng.uniform(0, 8, 2)) / 8, np.round(8 * rng.normal(size=3)) / 8
    x, y = x0 + rng.integers(-4, 5, (count, 2)) / 8, y0 + np.round(8 * rng.normal(size=(count, 3))) / 8
    points = Points.at(Reference(x0, 1, 0.25, outputs=y0), x, y)
    return points, Binding(x0, y0, 1, 0.25, 2, (3,))


@pytest.mark.parametrize("text", TEXTS)
def test_rows_truth_and_loss_agree(text: str) -> None:
    formula = parse_formula(text, {"limit": 0.75})
    points, binding = random_points(len(text))
    held = truth(formula, points)
    assert bool((truth(negate(formula), points) == ~held).all())
    for each, wanted in ((formula, held), (negate(formula), ~held)):
        np.testing.assert_array_equal((loss(each, points) == 0).numpy(), wanted.numpy())
        disjuncts = disjuncts_of(each, binding)
        both = torch.cat([points.x, points.y], dim=1).numpy()
        by_rows = [any(row_margins(rows, p)[1] for rows in disjuncts) for p in both]
        np.testing.assert_array_equal(by_rows, wanted.numpy())


def test_a_loss_has_gradients() -> None:
    points, _ = random_points(0)
    y = points.y.requires_grad_(True)
    (slope,) = torch.autograd.grad(loss(parse_formula("norm(y - y0) <= 0.1"), points).sum(), y)
    assert float(slope.abs().sum()) > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y[0]", "a comparison"),
        ("y[0] <= ", "a term"),
        ("y[0] <= z", "one of x, y"),
        ("y[0] <= 1 y[1] <= 2", "end of the formula"),
        ("y[-1] <= 1", "positions from 0"),
        ("y[2:1] <= 1", "range with entries"),
        ("(y[0] <= 1", "'\\)'"),
        ("__import__('os')", "one of x, y|operator"),
        ("y[0] ; y[1]", "operator"),
        ("any(y[0])", "one comparison"),
        ("y[0] <= 1 and y[1]", "comparisons on both sides"),
        ("y[0] / y[1] <= 1", "division by a number"),
        ("(" * 100 + "y[0] <= 1" + ")" * 100, "levels of nesting"),
        ("y[0] <= 1 " * 3000, "at most"),
    ],
)
def test_bad_texts_say_where(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_formula(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y[7] <= 1", "position from 0 to 2"),
        ("y[0] * y[1] <= 1", "product of two variables"),
        ("y <= x", "vectors of one length"),
        (" and ".join(f"any(y <= {i})" for i in range(12)), "disjuncts"),
    ],
)
def test_formulas_that_have_no_query(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        disjuncts_of(parse_formula(text), random_points(0)[1])


YAML = """
name: confident
about: The label's score stays a margin above the others.
options:
  margin: 0.5
holds: y[label] - y[others] >= margin
"""
PYTHON = """
from verifolio.formula import Formula, FormulaProperty, Y

class Confident(FormulaProperty):
    name = "confident"

    def formula(self) -> Formula:
        return Y["label"] - Y["others"] >= 0.5
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    path = tmp_path_factory.mktemp("net") / "identity.onnx"
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
        model.bias.zero_()
    export_onnx(model, path, (2,))
    return Network.load(path)


@pytest.mark.parametrize(("file", "text"), [("mine.yaml", YAML), ("mine.py", PYTHON)])
def test_a_property_of_ones_own(file: str, text: str, network: Network, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    prop = choose_property(str(tmp_path / file))
    assert prop.name == "confident"
    with Oracle(executor="inline", timeout=10.0) as oracle:
        for radius, expected in ((0.05, Verdict.UNSAT), (0.2, Verdict.SAT)):
            reference = Reference(np.array([0.85, 0.15]), 0, radius)  # y = x, so the margin is 0.7 - 2 radius
            assert oracle.ask(prop.query([network], reference)).verdict is expected


def test_options_of_a_file_are_typed(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    assert choose_property(str(tmp_path / "mine.yaml"), {"margin": "0.25"}).options.margin == 0.25
    with pytest.raises(InputError, match="a number"):
        choose_property(str(tmp_path / "mine.yaml"), {"margin": "big"})
    with pytest.raises(InputError, match="margin"):
        choose_property(str(tmp_path / "mine.yaml"), {"gap": "1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("holds: [", "YAML"),
        ("name: x", "holds"),
        ("holds: y[0] <= 1\nwho: me", "one of name"),
        ("holds: y[0] <= 1\noptions: {a b: 1}", "option names"),
        ("holds: y[0] <= 1\noptions: {a: x}", "numbers under"),
        ("holds: y[0] <= 1\nnetworks: 7", "1 or 2"),
        ("holds: y[0] <= unknown", "unknown"),
        ("!!python/object/apply:os.getcwd []", "YAML"),
    ],
)
def test_bad_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        choose_property(str(tmp_path / "bad.yaml"))


def test_a_python_file_without_a_property_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("value = 1\n")
    for spec in ("empty.py", "missing.py", "empty.py:Other"):
        with pytest.raises(InputError):
            choose_property(str(tmp_path / spec))


def test_formulas_are_values() -> None:
    assert isinstance(parse_formula("y[0] <= 1"), Formula)
    assert parse_formula("y[0] <= 0.1") == parse_formula(" y[0]<=1e-1 ")
