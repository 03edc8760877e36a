"""Quick looks at one or many inputs through the oracle, by batched attacks and bounds, as logged steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verifolio.model.answer import Verdict, Witness
from verifolio.model.radius import RadiusBounds, RadiusStart
from verifolio.plugin.estimator import OracleLike

from .radius_search import SearchStep

LOOK = "squeeze"  # the kind of such a step, as ledgers have it
STRIDE = 1000  # between the seeds of two looks


def seed_of(oracle: OracleLike, steps: Sequence[SearchStep]) -> int:
    """The seed of the next look: it depends on how many there were, so that a continued run repeats it."""
    return oracle.seed + STRIDE * sum(s.kind == LOOK for s in steps)


def look(
    starts: Sequence[RadiusStart],
    oracle: OracleLike,
    tolerance: float,
    seconds: float,
    radii: int,
    again: bool = False,
) -> list[tuple[SearchStep, Witness | None]]:
    """One look at all inputs, which share a network; their time is divided equally between them.

    Nothing is logged where the portfolio has nobody who attacks or bounds many radii.
    """
    found = oracle.radius_bounds(starts, tolerance, seconds, radii, again)
    if not any(one.finder or one.prover for one in found):
        return []
    each = seconds / len(starts)
    return [(_step(s, one, each), one.witness) for s, one in zip(starts, found, strict=True)]


def _step(start: RadiusStart, found: RadiusBounds, timeout: float) -> SearchStep:
    witness = found.witness
    step = SearchStep(
        LOOK,
        start.upper,
        verdict_of(found, start.upper),
        "+".join(dict.fromkeys(n for n in (found.finder, found.prover) if n)),
        found.seconds,
        timeout,
        found.lower or None,
        elapsed=found.seconds,
        reason=found.reason,
        unstable=found.unstable,
    )
    if witness is None:
        return step
    distance = start.around.distance(witness.x)
    return replace(step, distance=distance, witness=witness.x, flags=witness.flags)


def verdict_of(found: RadiusBounds, upper: float) -> Verdict:
    """How the look is logged."""
    if found.witness is not None:
        return Verdict.SAT
    return Verdict.UNSAT if found.lower >= upper else Verdict.UNKNOWN
