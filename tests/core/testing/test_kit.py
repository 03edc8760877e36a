"""The kit fails those who lie, and passes those who are honest but weak."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.property import Points, Property, Reference, build_query
from verifolio.plugin.verifier import Context, Verifier
from verifolio.run.budget import Budget
from verifolio.testing import (
    EXAMPLES,
    BounderConformance,
    Classifier,
    EstimatorConformance,
    PropertyConformance,
    VerifierConformance,
)
from verifolio.testing.corpus import random_examples
from verifolio.testing.estimators import Clueless
from verifolio.testing.hostile_verifiers import NoPoint, Presumptuous, Raising, WrongPoint, WrongProof
from verifolio.testing.trial import attempt, miss
from verifolio.vnnlib import make_rows

Failure = pytest.fail.Exception
BY_NAME = {e.name: e for e in EXAMPLES}


def kit(make: type[Verifier], **more: Any) -> VerifierConformance:
    made: VerifierConformance = type("Kit", (VerifierConformance,), {"make": make, "patience": 1.0} | more)()
    return made


@pytest.mark.parametrize(
    ("liar", "example", "message"),
    [
        (WrongProof, "everywhere", "expected sat, got unsat"),
        (WrongPoint, "beyond-the-corner", "misses the condition"),
        (NoPoint, "everywhere", "without a point"),
        (Presumptuous, "nowhere", "can_prove = False"),
        (Raising, "everywhere", "the first line"),
    ],
)
def test_liars_fail(liar: type[Verifier], example: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=message):
        kit(liar).test_known_answer(liar(), BY_NAME[example], tmp_path)


class Sleeper(Clueless):
    """Does not look at the clock."""

    def run(self, problem: Problem, context: Context) -> Outcome:
        time.sleep(1.8)
        return Outcome.unknown("overslept")


def test_those_who_ignore_the_clock_fail() -> None:
    with pytest.raises(Failure, match="expected an end within"):
        kit(Sleeper).test_does_not_start_when_cancelled(Sleeper())


def test_those_who_know_nothing_fail_only_where_a_decision_is_due(tmp_path: Path) -> None:
    kit(Clueless).test_known_answer(Clueless(), BY_NAME["peaks"], tmp_path)
    with pytest.raises(Failure, match="got unknown"):
        kit(Clueless).test_known_answer(Clueless(), BY_NAME["everywhere"], tmp_path)
    with pytest.raises(Failure, match="got unknown"):
        kit(Clueless, complete=True).test_known_answer(Clueless(), BY_NAME["peaks"], tmp_path)


@pytest.mark.parametrize("example", [*EXAMPLES, *random_examples(4)], ids=lambda e: e.name)
def test_truths(example: Any, tmp_path: Path) -> None:
    """A grid of points agrees with every truth."""
    query: Query = example.query(tmp_path)
    found = False
    for problem in query.problems:
        low, high = problem.domain.lower, problem.domain.upper
        steps = 17 if len(low) < 3 else 7
        axes = [np.unique(np.linspace(a, b, steps)) for a, b in zip(low, high, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low))
        found |= any(miss(problem, x) <= 0 for x in grid)
    if example.expected == "unsat":
        assert not found or example.sharp  # `miss` takes strict rows as closed ones
    else:
        assert found or example.name.startswith("random")  # a grid may miss what is small


class TooTight(Bounder):
    """Bounds by a few samples: too tight."""

    name = "too-tight"

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        honest = current_plugins().bounders.get("interval")().bound(problems)
        halves = [{i: b.upper[i] / 2 + b.lower[i] / 2 for i in b.lower} for b in honest]
        return [Bounds(b.graph, b.domain, h, h, b.margins) for b, h in zip(honest, halves, strict=True)]


def test_bounds_that_are_too_tight_fail() -> None:
    judge = type("Kit", (BounderConformance,), {"make": TooTight})()
    with pytest.raises(Failure, match="outside its bounds"):
        judge.test_contains_what_happens(TooTight(), BY_NAME["peaks"].build.graph)  # type: ignore[attr-defined]


class Keeps(Property):
    """The label's score stays at least as high as that of every other class."""

    name = "keeps"

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        n = len(reference.x)
        label = n + reference.label
        others = [
            make_rows([({label: 1.0, n + k: -1.0}, 0.0)], strict=True) for k in range(3) if n + k != label
        ]
        return build_query(self, networks, reference, others)

    def satisfied(self, points: Points) -> Tensor:
        return self.loss(points) == 0

    def loss(self, points: Points) -> Tensor:
        own = points.y.gather(1, points.labels[:, None])[:, 0]
        return (points.y.max(dim=1).values - own).clamp(min=0)


class TestKeeps(PropertyConformance):
    make = Keeps


class Careless(Keeps):
    """Forgets one class at concrete points."""

    def loss(self, points: Points) -> Tensor:
        return super().loss(replace(points, y=points.y * torch.tensor([1.0, 1.0, 0.0])))


def test_definitions_that_disagree_fail(tmp_path: Path) -> None:
    class Kit(PropertyConformance):
        make = Careless

    nets = [Classifier(tmp_path).network()]
    references = [Reference(np.array([0.9, 0.2]), 0, 0.25)]
    with pytest.raises(Failure, match=r"violated, but no counterexample|holds, but a counterexample"):
        Kit().test_query_and_points_agree(Careless(), nets, references)


def test_an_attempt_shows_what_was_claimed(tmp_path: Path) -> None:
    trial = attempt(WrongPoint(), BY_NAME["everywhere"].query(tmp_path), 10.0)
    assert trial.report.verdict == "sat"
    assert len(trial.claims) == 1


def test_estimator_kit_needs_a_request(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="write one that returns a Request"):
        EstimatorConformance().request(tmp_path)
