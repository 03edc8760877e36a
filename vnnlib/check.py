"""Concrete points against cases: doubles where they are conclusive, fractions where they are not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifolio.vnnlib.case import Case
from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.rows import Rows

_TINY = math.ulp(0.0)


@dataclass(frozen=True)
class Check:
    """The verdict on one point, for the best case and its best disjunct.

    `margins` are rhs - lhs of that disjunct's rows (>= 0 holds, > 0 holds strictly); `input_violation` is
    0.0 inside the region, otherwise the largest violation of a bound or row (tiny but positive on the
    boundary of a strict row); `input_ulp` says that some coordinate lies outside only because its exact
    interval contains no float32 and it is the nearest one.
    """

    holds: bool
    case: int | None
    disjunct: int | None
    margins: tuple[float, ...]
    input_violation: float
    input_ulp: bool


def flat_doubles(values: ArrayLike, size: int, what: str) -> NDArray[np.float64]:
    """A flat array of doubles of the expected size."""
    array = np.asarray(values)
    flat = array.astype(np.float64).reshape(-1)
    if flat.size != size:
        raise VnnlibError(
            "<check>", 0, 0, f"{size} {what} values", str(flat.size), "flatten all tensors in order"
        )
    return flat


def check_cases(
    cases: Sequence[Case],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    monomials: Sequence[tuple[int, ...]],
    *,
    ulp: bool,
) -> Check:
    """The first case that holds, else the one with the least input violation and the best margin."""
    point, exact = with_monomials(np.concatenate([x, y]), monomials)
    best = Check(False, None, None, (), math.inf, False)
    rank = (-math.inf, -math.inf)
    for index, case in enumerate(cases):
        violation, tolerated = _input_violation(case, x)
        inside = violation == 0.0 or (tolerated and ulp)
        if not inside and -violation < rank[0]:
            continue
        disjunct, margins, satisfied = _best_disjunct(case, point, exact)
        holds = inside and satisfied and not case.empty
        check = Check(holds, index, disjunct, margins, violation, tolerated)
        if holds:
            return check
        candidate = (0.0 if inside else -violation, min(margins, default=-math.inf))
        if best.case is None or candidate > rank:
            best, rank = check, candidate
    return best


def _input_violation(case: Case, x: NDArray[np.float64]) -> tuple[float, bool]:
    """The largest violation, and whether only missing float32 values are to blame for all of it."""
    if not np.isfinite(x).all():
        return math.inf, False
    lower, upper = case.inner
    outside = np.flatnonzero((x < lower) | (x > upper))
    worst = 0.0
    for i in outside.tolist() if len(outside) <= 16 else []:
        value = Fraction(float(x[i]))
        worst = max(worst, _signed(max(case.exact_lower[i] - value, value - case.exact_upper[i])))
    if len(outside) > 16:  # many: the size of the violation is only a hint, so doubles will do
        worst = max(float(np.max(lower - x)), float(np.max(x - upper)), _TINY)
    tolerated = False
    if len(outside):
        nearest, _, mask = case.inner_float32
        tolerated = bool(np.all(mask[outside] & (nearest[outside] == x[outside])))
    margins, satisfied = row_margins(case.input_rows, x)
    if not satisfied:
        worst = max(worst, -min(margins), _TINY)
        tolerated = False
    return worst, tolerated


def with_monomials(
    point: NDArray[np.float64], monomials: Sequence[tuple[int, ...]]
) -> tuple[NDArray[np.float64], dict[int, Fraction]]:
    """The point followed by the values of monomials: their nearest doubles, and by column the exact ones."""
    if not monomials or not np.isfinite(point).all():
        return np.concatenate([point, np.full(len(monomials), np.nan)]), {}
    values = [math.prod((Fraction(float(point[k])) for k in one), start=Fraction(1)) for one in monomials]
    largest = float(np.finfo(np.float64).max)
    doubles = [min(max(_signed(value), -largest), largest) for value in values]
    return np.concatenate([point, doubles]), dict(enumerate(values, start=len(point)))


def _best_disjunct(
    case: Case, point: NDArray[np.float64], exact: Mapping[int, Fraction]
) -> tuple[int | None, tuple[float, ...], bool]:
    best: tuple[int | None, tuple[float, ...], bool] = (None, (), False)
    least = -math.inf
    for index, rows in enumerate(case.disjuncts):
        margins, satisfied = row_margins(rows, point, exact)
        if satisfied:
            return index, margins, True
        if best[0] is None or min(margins) > least:
            best, least = (index, margins, False), min(margins)
    return best


def row_margins(
    rows: Rows, point: NDArray[np.float64], exact: Mapping[int, Fraction] = MappingProxyType({})
) -> tuple[tuple[float, ...], bool]:
    """rhs - lhs of each row, with exact signs, and whether all rows hold; `exact` are values that are no doubles."""
    if not rows.count:
        return (), True
    values = point[rows.column]
    if not np.isfinite(values).all():
        return (-math.inf,) * rows.count, False
    with np.errstate(over="ignore", invalid="ignore"):
        products = rows.coefficient * values
        sums = np.bincount(rows.row, weights=products, minlength=rows.count)
        sizes = np.bincount(rows.row, weights=np.abs(products), minlength=rows.count) + np.abs(rows.rhs)
        margins = rows.rhs - sums
        # Any order of summation errs by at most (terms + 2) roundings of the sum of absolute values
        # (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2); doubled for its own error.
        slack = sizes * ((len(products) + 4) * 2.0**-51) + 1e-300
        doubtful = set(np.flatnonzero(~(np.abs(margins) > slack)).tolist())
    doubtful |= {r for r, c in zip(rows.row.tolist(), rows.column.tolist(), strict=True) if c in exact}
    result = margins.tolist()
    if doubtful:
        for index, margin in _exact_margins(rows, values, doubtful, exact).items():
            result[index] = _signed(margin)
    held = all(
        margin > 0 or (margin == 0 and not strict) for margin, strict in zip(result, rows.strict, strict=True)
    )
    return tuple(result), held


def _exact_margins(
    rows: Rows, values: NDArray[np.float64], wanted: set[int], exact: Mapping[int, Fraction]
) -> dict[int, Fraction]:
    margins = {index: rows.exact_rhs[index] for index in wanted}
    terms = zip(
        rows.row.tolist(), rows.column.tolist(), rows.coefficient.tolist(), values.tolist(), strict=True
    )
    for row, column, coefficient, value in terms:
        if row in wanted:
            known = exact.get(column)
            margins[row] -= Fraction(coefficient) * (Fraction(value) if known is None else known)
    return margins


def _signed(value: Fraction) -> float:
    """The nearest double, but never 0.0 for a number that is not 0, and never an overflow."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return nearest or (_TINY if value > 0 else -_TINY if value < 0 else 0.0)
