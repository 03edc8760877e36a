"""The campaign `attained`: networks of every operator and size, thresholds at what a point attains."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from verifolio.errors import InputError
from verifolio.run.budget import Budget
from verifolio.testing.operators import LAYERS
from verifolio.testing.recipe import TURNS, Recipe, RecipeStep, Style, random_recipe, smaller

from .campaign import SHRINK_SECONDS, Summary
from .challenge import Challenge, Layout, make_challenge, random_layout, simpler
from .examine import Finding, same
from .labels import label_findings, make_scene
from .wrong_claims import AskedMembers, wrong_claims

TRIES = 2  # of a smaller network, each with other random sets
PROGRESS = "progress.json"
IMPORT = "import"  # the subject of a finding about a network that is refused


@dataclass(frozen=True)
class Course:
    """Which networks: numbers `first` onwards of a seed, for so long; `styles` are taken in turn."""

    seed: int = 0
    first: int = 0
    networks: int = 0
    minutes: float = float("inf")
    styles: tuple[Style, ...] = TURNS
    stop_at_first: bool = True


def run_attained(course: Course, asked: AskedMembers, out: Path, report: Callable[[str], None]) -> Summary:
    """One challenge after another; a finding is made smaller and written to a folder of its own."""
    budget, summary, k = Budget(course.minutes * 60.0), Summary(), course.first
    while not budget.expired() and not (course.networks and k >= course.first + course.networks):
        recipe, layout = draw(course, k)
        for finding in look(recipe, layout, asked.next(budget.elapsed)):
            report(f"network {k}, {budget.elapsed:.0f} s: {finding.kind}: {finding.subject}: {finding.text}")
            folder = out / f"{course.seed}-{k}-{_word(finding.subject)}-{_word(finding.kind)}"
            write_finding(recipe, layout, finding, asked, folder)
            summary.findings.append((finding, folder))
            if course.stop_at_first:
                break
        k += 1
        summary.networks, summary.seconds = k - course.first, budget.elapsed
        _remember(out, course, k)
        report(f"{k} networks, {len(summary.findings)} findings")
        if summary.findings and course.stop_at_first:
            break
    summary.problems = summary.networks
    summary.spent.update(asked.spent)
    for name, tally in asked.verdicts.items():
        summary.refused[name] += tally.pop("refused", 0)
        summary.decided[name] += sum(tally.pop(word, 0) for word in ("sat", "unsat", "bounds", "claims"))
        summary.undecided[name] += sum(tally.values())
    return summary


def draw(course: Course, k: int) -> tuple[Recipe, Layout]:
    """Network k; the operators of the importer's table are taken in turn."""
    rng = np.random.default_rng((course.seed, k))
    names, style = sorted(LAYERS), course.styles[k % len(course.styles)]
    operator = names[(k // len(course.styles)) % len(names)]
    return random_recipe(rng, style, operator), random_layout(rng, style == "regions")


def look(recipe: Recipe, layout: Layout, asked: AskedMembers) -> list[Finding]:
    """All that is wrong about one network."""
    with TemporaryDirectory() as scratch:
        try:
            challenge = make_challenge(recipe, layout, Path(scratch))
        except InputError as error:  # every recipe is a network that the importer claims to know
            return [Finding("refused", IMPORT, str(error).replace(scratch, "."))]
        found = [] if challenge is None else wrong_claims(challenge, asked, Path(scratch))
        scene = make_scene(recipe, layout, Path(scratch)) if asked.estimators else None
        if scene is not None:
            found += [f for cls in asked.estimators for f in label_findings(scene, asked, cls)]
        return found


def only(asked: AskedMembers, finding: Finding) -> AskedMembers:
    """The asked with the subject alone."""
    members = tuple(m for m in asked.members if m.label == finding.subject)
    bounders = tuple(b for b in asked.bounders if b.name == finding.subject)
    estimators = tuple(e for e in asked.estimators if e.name == finding.subject)
    return replace(asked, members=members, bounders=bounders, estimators=estimators, spent={}, verdicts={})


def shrink(
    recipe: Recipe, layout: Layout, finding: Finding, asked: AskedMembers, budget: Budget
) -> tuple[Recipe, Layout, Finding]:
    """Greedy: any smaller network or plainer question on which the subject is still wrong."""
    few, improved = only(asked, finding), True
    while improved and not budget.expired():
        improved = False
        tries = [(recipe, plain) for plain in simpler(layout)]
        tries += [(r, replace(layout, seed=layout.seed + t)) for r in smaller(recipe) for t in range(TRIES)]
        for less, plainer in tries:
            if budget.expired():
                break
            still = _still(less, plainer, finding, few)
            if still is not None:
                recipe, layout, finding, improved = less, plainer, still, True
                break
    return recipe, layout, finding


def _still(recipe: Recipe, layout: Layout, finding: Finding, asked: AskedMembers) -> Finding | None:
    try:
        return same(look(recipe, layout, asked), finding)
    except Exception:  # a recipe that fits no layer any more is no smaller network
        return None


def write_finding(
    recipe: Recipe, layout: Layout, finding: Finding, asked: AskedMembers, folder: Path
) -> None:
    """The smallest question found, as files, with the command that shows it again."""
    before = recipe
    recipe, layout, finding = shrink(recipe, layout, finding, asked, Budget(SHRINK_SECONDS))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    about_labels = finding.subject in {e.name for e in asked.estimators}
    question = _write_scene if about_labels else _write_challenge
    if finding.subject == IMPORT:
        question = _write_network
    record = {
        "finding": asdict(finding),
        "recipe": asdict(recipe),
        "recipe_before": asdict(before),
        "layout": asdict(layout),
        "again": "verifolio fuzz --finding .",
        **question(recipe, layout, finding, folder),
    }
    (folder / "finding.json").write_text(json.dumps(record, indent=2) + "\n")


def _write_network(recipe: Recipe, layout: Layout, finding: Finding, folder: Path) -> dict[str, Any]:
    with suppress(InputError):
        recipe.write(folder / "network.onnx")
    return {"command": "verifolio network show network.onnx"}


def _write_challenge(recipe: Recipe, layout: Layout, finding: Finding, folder: Path) -> dict[str, Any]:
    challenge = make_challenge(recipe, layout, folder)
    if challenge is None:
        raise RuntimeError("a challenge that was made once cannot be made again")
    challenge.query(folder)
    label, _, options = finding.subject.partition(":")
    chosen = f" --option {options}" if options else ""
    return {
        "point": challenge.point.tolist(),
        "neurons": challenge.graph.neurons,
        "command": f"verifolio verify network.onnx property.vnnlib --verifier {label}{chosen}",
        "sets": [_described(challenge, k) for k in range(len(challenge.problems))],
    }


def _write_scene(recipe: Recipe, layout: Layout, finding: Finding, folder: Path) -> dict[str, Any]:
    scene = make_scene(recipe, layout, folder)
    if scene is None:
        raise RuntimeError("a question that was made once cannot be made again")
    reference = scene.reference
    return {
        "input": reference.x.tolist(),
        "label": reference.label,
        "radius": reference.epsilon,
        "norm": str(reference.norm),
        "points": [point.tolist() for point in scene.points],
        "neurons": [n.graph.neurons for n in scene.networks],
    }


def _described(challenge: Challenge, k: int) -> dict[str, Any]:
    domain = challenge.problems[k].domain
    ball = domain.ball
    return {
        "lower": domain.lower.tolist(),
        "upper": domain.upper.tolist(),
        "ball": None
        if ball is None
        else {"centre": ball.centre.tolist(), "radius": ball.radius, "norm": ball.norm},
    }


def again(folder: Path, asked: AskedMembers) -> list[Finding]:
    """Examine a written finding once more; empty if it is mended."""
    record = json.loads((folder / "finding.json").read_text())
    steps = tuple(RecipeStep(**step) for step in record["recipe"].pop("steps"))
    finding = Finding(**record["finding"])
    few = only(asked, finding)
    return look(Recipe(**record["recipe"], steps=steps), Layout(**record["layout"]), few)


def resumed(out: Path, course: Course) -> Course:
    """The course from where an earlier run of the same seed stopped."""
    path = out / PROGRESS
    if not path.is_file():
        return course
    record = json.loads(path.read_text())
    return replace(course, first=record["next"]) if record["seed"] == course.seed else course


def _remember(out: Path, course: Course, k: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / PROGRESS).write_text(json.dumps({"seed": course.seed, "next": k}) + "\n")


def _word(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)
