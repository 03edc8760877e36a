"""Portfolios: the file format, its errors, the division of time, and typed options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from verifolio.errors import InputError, UnknownPlugin
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.choice import Choice
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.options import build_options, split_pairs
from verifolio.portfolio import features
from verifolio.portfolio.chooser import find_chooser
from verifolio.portfolio.features import FEATURES, beyond
from verifolio.portfolio.file import parse_portfolio, read_portfolio
from verifolio.portfolio.tree import Member, Portfolio, Race, Series, provers, single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.generate import write_problem
from verifolio.testing.hostile_verifiers import Noisy
from verifolio.testing.networks import plus_minus
from verifolio.vnnlib import make_rows

TREE = """
sequence:
  - verifier: pgd
    seconds: 2
    options: {restarts: 3}
  - race:
      - crown
      - verifier: milp
        share: 0.5
"""


def test_a_file_becomes_a_tree() -> None:
    tree = parse_portfolio(TREE, "mine.yaml").root
    assert isinstance(tree, Series)
    attack, race = tree.stages
    assert isinstance(attack, Member)
    assert isinstance(race, Race)
    assert attack.limit(100.0) == 2.0
    assert [m.name for m in Portfolio(tree).members] == ["pgd", "crown", "milp"]
    assert Portfolio(tree).width == 2


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "p.yaml", "empty"),
        ("sequence: 3", "p.yaml:1:11", "a list of stages"),
        ("sequence: []", "p.yaml:1:11", "a list of stages"),
        ("sequence:\n  - verifer: pgd", "p.yaml:2:5", "verifer"),
        ("verifier: pgd\nseconds: -1", "p.yaml:2:10", "positive"),
        ("verifier: pgd\nshare: 2", "p.yaml:2:8", "up to 1"),
        ("verifier: pgd\nspeed: 2", "p.yaml:2:8", "speed"),
        ("verifier: [pgd]", "p.yaml:1:11", "name of a verifier"),
        ("verifier: pgd\nat_most: 3", "p.yaml:2:10", "inputs, neurons, unstable, disjuncts"),
        ("verifier: pgd\nat_most: {size: 3}", "p.yaml:2:10", "inputs, neurons, unstable, disjuncts"),
        ("verifier: pgd\nat_most: {unstable: 1.5}", "p.yaml:2:10", "whole number"),
        ("race:\n  - pgd\nseconds: 3", "p.yaml:1:1", "limits belong to members"),
        ("verifier: pgd\nverifier: milp", "p.yaml:2:1", "every key once"),
        ("sequence: [", "p.yaml:1", "YAML"),
        ("verifier: !!python/object:os.system {}", "p.yaml:1:11", "plain value"),
        ("- pgd", "p.yaml:1:1", "a list"),
    ],
)
def test_errors_name_the_place(text: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_portfolio(text, "p.yaml")
    assert str(caught.value).startswith(where)
    assert what in str(caught.value)


def test_aliases_cannot_blow_a_file_up() -> None:
    lines = ["sequence:", "  - &a0 {sequence: [pgd, pgd]}"]
    lines += [f"  - &a{k} {{sequence: [{', '.join([f'*a{k - 1}'] * 9)}]}}" for k in range(1, 9)]
    with pytest.raises(InputError, match="at most"):
        parse_portfolio("\n".join(lines))


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_portfolio(tmp_path / "none.yaml")


def choices(portfolio: Portfolio) -> list[Choice]:
    return [m.verifier for m in portfolio.members if isinstance(m.verifier, Choice)]


def test_unknown_members_and_options_are_errors_at_their_place() -> None:
    with pytest.raises(UnknownPlugin, match=r"p\.yaml:1:1: no verifier named 'nobody'"):
        choices(parse_portfolio("verifier: nobody", "p.yaml"))[0].build()
    with pytest.raises(InputError, match=r"p\.yaml:1:26"):
        choices(parse_portfolio("{verifier: pgd, options: {nonsense: 1}}", "p.yaml"))[0].build()


def test_the_key_depends_on_what_is_done_and_on_nothing_else() -> None:
    assert parse_portfolio(TREE, "a").key == parse_portfolio(TREE + "\n# more", "b").key
    assert parse_portfolio(TREE).key != parse_portfolio(TREE.replace("2", "3")).key
    assert single_verifier(Noisy()).key == single_verifier(Noisy()).key


def test_the_default_is_a_valid_portfolio_of_optional_members() -> None:
    for _, portfolio in find_chooser().conditions():
        assert all(m.optional for m in portfolio.members)
        assert {c.build().name for c in choices(portfolio)} >= {"pgd", "crown"}


@dataclass(frozen=True)
class Sample:
    steps: int = 1
    rate: float = 0.5
    fast: bool = False
    mode: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    pair: tuple[int, int] = (1, 2)
    limit: int | None = None


def test_options_are_typed() -> None:
    given = split_pairs(["steps=3", "rate=1e-3", "fast=yes", "mode=b", "names=x,y", "pair=3,4", "limit=none"])
    assert build_options(Sample, given, "here") == Sample(3, 1e-3, True, "b", ("x", "y"), (3, 4), None)
    assert build_options(Sample, {"limit": 5, "rate": math.inf}, "here") == Sample(limit=5, rate=math.inf)


@pytest.mark.parametrize(
    "given",
    [
        {"steps": "x"},
        {"steps": True},
        {"fast": "maybe"},
        {"mode": "c"},
        {"pair": "1"},
        {"pace": 1},
        {"steps": []},
    ],
)
def test_wrong_options_are_errors(given: dict[str, object]) -> None:
    with pytest.raises(InputError, match="here"):
        build_options(Sample, given, "here")


def test_a_pair_needs_an_equals_sign() -> None:
    with pytest.raises(InputError, match="key=value"):
        split_pairs(["steps"])


def test_features_count_what_they_say() -> None:
    """relu(x_0) + relu(x_1) where x_1 is fixed: one free input, one ReLU that may have either phase."""
    narrow = Domain(np.array([-1.0, 0.5]), np.array([1.0, 0.5]))
    problem = Problem(plus_minus(), narrow, (make_rows([({2: -1.0}, -2.5)]),) * 3)
    found = {name: measure(problem) for name, (_, measure) in FEATURES.items()}
    neurons = problem.graph.neurons
    assert found == {"inputs": 1, "neurons": neurons, "unstable": found["unstable"], "disjuncts": 3}
    assert 0 < found["unstable"] < neurons
    assert beyond({"disjuncts": 3, "neurons": neurons}, [problem]) is None
    assert beyond({"inputs": 1, "disjuncts": 2}, [problem]) == "3 disjuncts, more than 2"


def test_of_many_problems_a_few_are_measured_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Domain(np.array([-1.0, 0.5]), np.array([1.0, 0.5]))
    problems = [
        Problem(plus_minus(), narrow, (make_rows([({2: -1.0}, -2.5)]),) * (1 + k // 100)) for k in range(1000)
    ]
    seen: list[Problem] = []

    def measure(problem: Problem) -> int:
        seen.append(problem)
        return len(problem.disjuncts)

    monkeypatch.setattr(features, "FEATURES", {"disjuncts": ("disjuncts", measure)})
    known: dict[str, int] = {}
    assert beyond({"disjuncts": 8}, problems, known) == "10 disjuncts, more than 8"
    assert beyond({"disjuncts": 10}, problems, known) is None
    assert len(seen) <= features.MEASURED
    assert beyond({"disjuncts": 0}, []) is None


def test_who_is_passed_over_for_a_feature_takes_no_time(tmp_path: Path) -> None:
    square = Domain(-np.ones(2), np.ones(2))
    query = write_problem(Problem(plus_minus(), square, (make_rows([({2: -1.0}, -2.5)]),)), tmp_path)
    tree = "sequence:\n  - {verifier: milp, at_most: {unstable: 1}}\n  - {verifier: milp, at_most: {unstable: 99}}"
    with Oracle(parse_portfolio(tree)) as oracle:
        answer = oracle.ask(query)
    first, second = answer.attempts
    assert answer.verdict is Verdict.UNSAT and second.verdict is Verdict.UNSAT
    assert "unstable neurons, more than 1" in first.reason and first.seconds == 0


def test_who_only_falsifies_is_left_out_after_an_attack() -> None:
    chosen = provers(parse_portfolio(TREE), current_plugins())
    assert [m.name for m in chosen.members] == ["crown", "milp"]
    assert chosen.key != parse_portfolio(TREE).key
    unknown = parse_portfolio("sequence: [pgd, nobody]")
    assert [m.name for m in provers(unknown, current_plugins()).members] == ["nobody"]
    assert provers(single_verifier("pgd"), current_plugins()) == single_verifier(
        "pgd"
    )  # somebody must be asked
