"""Estimators are judged by points that exact arithmetic knows to be fooled: honest ones pass, others are caught."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

from verifolio.onnx_import.network import Network
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.estimator import Claim, Estimator, NoRequest, OracleLike, Progress, silent
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.property import Reference
from verifolio.plugins.crown.verifier import Crown
from verifolio.plugins.fuzz.attained import Course, again, run_attained
from verifolio.plugins.fuzz.challenge import Layout
from verifolio.plugins.fuzz.labels import (
    Scene,
    broken,
    distance_above,
    label_findings,
    make_scene,
    powers,
    untrue_claim,
)
from verifolio.plugins.fuzz.wrong_claims import AskedMembers
from verifolio.testing.attained import attained
from verifolio.testing.hostile_verifiers import WrongBounds
from verifolio.testing.recipe import Recipe, RecipeStep

WIDE = Recipe(
    4,
    2,
    (RecipeStep("dense", 1, 20), RecipeStep("Relu", 2), RecipeStep("dense", 3, 10), RecipeStep("Clip", 4)),
)


@dataclass(frozen=True)
class Said:
    """A radius, and how many networks it is about."""

    radius: float
    networks: int


class Boast(Estimator):
    """Deliberately broken: claims a little more than the radius it is asked about."""

    name: ClassVar[str] = "boast"

    def run(self, request: Said, oracle: OracleLike, progress: Progress = silent) -> Said:
        return request

    @classmethod
    def about_labels(
        cls, networks: Sequence[Network], reference: Reference, seconds: float
    ) -> tuple[Self, Said]:
        return cls(), Said(reference.epsilon, len(networks))

    def claims(self, request: Said, result: Said) -> tuple[Claim, ...]:
        return (Claim(result.radius, (Fraction(1),) * result.networks),)


class Broken(Boast):
    """Deliberately broken: raises."""

    name: ClassVar[str] = "broken"

    def run(self, request: Said, oracle: OracleLike, progress: Progress = silent) -> Said:
        raise KeyError("no such thing")


def scene_of(seed: int, folder: Path, count: int, norm: float = 0.0) -> Scene:
    """The first scene from a seed on with so many networks."""
    for k in range(seed, seed + 40):
        scene = make_scene(WIDE, Layout(k, norm=norm), folder)
        if scene is not None and len(scene.networks) == count:
            return scene
    raise AssertionError("no scene")


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_a_scene_is_what_it_says(norm: float, tmp_path: Path) -> None:
    scene = scene_of(0, tmp_path, 1, norm)
    reference, (point,), ((outputs,),) = scene.reference, scene.points, scene.outputs
    label = reference.label
    assert reference.norm == norm
    assert scene.networks[0].replay(reference.x.astype(np.float32)).argmax() == label
    exact = attained(scene.networks[0].graph, point)[scene.networks[0].graph.output]
    assert exact.lower == outputs.lower
    assert exact.lower[1 - label] > exact.upper[label]
    exponent = 2 if norm == 2 else 1
    assert powers(point, reference.x, norm) < Fraction(reference.epsilon) ** exponent
    before = math.nextafter(math.nextafter(reference.epsilon, 0.0), 0.0)
    assert Fraction(before) ** exponent < powers(point, reference.x, norm)
    # no closer point on the way is fooled, but for a hair
    closer = reference.x + (point - reference.x) * (1 - 1e-5)
    values = attained(scene.networks[0].graph, closer)[scene.networks[0].graph.output]
    assert values.upper[1 - label] < values.lower[label]


def test_distances_are_exact() -> None:
    zero, point = np.zeros(2), np.array([0.1, 0.2])
    assert powers(point, zero, 1.0) == Fraction(0.1) + Fraction(0.2)
    assert powers(point, zero, 2.0) == Fraction(0.1) ** 2 + Fraction(0.2) ** 2
    assert powers(-point, zero, math.inf) == Fraction(0.2)
    for norm in (1.0, 2.0, math.inf):
        exponent = 2 if norm == 2 else 1
        found, exactly = distance_above(point, zero, norm), powers(point, zero, norm)
        assert Fraction(math.nextafter(found, 0.0)) ** exponent < exactly <= Fraction(found) ** exponent


def test_claims_are_broken_by_the_weights_of_fooled_networks_and_by_averages(tmp_path: Path) -> None:
    scene = scene_of(0, tmp_path, 2)
    label, one, none = scene.reference.label, Fraction(1), Fraction(0)
    assert len(scene.points) == 3
    for outputs, sure in zip(scene.outputs, [(0, 1), (0,), (1,)], strict=True):
        fooled = [o.lower[1 - label] > o.upper[label] for o in outputs]
        assert all(fooled[k] for k in sure)
        assert broken(Claim(1.0, (one, none)), outputs, label) == fooled[0]
        assert broken(Claim(1.0, (none, one)), outputs, label) == fooled[1]
        assert not broken(Claim(1.0, (one, none), one), outputs, label)
        assert broken(Claim(1.0, (one / 2, one / 2), one / 2), outputs, label) == all(fooled)
        average = [sum(o.nearest[c] for o in outputs) for c in range(2)]
        wrong = average[1 - label] > average[label]
        assert broken(Claim(1.0, (one, one), averaged=True), outputs, label) == wrong


def test_only_points_inside_the_claimed_radius_count(tmp_path: Path) -> None:
    scene = scene_of(0, tmp_path, 1)
    radius, weights = scene.reference.epsilon, (Fraction(1),)
    assert untrue_claim(scene, Claim(radius, weights)) is not None
    assert untrue_claim(scene, Claim(math.inf, weights)) is not None
    assert untrue_claim(scene, Claim(radius * (1 - 1e-9), weights)) is None


def test_boasts_and_exceptions_are_findings(tmp_path: Path) -> None:
    scene = scene_of(0, tmp_path, 2)
    asked = AskedMembers((), (), (Boast, Broken))
    assert [f.kind for f in label_findings(scene, asked, Boast)] == ["unsound claim"]
    (error,) = label_findings(scene, asked, Broken)
    assert (error.kind, error.text) == ("error", "KeyError: 'no such thing'")
    assert asked.verdicts["boast"] == {"claims": 1}


@pytest.mark.parametrize("count", [1, 2])
def test_every_estimator_is_asked_and_honest(count: int, tmp_path: Path) -> None:
    asked = AskedMembers((), (), tuple(current_plugins().estimators.usable().values()), seconds=2.0)
    for seed in (0, 40):
        scene = scene_of(seed, tmp_path, count)
        for cls in asked.estimators:
            assert label_findings(scene, asked, cls) == []
    single = {"bracket", "binary", "k-binary", "closest", "satisfaction"}
    busy = {name for name, tally in asked.verdicts.items() if set(tally) - {"refused"}}
    assert busy == (single | {"ensemble-attack"} if count == 1 else {"ensemble-attack", "ensemble-selection"})


@pytest.mark.parametrize("name", ["bracket", "ensemble-attack", "ensemble-selection", "satisfaction"])
def test_bounds_that_are_wrong_show_in_what_is_estimated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever believes a bounder is caught, by its own second look or by the point."""
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    wrong = WrongBounds()
    monkeypatch.setattr(
        Crown, "bound_many", lambda self, problems, _: wrong.bound_many(problems, BatchContext())
    )
    count = 2 if name == "ensemble-selection" else 1
    cls = current_plugins().estimators.get(name)
    asked = AskedMembers((), (), (cls,), seconds=2.0)
    kinds = [f.kind for seed in (0, 40) for f in label_findings(scene_of(seed, tmp_path, count), asked, cls)]
    assert set(kinds) <= {"alarm", "unsound claim"}
    assert kinds or name == "satisfaction"  # which has no bounders of its own


def test_a_finding_is_written_and_looked_at_again(tmp_path: Path) -> None:
    asked = AskedMembers((), (), (Boast,), seconds=1.0)
    course = Course(seed=5, first=3, networks=1, styles=("small",))
    summary = run_attained(course, asked, tmp_path, lambda _: None)
    ((finding, folder),) = summary.findings
    assert (finding.kind, finding.subject) == ("unsound claim", "boast")
    record = json.loads((folder / "finding.json").read_text())
    assert {"input", "label", "radius", "norm", "points"} <= set(record)
    assert (folder / "network-0.onnx").is_file()
    assert [f.kind for f in again(folder, asked)] == ["unsound claim"]


def test_estimators_claim_nothing_unless_they_say_so() -> None:
    class Quiet(Estimator):
        name = "quiet"

        def run(self, request: NoRequest, oracle: OracleLike, progress: Progress = silent) -> NoRequest:
            return request

    assert Quiet().claims(NoRequest(), NoRequest()) == ()
