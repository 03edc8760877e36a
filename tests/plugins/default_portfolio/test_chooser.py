"""Choosers: the default's rule, what a run goes by, and one of somebody else's from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from verifolio import Oracle, Portfolio, Query, Verdict, hookimpl, single_verifier
from verifolio.cli.main import run
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.registry import Registry
from verifolio.plugins.default_portfolio import chooser as default
from verifolio.plugins.default_portfolio.chooser import built_in
from verifolio.portfolio.chooser import Chooser, default_portfolio, find_chooser, find_portfolio
from verifolio.testing.generate import write_problem
from verifolio.testing.networks import plus_minus
from verifolio.vnnlib import make_rows

NETWORKS = Path(__file__).resolve().parents[3] / "examples" / "networks"
NETWORK, PROPERTY = NETWORKS / "digits_dense.onnx", NETWORKS / "properties" / "digits_dense_45_0.01.vnnlib"


class ByName(Chooser):
    """Asks a different verifier by the property's name."""

    name = "by-name"

    def choose(self, query: Query) -> Portfolio:
        return single_verifier("crown" if "digits" in query.name else "pgd")

    def conditions(self) -> Sequence[tuple[str, Portfolio]]:
        return (("digits", single_verifier("crown")), ("anything else", single_verifier("pgd")))


class Plugin:
    @hookimpl
    def register_choosers(self, registry: Registry[Chooser]) -> None:
        registry.add(ByName)


def few_inputs(folder: Path) -> Query:
    square = Domain(-np.ones(2), np.ones(2))
    return write_problem(Problem(plus_minus(), square, (make_rows([({2: -1.0}, -2.5)]),)), folder)


def test_the_default_depends_on_the_inputs(tmp_path: Path) -> None:
    assert default_portfolio(Query.from_files([NETWORK], PROPERTY)) is built_in("default")
    assert default_portfolio(few_inputs(tmp_path)) is built_in("default_few")


def test_a_run_goes_by_everything_that_may_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tree or another rule is another run, whatever it is called."""
    before = find_chooser().key
    assert before == find_chooser().key
    assert before not in (built_in("default").key, built_in("default_few").key)
    with Oracle(executor="inline") as oracle:
        assert oracle.portfolio_key == before
    with Oracle(single_verifier("pgd"), executor="inline") as oracle:
        assert oracle.portfolio_key == single_verifier("pgd").key
    monkeypatch.setattr(default, "FEW_INPUTS", 13)
    assert find_chooser().key != before
    monkeypatch.undo()
    monkeypatch.setattr(
        default, "built_in", lambda name: single_verifier("pgd") if name == "default" else built_in(name)
    )
    assert find_chooser().key != before


def test_register_choosers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found by name, from Python and from the command line; a file of that name comes first."""
    plugins = current_plugins().plus(Plugin())
    chooser = find_chooser("by-name", plugins)
    with plugins.in_use():
        assert isinstance(find_portfolio("by-name"), ByName)
        assert run(["portfolio", "show", "by-name", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["portfolios"]
    assert [(p["condition"], p["name"]) for p in shown] == [("digits", "crown"), ("anything else", "pgd")]
    with Oracle(chooser, "inline", timeout=20) as oracle:
        assert oracle.portfolio_key == chooser.key
        answer = oracle.ask(Query.from_files([NETWORK], PROPERTY))
        assert (answer.verdict, answer.verifier) == (Verdict.UNSAT, "crown")
        assert oracle.ask(few_inputs(tmp_path)).attempts[0].verifier == "pgd"
