"""What a search on neurons leaves behind for a certificate."""

from __future__ import annotations

from typing import Any

import torch

from verifolio.certificates.trace import condition_arrays, save_trace
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.plugins.crown.search.neurons.record import ProofRecord
from verifolio.plugins.crown.search.neurons.stages import StagedSearch
from verifolio.plugins.crown.search.root import Root


def phase_arrays(problem: Problem, root: Root, record: ProofRecord) -> dict[str, Any]:
    """The closed subproblems of a search on neurons, in terms of the problem's disjuncts and the graph's neurons."""
    arrays: dict[str, Any] = condition_arrays(problem) | {"open": root.disjuncts.cpu().numpy()}
    if record.full():
        return arrays
    if root.origin is not None:
        arrays["origin"] = root.origin
    return arrays | {name: torch.cat(p).numpy() for name, p in record.parts.items() if p}


def save_phases(search: StagedSearch, outcome: Outcome) -> None:
    """Keep what a search on neurons proved, if that was wanted."""
    if outcome.verdict is Verdict.UNSAT and search.record is not None and search.options.trace:
        arrays = phase_arrays(search.problem, search.root, search.record) | search.claims
        save_trace(search.options.trace, search.problem, arrays)
