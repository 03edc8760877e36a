"""Zonotopes from the inputs forward, with a symbol for every error: dense matrices, nothing kept back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verifolio.graph.ops import Array
from verifolio.model.problem import Domain
from verifolio.testing.reference.bounds import Reference
from verifolio.testing.reference.lines import Interval, default_slopes, enclosing_lines
from verifolio.testing.reference.sets import shrunk_box


def zonotope_intervals(
    reference: Reference, domain: Domain, intervals: Mapping[int, Interval]
) -> dict[int, Interval]:
    """What zonotopes say of every node, whose lines hold on the given intervals; no rounding is charged."""
    low, high = shrunk_box(domain)
    forms: dict[int, tuple[Array, Array]] = {0: ((low + high) / 2, np.diag((high - low) / 2))}
    for i in range(1, reference.graph.output + 1):
        parents = reference.graph.nodes[i].parents
        count = max(matrix.shape[1] for _, matrix in forms.values())
        if i in reference.maps:
            m = reference.maps[i]
            slopes, centre, error = m.matrices, m.bias, np.zeros_like(m.bias)
        else:
            op, inputs = reference.graph.nodes[i].op, [intervals[p] for p in parents]
            chords = default_slopes(op, inputs)[1]
            own = enclosing_lines(op, inputs, chords, chords)
            slopes = [np.diag(k) for k in chords]
            centre, error = (own.floor + own.ceiling) / 2, (own.ceiling - own.floor) / 2
        rows = np.zeros((len(centre), count))
        for slope, p in zip(slopes, parents, strict=True):
            middle, matrix = forms[p]
            centre = centre + slope @ middle
            rows[:, : matrix.shape[1]] += slope @ matrix
        forms[i] = centre, np.c_[rows, np.diag(error)] if error.any() else rows
    reach = {i: np.abs(rows).sum(1) for i, (_, rows) in forms.items()}
    return {i: (centre - reach[i], centre + reach[i]) for i, (centre, _) in forms.items()}
