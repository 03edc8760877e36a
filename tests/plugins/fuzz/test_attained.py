"""Thresholds at what a point attains: honest members are left in peace, others are caught, shrunk and written."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from verifolio.errors import InputError
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Assumptions, Bounds, Evidence, Margins
from verifolio.plugin.manager import current_plugins, installed_plugins
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.fuzz.attained import Course, again, draw, look, resumed, run_attained
from verifolio.plugins.fuzz.challenge import Challenge, Layout, make_challenge, random_layout
from verifolio.plugins.fuzz.points import certainly_inside, inside, random_set
from verifolio.plugins.fuzz.wrong_claims import AskedMember, AskedMembers, variants, wrong_claims
from verifolio.run.budget import Budget
from verifolio.testing.attained import row_value
from verifolio.testing.operators import LAYERS
from verifolio.testing.recipe import Recipe, RecipeStep, Style, random_recipe
from verifolio.testing.trial import attempt

WIDE = Recipe(
    4,
    2,
    (RecipeStep("dense", 1, 20), RecipeStep("Relu", 2), RecipeStep("dense", 3, 10), RecipeStep("Relu", 4)),
)


class Prover(Verifier):
    """Deliberately broken: proves everything, and shares bounds that are too narrow."""

    name: ClassVar[str] = "prover"
    can_prove = True

    def run(self, problem: Problem, context: Context) -> Outcome:
        size = problem.graph.nodes[1].op.size
        none = np.zeros(size)
        assumed = Assumptions(problem.condition_sha256)
        context.evidence.add_bounds(
            Bounds(problem.graph.sha256, problem.domain, {1: none}, {1: none}, None, assumed, self.name)
        )
        return Outcome.proved()


class Slightly(Bounder):
    """Deliberately broken: interval bounds whose margins are a hair above what is attained."""

    name: ClassVar[str] = "slightly"
    attained: ClassVar[float] = 0.0

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        # the threshold is the attained value, so the least margin is nought
        hair = np.array([5e-324])
        return [Bounds(p.graph.sha256, p.domain, {}, {}, Margins.of(p, [hair])) for p in problems]


def quiet(_: str) -> None:
    return None


def honest() -> AskedMembers:
    plugins = current_plugins()
    members = [m for n in ("crown", "milp") for m in variants(plugins.verifiers.get(n))[:1]]
    return AskedMembers(tuple(members), tuple(plugins.all_bounders().values()), seconds=1.0)


@pytest.mark.parametrize("k", range(6))
def test_the_point_satisfies_the_problem_exactly(k: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(k)
    challenge = make_challenge(random_recipe(rng, "small"), random_layout(rng), tmp_path)
    assert challenge is not None
    problem, x = challenge.problems[0], challenge.point
    assert inside(problem.domain, x)
    outputs = challenge.values[challenge.graph.output]
    for row in problem.disjuncts[0].linear_rows():
        value = row_value(row, x, outputs)[1]
        assert value <= row.rhs
        assert float(row.rhs - value) <= 4e-16 * (1 + abs(float(value)))
    query = challenge.query(tmp_path)
    read = query.problems[len(challenge.problems) // 2]
    assert (read.domain.lower <= x).all()
    assert (x <= read.domain.upper).all()
    assert [r.rhs for r in read.disjuncts[0].linear_rows()] == [
        r.rhs for r in problem.disjuncts[0].linear_rows()
    ]


def test_a_proof_and_bounds_that_assume_the_condition_are_judged_at_the_point(tmp_path: Path) -> None:
    challenge = make_challenge(WIDE, Layout(3, boxes=2, disjuncts=2, rows=2), tmp_path)
    assert challenge is not None
    found = wrong_claims(challenge, AskedMembers((AskedMember("prover", Prover()),)), tmp_path)
    assert {(f.kind, f.subject) for f in found} == {
        ("unsound proof", "prover"),
        ("unsound evidence", "prover"),
    }


def test_a_proof_that_the_second_look_refutes_is_a_finding_too(tmp_path: Path) -> None:
    """At a random point the condition holds by far elsewhere, so the report is `sat` with a false proof."""
    challenge = make_challenge(WIDE, Layout(3, place="random"), tmp_path)
    assert challenge is not None
    report = attempt(Prover(), challenge.query(tmp_path), 2.0, 0, evidence=Evidence(attacked=True)).report
    assert (report.verdict, report.false_proof) == (Verdict.SAT, True)
    found = wrong_claims(challenge, AskedMembers((AskedMember("prover", Prover()),)), tmp_path)
    assert "unsound proof" in {f.kind for f in found}


def test_nothing_is_asked_where_another_box_has_values_that_are_no_numbers(tmp_path: Path) -> None:
    """The exponential of an exponential: it ended a whole campaign with an error about coefficients."""
    drawn = (("dense", 602585852, 8, "twin"), ("Exp", 981277139), ("dense", 608886203, 10), ("Exp", 38232932))
    more = (("Mul", 301825895), ("dense", 652691972, 6, "tiny"), ("Exp", 1349401859))
    recipe = Recipe(1, 2, tuple(RecipeStep(*step) for step in (*drawn, *more)), 3.0, 255857418)
    layout = Layout(1998230598, boxes=4, rows=3, spread=0.16891115942121152, place="random", single=False)
    assert make_challenge(recipe, layout, tmp_path) is None


def test_an_optimiser_that_merges_quantisations_is_no_wrong_import(tmp_path: Path) -> None:
    """ONNX Runtime makes one of two in a row, and computes something else than the file says."""
    steps = (RecipeStep("QuantizeLinear", 921383843), RecipeStep("QuantizeLinear", 1908040140))
    recipe = Recipe(1, 2, steps, 3.0, 1241000656)
    challenge = make_challenge(
        recipe, Layout(1103982017, spread=1.8995427483275025, place="corner"), tmp_path
    )
    assert challenge is not None
    x = challenge.point.astype(np.float32)
    assert np.abs(challenge.network.replay(x) - challenge.network.replay(x, False)).max() > 0.01
    assert not wrong_claims(challenge, AskedMembers(()), tmp_path)


def test_a_margin_that_is_the_least_double_too_large_is_a_finding(tmp_path: Path) -> None:
    challenge = make_challenge(replace(WIDE, steps=WIDE.steps[:2]), Layout(1), tmp_path)
    assert challenge is not None
    rows = challenge.problems[0].disjuncts[0]
    exactly = row_value(rows.linear_rows()[0], challenge.point, challenge.values[challenge.graph.output])[1]
    # only where a double is the attained value is the least margin nought exactly
    slack = float(rows.linear_rows()[0].rhs - exactly)
    found = wrong_claims(challenge, AskedMembers((), (Slightly(),)), tmp_path)
    assert [f.kind for f in found] == ["unsound bounds"]
    assert 0 <= slack < 1e-15


def test_an_import_that_differs_from_the_file_is_a_finding(tmp_path: Path) -> None:
    challenge = make_challenge(WIDE, Layout(3), tmp_path)
    assert challenge is not None
    other = replace(WIDE, seed=9).write(tmp_path / "other.onnx")
    swapped = Challenge(other, challenge.problems, challenge.points, challenge.values)
    assert [f.kind for f in wrong_claims(swapped, AskedMembers(()), tmp_path)] == ["wrong import"]


def test_a_finding_is_made_smaller_and_can_be_looked_at_again(tmp_path: Path) -> None:
    asked = AskedMembers((AskedMember("prover", Prover()),), seconds=1.0)
    course = Course(seed=1, networks=1, styles=("deep",))
    summary = run_attained(course, asked, tmp_path, quiet)
    ((finding, folder),) = summary.findings
    assert finding.subject == "prover"
    record = json.loads((folder / "finding.json").read_text())
    assert len(record["recipe"]["steps"]) < len(record["recipe_before"]["steps"])
    assert (folder / "network.onnx").is_file()
    assert (folder / "property.vnnlib").is_file()
    assert [f.kind for f in again(folder, asked)][:1] == [finding.kind]
    assert again(folder, honest()) == []


def test_honest_members_agree(tmp_path: Path) -> None:
    course = Course(seed=3, networks=3, styles=("small", "smooth", "operator"))
    summary = run_attained(course, honest(), tmp_path, quiet)
    assert summary.findings == []
    assert summary.networks == 3
    assert resumed(tmp_path, course).first == 3
    assert resumed(tmp_path, replace(course, seed=4)).first == 0


def test_the_operators_are_taken_in_turn() -> None:
    course = Course(styles=("operator",))
    used = {step.op for k in range(len(LAYERS)) for step in draw(course, k)[0].steps}
    assert set(LAYERS) <= used


def test_every_choice_of_an_option_is_a_member() -> None:
    labels = [m.label for m in variants(current_plugins().verifiers.get("crown"))]
    assert labels[:2] == ["crown", "crown:split=input"]
    assert all(m.verifier.name == "crown" for m in variants(current_plugins().verifiers.get("crown")))


@pytest.mark.parametrize("norm", [0.0, 1.0, 2.0, math.inf])
def test_points_of_random_sets_are_exactly_inside(norm: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        domain = random_set(rng, 5, 0.5, norm, cuts=1)
        far = certainly_inside(domain, domain.upper + 1)
        assert far is not None
        assert inside(domain, far)


def test_inside_is_exact() -> None:
    # 0.1 + 0.2 is above 0.3 in doubles, and so is its exact sum
    ball = Domain(np.zeros(2), np.ones(2), None, Ball(np.zeros(2), 0.3, 1.0))
    assert not inside(ball, np.array([0.1, 0.2]))
    assert inside(ball, np.array([0.1, math.nextafter(0.2, 0.0)]))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verifolio.cli.main import run

    current_plugins().verifiers.add(Prover)
    arguments = ["fuzz", "--kind", "attained", "--verifiers", "prover", "--networks", "1", "--json"]
    try:
        code = run([*arguments, "--output", str(tmp_path)])
        shown = json.loads(capsys.readouterr().out)
        assert code == 4
        assert shown["findings"][0]["subject"] == "prover"
        assert run(["fuzz", "--finding", shown["findings"][0]["folder"], "--json"]) == 4
    finally:
        installed_plugins.cache_clear()
    assert run(["fuzz", "--finding", str(tmp_path)]) == 2
    assert run(["fuzz", "--kind", "attained", "--kind", "dense"]) == 2


def test_a_network_that_is_refused_is_a_finding_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Recipe, path: Path) -> None:
        path.write_bytes(b"no network")
        raise InputError(str(path), "a network", "something else", "")

    monkeypatch.setattr(Recipe, "write", refuse)
    asked = AskedMembers((), (), (), 1.0, 0)
    summary = run_attained(Course(networks=2, stop_at_first=False), asked, tmp_path, lambda _: None)
    assert [(f.kind, f.subject) for f, _ in summary.findings] == [("refused", "import")] * 2
    assert all((folder / "network.onnx").is_file() for _, folder in summary.findings)
    assert [f.kind for f in again(summary.findings[0][1], asked)] == ["refused"]


@pytest.mark.parametrize(
    ("style", "module", "name"),
    [
        ("image", "propagate.patches", "PatchBounds.both_ends"),
        ("regions", "search.inputs.regions", "proved_at_once"),
        ("quantised", "verifier", "_on_cells"),
    ],
)
def test_a_style_reaches_the_code_that_it_is_for(
    style: Style, module: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Windows, batches of regions, levels of quantised inputs: `crown` uses them on some of the first networks."""
    place: Any = importlib.import_module(f"verifolio.plugins.crown.{module}")
    *outer, name = name.split(".")
    for part in outer:
        place = getattr(place, part)
    called: list[int] = []
    before = getattr(place, name)

    def counted(*given: Any) -> Any:
        called.append(1)
        return before(*given)

    monkeypatch.setattr(place, name, counted)
    asked = AskedMembers((variants(current_plugins().verifiers.get("crown"))[0],), seconds=1.0)
    for k in range(8):
        recipe, layout = draw(Course(seed=4, styles=(style,)), k)
        assert look(recipe, layout, asked) == []
        if called:
            return
    pytest.fail("no network of the style reaches it")
