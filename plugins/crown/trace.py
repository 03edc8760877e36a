"""What a search leaves behind for a certificate: its tree of splits, in a file per problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.model.problem import Problem, dense_rows

if TYPE_CHECKING:
    from verifolio.plugins.crown.certificate import Ledger
    from verifolio.plugins.crown.root import Root

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
MOST_NODES = 1 << 24  # what the checker reads, and half a gigabyte here


class BoxTree:
    """The boxes of a search on inputs; box 0 is the whole input set."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ids, Ids, Array, Ids]] = []
        self.count = 1

    def split(self, node: Ids, dimension: NDArray[np.intp], cut: Array) -> Ids:
        """Numbers of the parts of split boxes: all lower parts, then all upper parts."""
        left = np.arange(self.count, self.count + len(node))
        self.count += 2 * len(node)
        if self.count < MOST_NODES:
            self.parts.append((node, dimension.astype(np.int64), cut, left))
        return np.concatenate([left, left + len(node)])

    def arrays(self) -> dict[str, Any]:
        """Per box: the input along which it was cut (-1: closed) and where, its lower part, its upper part."""
        if self.count >= MOST_NODES:
            return {"missing": np.array(f"the search took more than {MOST_NODES} boxes")}
        table, cuts = np.full((3, self.count), -1, np.int64), np.zeros(self.count)
        for node, dimension, cut, left in self.parts:
            table[:, node], cuts[node] = (dimension, left, left + len(node)), cut
        return {"dimension": table[0], "left": table[1], "right": table[2], "cut": cuts}


def short(middle: Array, width: Array) -> Array:
    """The middle of intervals, moved by less than a sixteenth of the width to numbers of few bits."""
    exponent = np.frexp(width)[1] - 4
    return np.asarray(np.ldexp(np.rint(np.ldexp(middle, -exponent)), exponent))


def phase_arrays(problem: Problem, root: Root, ledger: Ledger, plain: bool) -> dict[str, Any]:
    """The closed subproblems of a search on neurons, in terms of the problem's disjuncts and the graph's neurons."""
    n, m = problem.graph.input_size, problem.graph.output_size
    parts = [dense_rows(rows, n, m) for rows in problem.disjuncts]
    counts = np.array([len(p[2]) for p in parts])
    arrays: dict[str, Any] = {"counts": counts, "open": root.disjuncts.cpu().numpy()}
    arrays |= {
        name: np.concatenate([p[k] for p in parts]) for k, name in enumerate(("rows_x", "rows_y", "rhs"))
    }
    if not plain or ledger.full():
        why = "it outgrew its memory" if plain else "pairs of opposite neurons were made one"
        return {"missing": np.array(f"the search on neurons left no trace: {why}")}
    if root.origin is not None:
        arrays["origin"] = root.origin
    sizes = [problem.graph.nodes[i].op.size for i in problem.graph.relus]
    held = {name: torch.cat(p).numpy() for name, p in ledger.parts.items() if p}
    return {**arrays, **held, "sizes": np.array(sizes)}


def save_trace(folder: str, problem: Problem, arrays: dict[str, Any]) -> None:
    """Keep what a certificate of this problem can be made of."""
    box: dict[str, Any] = {"lower": problem.domain.lower, "upper": problem.domain.upper}
    with (Path(folder) / f"{problem.sha256}.npz").open("wb") as file:
        np.savez(file, **box, **arrays)
