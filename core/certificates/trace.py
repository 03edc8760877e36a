"""What a search leaves behind for a certificate: its tree of splits, in a file per problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verifolio.model.problem import Problem, dense_rows


def condition_arrays(problem: Problem) -> dict[str, Any]:
    """The rows of every disjunct, by which the writer knows them again, and the sizes of the ReLU layers."""
    graph = problem.graph
    parts = [dense_rows(rows, graph.input_size, graph.output_size) for rows in problem.disjuncts]
    rows = {name: np.concatenate([p[k] for p in parts]) for k, name in enumerate(("rows_x", "rows_y", "rhs"))}
    counts = np.array([rows.count for rows in problem.disjuncts])
    return {**rows, "counts": counts, "sizes": np.array([graph.nodes[i].op.size for i in graph.relus])}


def save_trace(folder: str, problem: Problem, arrays: dict[str, Any]) -> None:
    """Keep what a certificate of this problem can be made of."""
    box: dict[str, Any] = {"lower": problem.domain.lower, "upper": problem.domain.upper}
    with (Path(folder) / f"{problem.sha256}.npz").open("wb") as file:
        np.savez(file, **box, **arrays)
