"""Sends quick looks at one or many inputs to a worker, and turns what comes back into logged steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verifolio.model.answer import Witness
from verifolio.run import Job, Limits, Result
from verifolio.solve.oracle import Oracle
from verifolio.trust.conflict import meet_proof

from .search import Step
from .squeeze import FalseProof, Near, Proved, Squeezed, SqueezeTask, Start, run_squeeze, verdict_of

SQUEEZE = "squeeze"
STRIDE = 1000  # between the seeds of two looks


def seed_of(oracle: Oracle, steps: Sequence[Step]) -> int:
    """The seed of the next look: it depends on how many there were, so that a continued run repeats it."""
    return oracle.settings.seed + STRIDE * sum(s.kind == SQUEEZE for s in steps)


def look(
    starts: Sequence[Start],
    oracle: Oracle,
    tolerance: float,
    seconds: float,
    radii: int,
    again: bool = False,
) -> list[tuple[Step, Witness | None]]:
    """One job on all inputs, which share a network; their time is divided equally between them."""
    settings = oracle.settings
    task = SqueezeTask(tuple(starts), tolerance, settings.cores, settings.device, radii, again)
    limits = Limits(seconds, settings.memory, settings.cores, settings.grace)
    job = Job(run_squeeze, task, limits, starts[0].family.network.sha256)
    result = oracle.executor.submit(job).result()
    if result is None:
        return []
    found = [gathered(result, k, start) for k, start in enumerate(starts)]
    each = result.seconds / len(starts)
    return [
        (_step(start, one, each, seconds / len(starts)), one.witness)
        for start, one in zip(starts, found, strict=True)
    ]


def gathered(result: Result, place: int, start: Start) -> Squeezed:
    """What a job came to for one input, or what it had said before it was stopped; an alarm if it was wrong."""
    for m in result.messages:
        if isinstance(m, FalseProof) and m.place == place:
            meet_proof(start.family.query(m.radius), m.witness, m.prover)
    if isinstance(result.value, list):
        found = result.value[place]
        if isinstance(found, Squeezed):
            if found.error is not None:
                raise found.error
            return found
    proved = [m.radius for m in result.messages if isinstance(m, Proved) and m.place == place]
    near = [m.witness for m in result.messages if isinstance(m, Near) and m.place == place]
    reason = result.detail.splitlines()[0] if result.detail else str(result.end)
    return Squeezed(max([start.lower, *proved]), near[-1] if near else None, None, reason)


def _step(start: Start, found: Squeezed, seconds: float, timeout: float) -> Step:
    witness = found.witness
    step = Step(
        SQUEEZE,
        start.upper,
        verdict_of(found, start.upper),
        "attack+bounds",
        seconds,
        timeout,
        found.lower or None,
        elapsed=seconds,
        reason=found.reason,
        unstable=found.unstable,
    )
    if witness is None:
        return step
    distance = start.family.distance(witness.x)
    return replace(step, distance=distance, witness=witness.x, flags=witness.flags)
