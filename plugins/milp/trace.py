"""What the tree leaves behind for a certificate: the phases of every closed branch, by disjunct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.certificates.trace import condition_arrays, save_trace
from verifolio.encode.model import Array, Index
from verifolio.encode.rows import Encoding
from verifolio.model.problem import Problem
from verifolio.vnnlib import Rows

Phases = NDArray[np.int8]


class Trace:
    """Closed branches of one problem; multipliers are left to the writer, whose programs are of the same kind."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.phases: dict[int, Phases] = {}  # by disjunct
        self.origin: NDArray[np.int64] = np.zeros((0, 2), np.int64)

    def add(
        self, rows: Rows, encoding: Encoding, binaries: Index, closed: Sequence[tuple[Array, Array]]
    ) -> None:
        """The branches of a disjunct's tree: bounds of its binaries, 0 for an inactive neuron."""
        graph = encoding.graph
        named = {
            int(column): (graph.relus.index(i), int(neuron))
            for i, columns in encoding.binaries.items()
            for column, neuron in zip(columns, encoding.unstable[i], strict=True)
        }
        self.origin = np.array([named[int(b)] for b in binaries], np.int64).reshape(-1, 2)
        number = next(k for k, own in enumerate(self.problem.disjuncts) if own is rows)
        ends = [np.array([side[k] for side in closed]) for k in (0, 1)]
        self.phases[number] = ((ends[0] > 0.5).astype(np.int8) - (ends[1] < 0.5)).astype(np.int8)

    def save(self, folder: str) -> None:
        arrays: dict[str, Any] = condition_arrays(self.problem) | {"open": np.array(sorted(self.phases))}
        if self.phases:
            phase = np.concatenate([self.phases[d] for d in sorted(self.phases)])
            number = [np.full(len(self.phases[d]), k) for k, d in enumerate(sorted(self.phases))]
            nothing = np.zeros(phase.shape)
            mix = np.ones((len(phase), int(arrays["counts"].max())))
            arrays |= {"phase": phase, "disjunct": np.concatenate(number), "origin": self.origin}
            arrays |= {"alpha": nothing, "beta": nothing, "mix": mix}
        save_trace(folder, self.problem, arrays)
