"""What a search leaves behind for a certificate: its tree of splits, in a file per problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.plugins.crown.propagate.arrays import all_rows
from verifolio.plugins.crown.search.neurons.record import ProofRecord
from verifolio.plugins.crown.search.neurons.stages import StagedSearch
from verifolio.plugins.crown.search.root import Root


def phase_arrays(problem: Problem, root: Root, record: ProofRecord) -> dict[str, Any]:
    """The closed subproblems of a search on neurons, in terms of the problem's disjuncts and the graph's neurons."""
    counts = np.array([rows.count for rows in problem.disjuncts])
    arrays: dict[str, Any] = {"counts": counts, "open": root.disjuncts.cpu().numpy()}
    arrays |= dict(zip(("rows_x", "rows_y", "rhs"), all_rows(problem), strict=True))
    if record.full():
        return arrays
    if root.origin is not None:
        arrays["origin"] = root.origin
    sizes = [problem.graph.nodes[i].op.size for i in problem.graph.relus]
    held = {name: torch.cat(p).numpy() for name, p in record.parts.items() if p}
    return {**arrays, **held, "sizes": np.array(sizes)}


def save_phases(search: StagedSearch, outcome: Outcome) -> None:
    """Keep what a search on neurons proved, if that was wanted."""
    if outcome.verdict is Verdict.UNSAT and search.record is not None and search.options.trace:
        arrays = phase_arrays(search.problem, search.root, search.record) | search.claims
        save_trace(search.options.trace, search.problem, arrays)


def save_trace(folder: str, problem: Problem, arrays: dict[str, Any]) -> None:
    """Keep what a certificate of this problem can be made of."""
    box: dict[str, Any] = {"lower": problem.domain.lower, "upper": problem.domain.upper}
    with (Path(folder) / f"{problem.sha256}.npz").open("wb") as file:
        np.savez(file, **box, **arrays)
