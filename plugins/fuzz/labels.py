"""Ask estimators whether networks keep a label; points that exact arithmetic knows to be fooled judge the claims."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError, SoundnessAlarm, UnsupportedNetwork
from verifolio.graph import Graph
from verifolio.model.problem import Ball, Domain
from verifolio.model.query import product_graph
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import Claim, Estimator
from verifolio.plugin.property import Reference
from verifolio.solve.oracle import Oracle
from verifolio.testing.attained import Intervals
from verifolio.testing.recipe import Recipe
from verifolio.testing.trial import evaluate
from verifolio.vnnlib import make_rows

from .challenge import Layout, exact_values
from .examine import Finding
from .points import float32_numbers, worst_points

if TYPE_CHECKING:
    from .wrong_claims import AskedMembers

Array = NDArray[np.float64]
RADII = tuple(4.0**k for k in range(-4, 3))  # tried in turn until the networks are fooled
TRIES = 8  # for networks that agree
HALVINGS = 30  # of the way from the input to a point that fools
SPARE = 1.0 + 2.0**-20  # just beyond the point where doubles see it fooled


@dataclass(frozen=True, eq=False)
class Scene:
    """Networks, an input with a label, and points near it with the exact outputs of every network.

    The radius of the reference is just above the distance of the first point.
    """

    networks: tuple[Network, ...]
    reference: Reference
    points: tuple[Array, ...]
    outputs: tuple[tuple[Intervals, ...], ...]


def make_scene(recipe: Recipe, layout: Layout, folder: Path) -> Scene | None:
    """One network or two that agree about an input, and what fools them; None where nothing is found that does."""
    rng = np.random.default_rng(layout.seed)
    x = float32_numbers(rng.normal(size=recipe.inputs))
    networks = agreeing(recipe, x, int(rng.integers(1, 3)), folder)
    graphs, label = [n.graph for n in networks], winner(networks[0], x)
    norm = layout.norm or math.inf
    sets = [graphs, *([g] for g in graphs)] if len(graphs) > 1 else [graphs]
    found = [p for g in sets for p in [closest_fooled(g, x, label, norm, rng)] if p is not None]
    values = [[exact_values(g, p) for g in graphs] for p in found]
    outputs = tuple(
        tuple(v[g.output] for g, v in zip(graphs, each, strict=True) if v is not None) for each in values
    )
    if not found or any(len(each) < len(graphs) for each in outputs):
        return None
    radius = math.nextafter(distance_above(found[0], x, norm), math.inf)
    reach = math.inf if len(networks) > 1 else float(np.ceil(np.abs(x).max() + 4 * max(RADII)))
    reference = Reference(x, label, radius, norm, -reach, reach)
    return Scene(networks, reference, tuple(found), outputs)


def agreeing(recipe: Recipe, x: Array, count: int, folder: Path) -> tuple[Network, ...]:
    """Networks of the same layers with other weights each, as many of `count` as a few tries give."""
    first = member(recipe, 0).write(folder / "network-0.onnx")
    found = [first]
    for k in range(1, TRIES):
        if len(found) == count:
            break
        other = member(recipe, k).write(folder / f"network-{len(found)}.onnx")
        if winner(other, x) == winner(first, x):
            found.append(other)
    return tuple(found)


def winner(network: Network, x: Array) -> int:
    return int(network.replay(x.astype(np.float32)).argmax())


def member(recipe: Recipe, k: int) -> Recipe:
    """The recipe with two outputs at least; number k has other weights."""
    steps = tuple(replace(s, seed=s.seed + k) for s in recipe.steps)
    return replace(recipe, outputs=max(2, recipe.outputs), steps=steps, seed=recipe.seed + k)


def closest_fooled(
    graphs: Sequence[Graph], x: Array, label: int, norm: float, rng: np.random.Generator
) -> Array | None:
    """A point where doubles see all networks fooled: of the least radius with one, moved as close as it may be."""
    whole, n, m = product_graph(list(graphs), shared_input=True), len(x), graphs[0].output_size
    conditions = [
        make_rows([({n + k + c: w for k in range(0, len(graphs) * m, m) for c, w in pair}, 0.0)])
        for other in range(m)
        for pair in [((label, 1.0), (other, -1.0))]
        if other != label
    ]
    for radius in RADII:
        ball = None if math.isinf(norm) else Ball(x, radius, norm)
        far = worst_points(whole, Domain(x - radius, x + radius, None, ball), conditions, rng)
        far = far[fooled_here(graphs, far, label)]
        if len(far):
            return nearer(graphs, x, far[0], label)
    return None


def fooled_here(graphs: Sequence[Graph], points: Array, label: int) -> NDArray[np.bool_]:
    scores = [evaluate(g, points)[g.output] for g in graphs]
    each = [np.delete(s, label, axis=1).max(axis=1) > s[:, label] for s in scores]
    return np.asarray(np.all(each, axis=0))


def nearer(graphs: Sequence[Graph], x: Array, far: Array, label: int) -> Array:
    """Towards x by bisection, and a hair back."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fooled = fooled_here(graphs, (x + middle * (far - x))[None], label)[0]
        low, high = (low, middle) if fooled else (middle, high)
    return np.asarray(x + min(1.0, high * SPARE) * (far - x))


