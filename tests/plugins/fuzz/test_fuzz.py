"""The fuzzer is quiet about honest members, and catches and shrinks what dishonest ones do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from verifolio.graph import Graph
from verifolio.graph.enclosure import enclose
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.manager import current_plugins, installed_plugins
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.fuzz.campaign import Plan, Summary, draw, placed, run_campaign, sparing
from verifolio.plugins.fuzz.examine import AskedVerifiers, examine, with_truth
from verifolio.plugins.fuzz.shrink import candidates
from verifolio.run.budget import Budget
from verifolio.testing.generate import ALL_KINDS


class Optimist(Verifier):
    """Deliberately broken: takes a failed search for a proof."""

    name: ClassVar[str] = "optimist"
    can_prove = True
    can_falsify = True

    def run(self, problem: Problem, context: Context) -> Outcome:
        middle = (problem.domain.lower + problem.domain.upper) / 2
        return Outcome.found(middle) if context.check(middle) else Outcome.proved()


class Crasher(Verifier):
    """Deliberately broken: fails on anything."""

    name: ClassVar[str] = "crasher"

    def run(self, problem: Problem, context: Context) -> Outcome:
        raise ZeroDivisionError("by design")


class Narrow(Bounder):
    """Deliberately broken: bounds of the middle point alone."""

    name: ClassVar[str] = "narrow"

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        found = []
        for problem in problems:
            middle = (problem.domain.lower + problem.domain.upper) / 2
            nodes = [problem.graph.nodes[i].parents[0] for i in problem.graph.nonlinear]
            values = {n: enclose(Graph(problem.graph.nodes, n), middle)[0] for n in nodes}
            found.append(Bounds(problem.graph.sha256, problem.domain, values, values))
        return found


def quiet(_: str) -> None:
    return None


def test_a_false_proof_is_caught_and_shrunk_to_a_handful_of_neurons(tmp_path: Path) -> None:
    asked = AskedVerifiers((Optimist(),), seconds=5.0)
    plan = Plan(seed=5, networks=10, kinds=("dense",), width=6, depth=2)
    summary = run_campaign(plan, asked, tmp_path, quiet)
    assert summary.findings
    finding, folder = summary.findings[0]
    assert (finding.kind, finding.subject) == ("unsound proof", "optimist")
    record = json.loads((folder / "finding.json").read_text())
    assert record["neurons"] <= 4
    assert record["neurons"] <= record["neurons_before"]
    assert record["rows"] <= 2
    query = Query.from_files([folder / "network.onnx"], folder / "property.vnnlib")
    assert query.problems


def test_a_crash_and_bounds_that_do_not_contain_are_findings() -> None:
    made = placed(with_truth(draw(Plan(seed=1, kinds=("dense",)), 0)), 0.1)
    seen = examine(made, AskedVerifiers((Crasher(),), (Narrow(),), seconds=5.0))
    kinds = {(f.kind, f.subject) for f in seen.findings}
    assert kinds == {("error", "crasher"), ("unsound bounds", "narrow")}
    assert seen.verdicts["crasher"] is Verdict.ERROR


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_step_of_shrinking_is_a_problem_of_its_own(kind: str) -> None:
    plan = Plan(seed=2, kinds=(kind,), disjuncts=3, rows=3)  # type: ignore[arg-type]
    made = placed(with_truth(draw(plan, 0)), 0.1)
    smaller = list(candidates(made.problem))
    assert smaller
    x = (made.problem.domain.lower + made.problem.domain.upper) / 2
    for problem in smaller:
        assert enclose(problem.graph, x)[0].shape == (made.problem.graph.output_size,)
        assert np.isfinite(problem.domain.lower).all()


def test_honest_members_agree(tmp_path: Path) -> None:
    plugins = current_plugins()
    names = [n for n in ("milp", "smt", "crown", "pgd") if n in plugins.verifiers]
    verifiers = tuple(plugins.verifiers.get(n)() for n in names)
    asked = AskedVerifiers(verifiers, tuple(plugins.all_bounders().values()), seconds=5.0)
    summary = run_campaign(Plan(seed=7, networks=4), asked, tmp_path, quiet)
    assert summary.findings == []
    assert summary.problems == 8


def test_a_member_that_takes_far_longer_than_the_others_is_spared() -> None:
    members = tuple(current_plugins().verifiers.get(n)() for n in ("milp", "smt", "crown"))
    summary = Summary(problems=20)
    summary.spent.update({"milp": 1.0, "smt": 1.5, "crown": 4.0})
    assert sparing(AskedVerifiers(members), summary).verifiers == members
    summary.spent["crown"] = 9.0
    assert [v.name for v in sparing(AskedVerifiers(members), summary).verifiers] == ["milp", "smt"]
    assert summary.spared["crown"] == 1
    assert sparing(AskedVerifiers(members[:2]), summary).verifiers == members[:2]


def test_the_command_exits_with_four_on_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from verifolio.cli.main import run

    current_plugins().verifiers.add(Optimist)
    arguments = ["fuzz", "--verifier", "optimist", "--networks", "10", "--seed", "5", "--kind", "dense"]
    try:
        code = run([*arguments, "--out", str(tmp_path), "--json"])
    finally:
        installed_plugins.cache_clear()
    assert code == 4
    shown = json.loads(capsys.readouterr().out)
    assert shown["findings"][0]["subject"] == "optimist"


def test_an_unknown_kind_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    from verifolio.cli.main import run

    assert run(["fuzz", "--kind", "spiral"]) == 2
    assert "spiral" in capsys.readouterr().err
