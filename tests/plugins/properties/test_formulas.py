"""Formulas from text: what they mean, how they fail, and a property of a user's own from one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from verifolio import Network, Oracle, Reference, Verdict
from verifolio.encode.onnx_writer import write_onnx
from verifolio.encode.torch_export import export_onnx
from verifolio.errors import InputError
from verifolio.plugin.property import Points
from verifolio.properties.file import choose_property
from verifolio.properties.formula import Formula, negate, parse_formula
from verifolio.properties.formula.evaluate import alternatives, loss, truth
from verifolio.properties.formula.rows import Binding, disjuncts_of
from verifolio.properties.verdict import Status, decide
from verifolio.testing.networks import dense_graph
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
from verifolio.properties.formula import Formula, FormulaProperty, Y

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


def test_two_networks_may_have_different_numbers_of_outputs(tmp_path: Path) -> None:
    """Three outputs (0, 0, 5) and one (-5): y1[0] <= y2[0] says 0 <= -5."""
    nets = []
    for k, bias in enumerate(([0.0, 0.0, 5.0], [-5.0])):
        write_onnx(dense_graph([(np.zeros((len(bias), 1)), bias)]), tmp_path / f"{k}.onnx")
        nets.append(Network.load(tmp_path / f"{k}.onnx"))
    (tmp_path / "p.yaml").write_text("networks: 2\nholds: y1[0] <= y2[0]\n")
    prop = choose_property(str(tmp_path / "p.yaml"))
    reference = Reference(np.array([0.5]), 0, 0.1)
    with Oracle(executor="inline", timeout=5.0) as oracle:
        assert decide(oracle, prop, nets, reference).status is Status.REFUTED
    known = reference.with_outputs(nets)
    assert known.sizes == (3, 1)
    assert not prop.holds(np.array([0.0, 0.0, 5.0, -5.0]), known, known.x)
    with pytest.raises(InputError, match="outputs each has"):  # half and half would be a guess
        prop.holds(np.array([0.0, 0.0, 5.0, -5.0]), reference, known.x)


@pytest.mark.parametrize("text", ["y[0:7] >= -1", "y[7] >= -1"])
def test_positions_that_do_not_exist_are_refused_everywhere(text: str) -> None:
    points, binding = random_points(0)
    formula = parse_formula(text, {})
    for use in (lambda: truth(formula, points), lambda: disjuncts_of(formula, binding)):
        with pytest.raises(InputError, match="count from 0"):
            use()


def test_an_or_of_a_hundred_does_not_vanish() -> None:
    """In single precision the product of 99 losses of 0.3 is 0, and so is its gradient."""
    y = torch.zeros(1, 100)
    y[0, 1] = 0.3
    y.requires_grad_(True)
    flat = torch.zeros(1, 1)
    points = Points(flat, y, flat, torch.zeros(1, 100), torch.zeros(1, dtype=torch.int64), 0.1)
    prop = choose_property("targeted", {"target": "1"})
    assert not bool(prop.satisfied(points)[0])
    (loss_here,) = prop.loss(points)
    assert pytest.approx(float(loss_here.detach()), rel=1e-4) == 0.3 / 99
    loss_here.backward()
    assert y.grad is not None and float(y.grad.abs().max()) > 1e-3


def test_alternatives_are_nought_exactly_where_one_is() -> None:
    each = torch.tensor([[0.0, 3.0], [1e-20, 1.0], [2.0, 2.0], [1e-38, 1e-38]], requires_grad=True)
    found = alternatives(each)
    assert (found == 0).tolist() == [True, False, False, False]
    assert float(found[2].detach()) == pytest.approx(1.0)
    found.sum().backward()
    assert each.grad is not None and bool(torch.isfinite(each.grad).all())