def powers(a: Array, b: Array, norm: float) -> Fraction:
    """The distance of two points, for the norm 2 its square, exactly."""
    gaps = [abs(Fraction(float(p)) - Fraction(float(q))) for p, q in zip(a, b, strict=True)]
    if math.isinf(norm):
        return max(gaps)
    return sum((g if norm == 1 else g * g for g in gaps), Fraction(0))


def distance_above(a: Array, b: Array, norm: float) -> float:
    """A double that the distance does not exceed, one of the least."""
    exactly = powers(a, b, norm)
    found = math.sqrt(exactly) if norm == 2 else float(exactly)
    while (Fraction(found) ** 2 if norm == 2 else Fraction(found)) < exactly:
        found = math.nextafter(found, math.inf)
    return found


def label_findings(scene: Scene, members: AskedMembers, cls: type[Estimator]) -> list[Finding]:
    """One estimator on one scene."""
    started, said = time.monotonic(), "refused"
    found: list[Finding] = []
    try:
        asked = cls.about_labels(scene.networks, scene.reference, members.seconds)
        if asked is not None:
            estimator, request = asked
            with Oracle(executor="inline", timeout=members.seconds, seed=members.seed) as oracle:
                result = estimator.run(request, oracle)
            claims = estimator.claims(request, result)
            said = "claims" if claims else "unknown"
            texts = [t for c in claims for t in [untrue_claim(scene, c)] if t is not None]
            found = [Finding("unsound claim", cls.name, text) for text in texts[:1]]
    except (InputError, UnsupportedNetwork):
        pass  # a question that does not fit
    except SoundnessAlarm as alarm:
        found = [Finding("alarm", cls.name, str(alarm))]
    except Exception as error:  # whatever an estimator raises is a finding
        found = [Finding("error", cls.name, f"{type(error).__name__}: {error}")]
    members.count(cls.name, said, time.monotonic() - started)
    return found


def untrue_claim(scene: Scene, claim: Claim) -> str | None:
    """What a point shows to be wrong about a claim."""
    reference = scene.reference
    for point, outputs in zip(scene.points, scene.outputs, strict=True):
        away = powers(point, reference.x, reference.norm)
        near = math.isinf(claim.radius) or away < Fraction(claim.radius) ** (2 if reference.norm == 2 else 1)
        if near and broken(claim, outputs, reference.label):
            distance = distance_above(point, reference.x, reference.norm)
            weights = ", ".join(str(w) for w in claim.weights)
            kind = "the average" if claim.averaged else f"weights ({weights}) above {claim.most}"
            return f"claims {kind} not to be fooled within {claim.radius:.9g}; a point is {distance:.9g} away"
    return None


def broken(claim: Claim, outputs: Sequence[Intervals], label: int) -> bool:
    """Whether these outputs are what a claim rules out, certainly."""
    if claim.averaged:
        low, high = (
            [
                sum(w * v for w, v in zip(claim.weights, column, strict=True))
                for column in zip(*ends, strict=True)
            ]
            for ends in ([o.lower for o in outputs], [o.upper for o in outputs])
        )
        return any(v > high[label] for c, v in enumerate(low) if c != label)
    fooled = [any(v > o.upper[label] for c, v in enumerate(o.lower) if c != label) for o in outputs]
    return sum((w for w, f in zip(claim.weights, fooled, strict=True) if f), Fraction(0)) > claim.most
