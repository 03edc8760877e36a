"""fgsm and pgd as verifiers: claims replay, failures are UNKNOWN, evidence flows both ways."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verifolio.graph import Dense, GraphBuilder
from verifolio.model.answer import Verdict, Witness
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import Query
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context, Verifier
from verifolio.run.budget import Budget
from verifolio.trust.referee import judge_counterexample
from verifolio.vnnlib import make_rows

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "networks"
PUBLIC = Path(os.environ.get("VERIFOLIO_SHARED", ROOT.parent / "shared" / "data")) / "public"
NAMES = ("fgsm", "pgd")
INSTANCES = list(csv.DictReader((EXAMPLES / "instances.csv").open(newline="")))


def make(name: str, **options: object) -> Verifier:
    cls = current_plugins().verifiers.get(name)
    return cls(cls.Options(**options))


def problem(rhs: float, size: int = 2) -> Problem:
    builder = GraphBuilder(size)
    graph = builder.finish(builder.add(Dense(size, np.zeros(size), np.eye(size)), 0))
    domain = Domain(np.full(size, -1.0), np.full(size, 1.0))
    return Problem(graph, domain, (make_rows([({size: 1.0}, rhs)]),))


def falsify(query: Query, verifier: Verifier, seconds: float = 5.0) -> Verdict:
    context = Context(
        budget=Budget(seconds), check=lambda x: isinstance(judge_counterexample(query, x), Witness)
    )
    outcomes = verifier.run_many(query.problems, context)
    for outcome in outcomes:
        if outcome.point is not None:
            assert isinstance(judge_counterexample(query, outcome.point), Witness)
    return Verdict.SAT if any(o.point is not None for o in outcomes) else outcomes[0].verdict


@pytest.mark.parametrize("name", NAMES)
def test_they_falsify_and_never_prove(name: str) -> None:
    cls = current_plugins().verifiers.get(name)
    assert cls.can_falsify
    assert not cls.can_prove


@pytest.mark.parametrize("row", INSTANCES, ids=lambda r: Path(r["vnnlib"]).stem)
def test_example_properties(row: dict[str, str]) -> None:
    query = Query.from_files([EXAMPLES / row["onnx"]], EXAMPLES / row["vnnlib"])
    quick = make("pgd", rounds=2, restarts=4, steps=20, few_inputs=0)
    assert falsify(query, quick) == (Verdict.SAT if row["expected"] == "sat" else Verdict.UNKNOWN)


def test_fgsm_on_an_example() -> None:
    row = next(r for r in INSTANCES if r["expected"] == "sat")
    query = Query.from_files([EXAMPLES / row["onnx"]], EXAMPLES / row["vnnlib"])
    assert falsify(query, make("fgsm", steps=10)) == Verdict.SAT


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_attack_is_unknown_and_says_how_near_it_came(name: str) -> None:
    context = Context(check=lambda _: False, budget=Budget(1.0))
    outcome = make(name).run(problem(-1.5), context)
    assert outcome.verdict == Verdict.UNKNOWN
    assert "0.5" in outcome.reason
    assert len(context.evidence.candidates) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_point_that_does_not_replay_is_not_claimed(name: str) -> None:
    options = {"rounds": 1} if name == "pgd" else {}
    outcome = make(name, **options).run(problem(0.5), Context(check=lambda _: False))
    assert outcome.verdict == Verdict.UNKNOWN
    assert outcome.point is None


@pytest.mark.parametrize("name", NAMES)
def test_evidence_is_tried_first(name: str) -> None:
    asked: list[np.ndarray] = []
    evidence = Evidence(candidates=[np.array([-0.5, 0.25])])
    context = Context(evidence=evidence, check=lambda x: not asked.append(x))  # type: ignore[func-returns-value]
    outcome = make(name).run(problem(-0.25), context)
    assert outcome.verdict == Verdict.SAT
    assert np.array_equal(asked[0], [-0.5, 0.25])


@pytest.mark.parametrize("name", NAMES)
def test_unbounded_inputs_are_refused(name: str) -> None:
    domain = Domain(np.array([-np.inf, 0.0]), np.ones(2))
    reason = make(name).refuses(problem(0.0).with_domain(domain))
    assert reason is not None and "finite" in reason
    assert make(name).refuses(problem(0.0)) is None


@pytest.mark.parametrize("name", NAMES)
def test_an_expired_budget_ends_it(name: str) -> None:
    outcome = make(name).run(problem(-1.5), Context(budget=Budget(0.0)))
    assert outcome.verdict == Verdict.UNKNOWN


def test_cancellation_is_obeyed() -> None:
    context = Context(budget=Budget(stop=lambda: True))
    assert make("pgd", rounds=10**6).run(problem(-1.5), context).verdict == Verdict.UNKNOWN


def test_equal_seeds_give_equal_points() -> None:
    row = next(r for r in INSTANCES if r["expected"] == "sat")
    query = Query.from_files([EXAMPLES / row["onnx"]], EXAMPLES / row["vnnlib"])

    def point() -> np.ndarray:
        context = Context(seed=5, check=lambda x: isinstance(judge_counterexample(query, x), Witness))
        found = make("pgd").run(query.problems[0], context).point
        assert found is not None
        return found

    assert np.array_equal(point(), point())


def test_registering_imports_no_torch() -> None:
    code = (
        "import sys; from verifolio.plugins import attack; from verifolio.plugin.registry import Registry; "
        "attack.register_verifiers(Registry('verifier')); sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


SAMPLE = (
    "acasxu_047",
    "acasxu_184",
    "sat_relu_001",
    "safenlp_001",
    "reach_prob_density_002",
    "rl_benchmarks_015",
)


@pytest.mark.skipif(not PUBLIC.is_dir(), reason=f"no public instances at {PUBLIC}; set VERIFOLIO_SHARED")
@pytest.mark.parametrize("name", SAMPLE)
def test_known_counterexamples_are_found(name: str) -> None:
    with (PUBLIC / "instances.csv").open(newline="") as file:
        row = next(r for r in csv.DictReader(file) if r["id"] == name)
    query = Query.from_files([PUBLIC / row["onnx"]], PUBLIC / row["vnnlib"])
    assert falsify(query, make("pgd"), seconds=20) == Verdict.SAT
