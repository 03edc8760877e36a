"""A second look at a proof that cannot be checked: an attack that should fail if the proof is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verifolio.answer import Outcome
from verifolio.problem import Problem
from verifolio.verifier import Context

Array = NDArray[np.float64]


def audited(claim: Outcome, problem: Problem, context: Context, seconds: float) -> Outcome:
    """The claimed proof, or the counterexample that refutes it; other claims pass as they are."""
    if claim.verdict != "unsat" or seconds <= 0:
        return claim
    point = _refute(problem, context, seconds)
    if point is None:
        return claim
    context.report("claimed a proof that a replayed point refutes")
    return Outcome.found(point, stats={**claim.stats, "refuted_claim": "unsat"})


def _refute(problem: Problem, context: Context, seconds: float) -> Array | None:
    from verifolio.attack import attack_many

    results = attack_many(
        [problem],
        lambda _, x: context.check(x),
        context.budget.share(seconds),
        seed=context.seed,
        candidates=context.evidence.candidates,
        first=True,
        device=context.device,
    )
    return results[0].point
