"""Random problems whose distance to the boundary is known: found on one side, never claimed on the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio.model.answer import Verdict, Witness
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.run.budget import Budget
from verifolio.testing.generate import KINDS, Shape, generate, write_problem
from verifolio.trust.referee import judge_counterexample


@pytest.mark.parametrize("seed", range(24))
def test_the_verdict_follows_the_distance(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    shape = Shape(KINDS[seed % 4], inputs=2 + seed % 2, width=4)
    distance = (1e-3, 1e-2, -1e-4)[seed % 3]
    disjuncts, rows, cuts = (int(v) for v in rng.integers((1, 1, 0), (4, 4, 3)))
    made = generate(rng, shape, distance, disjuncts, rows, cuts, mixed=seed % 5 == 0)
    if made.expected == Verdict.UNKNOWN:
        pytest.skip("the generated input set is empty")
    query = write_problem(made.problem, tmp_path)
    verifier = current_plugins().verifiers.get("pgd")()
    seconds = 10.0 if distance > 0 else 0.3
    context = Context(
        budget=Budget(seconds), check=lambda x: isinstance(judge_counterexample(query, x), Witness)
    )
    outcomes = verifier.run_many(query.problems, context)
    found = [o.point for o in outcomes if o.point is not None]
    assert bool(found) == (made.expected == Verdict.SAT)
    assert all(isinstance(judge_counterexample(query, x), Witness) for x in found)
