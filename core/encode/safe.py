"""Bounds of a linear program that hold whatever the solver's tolerances were.

For any multipliers y (a solver's approximate duals, say) and d = cost - matrix' y,
cost . v = d . v + y . (matrix v)
         >= sum_j min(d_j lower_j, d_j upper_j) + sum_i min(y_i row_lower_i, y_i row_upper_i)
(Neumaier and Shcherbina 2004). Every rounding error made while evaluating the right-hand side is subtracted.
"""

from __future__ import annotations

import numpy as np

from verifolio.encode.model import Array, Model
from verifolio.graph.enclosure import TINY, UNIT, gamma


def safe_lower_bound(model: Model, duals: Array) -> float:
    """A proved lower bound of the relaxation's optimum; -inf where the duals are of no use."""
    y = _usable(model, duals)
    if y is None:
        return -np.inf
    transposed = model.matrix.T
    reduced = model.cost - transposed @ y
    terms = int(np.bincount(model.matrix.indices, minlength=1).max()) + 2
    error = gamma(terms) * (np.abs(model.cost) + abs(transposed) @ np.abs(y)) + TINY
    columns = _least(reduced - error, reduced + error, model.lower, model.upper)
    row_values = np.where(y > 0, model.row_lower, model.row_upper)
    rows = np.where(y == 0, 0.0, y * np.where(y == 0, 0.0, row_values))
    total = float(columns.sum() + rows.sum())
    count = len(columns) + len(rows)
    slack = gamma(count + 2) * float(np.abs(columns).sum() + np.abs(rows).sum()) + TINY * count
    bound = total - slack * (1 + 8 * UNIT)
    return float(np.nextafter(bound, -np.inf)) if np.isfinite(bound) else -np.inf


def proves_infeasible(model: Model, ray: Array) -> bool:
    """Whether a Farkas ray proves that the relaxation has no point at all."""
    scale = float(np.abs(ray).max(initial=0.0))
    if not np.isfinite(scale) or scale == 0.0:
        return False
    free = model.minimising(np.zeros(model.columns))
    return any(safe_lower_bound(free, sign * ray / scale) > 0 for sign in (1.0, -1.0))


def _usable(model: Model, duals: Array) -> Array | None:
    """The duals without the signs that an infinite row side forbids."""
    if len(duals) != model.rows or not np.isfinite(duals).all():
        return None
    y = duals.copy()
    y[(y > 0) & ~np.isfinite(model.row_lower)] = 0.0
    y[(y < 0) & ~np.isfinite(model.row_upper)] = 0.0
    return y


def _least(low: Array, high: Array, lower: Array, upper: Array) -> Array:
    """The least of d * v over d in [low, high], v in [lower, upper], rounded down."""
    with np.errstate(invalid="ignore", over="ignore"):
        products = [np.where(d == 0, 0.0, d * v) for d in (low, high) for v in (lower, upper)]
    least = np.minimum.reduce(products)
    return np.asarray(least - np.abs(least) * 2 * UNIT - TINY)
