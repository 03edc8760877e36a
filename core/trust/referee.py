"""The referee: replays a claimed counterexample on the original files and the original text.

Nothing else may say SAT. A point is moved to float32 inside the written bounds, run through ONNX Runtime, and
compared with the condition in exact arithmetic; then the network itself is evaluated rigorously, to say
whether the condition also holds in real arithmetic or only in floating point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Flag, Witness
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.vnnlib import Case, Check, Rows, inward_float32

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
# towards the ball's centre, from one rounding of float32 upwards; most points need none
_SHRINK = (0.0, 2.0**-22, 2.0**-18, 2.0**-14, 2.0**-10, 2.0**-6)
_EXACT = (Flag.FLOAT_ONLY, Flag.UNCHECKED_EXACT)


@dataclass(frozen=True)
class Rejection:
    """Why a point is no counterexample; `margins` are those of the rows it came closest to satisfying."""

    reason: str
    margins: tuple[float, ...] = ()


def judge_counterexample(query: Query, x: NDArray[np.floating]) -> Witness | Rejection:
    """A validated witness near x, or why there is none: replay, then the exact evaluation."""
    found = replay(query, x)
    return confirm(query, found) if isinstance(found, Witness) else found


def replay(query: Query, x: NDArray[np.floating]) -> Witness | Rejection:
    """The first half of `judge`: float32, ONNX Runtime, the text's decimals. Flagged as not yet confirmed."""
    point = np.asarray(x, np.float64).ravel()
    size = query.specification.input_size
    if point.size != size or not np.isfinite(point).all():
        return Rejection(f"expected {size} finite numbers, got {point.size} values")
    case = nearest_case(query.specification.cases, point)
    if case is None:
        return Rejection("every input region is empty")
    x32 = snap(case, point, query.ball)
    if x32 is None:
        return Rejection("no float32 point of the box near it lies in the ball")
    y = run_networks(query, x32)
    return _verdict(query.specification.check(x32, y, ulp=True), x32, y)


def _verdict(check: Check, x32: Float32, y: NDArray[np.floating]) -> Witness | Rejection:
    if not check.holds:
        if check.input_violation > 0 and not check.input_ulp:
            return Rejection(f"outside the input set by {check.input_violation:.3g}", check.margins)
        worst = min(check.margins, default=float("nan"))
        return Rejection(f"replay fails a row by {-worst:.3g}", check.margins)
    flags = {Flag.UNCHECKED_EXACT}
    flags |= {Flag.INPUT_ULP} if check.input_ulp else set()
    flags |= {Flag.TIE} if any(m == 0 for m in check.margins) else set()
    return Witness(x32, y, check.margins, frozenset(flags))


def fails_everywhere(query: Query, x: NDArray[np.floating]) -> bool:
    """Whether the condition fails in ONNX Runtime at the float32 point near x, optimised or not."""
    point = np.asarray(x, np.float64).ravel()
    case = nearest_case(query.specification.cases, point)
    x32 = None if case is None else snap(case, point, query.ball)
    if x32 is None:
        return False
    checks = [
        query.specification.check(x32, run_networks(query, x32, optimised), ulp=True)
        for optimised in (True, False)
    ]
    return all(not c.holds and (c.input_violation <= 0 or c.input_ulp) for c in checks)


def run_networks(query: Query, x: Float32, optimised: bool = True) -> NDArray[np.floating]:
    """ONNX Runtime's outputs of every network, concatenated."""
    outputs, start = [], 0
    for network in query.networks:
        size = network.input_size
        outputs.append(network.replay(x if query.shared_input else x[start : start + size], optimised))
        start += size
    return np.concatenate(outputs)


def nearest_case(cases: tuple[Case, ...], x: Array) -> Case | None:
    """The input region x lies in, or the one it is closest to."""
    open_cases = [c for c in cases if not c.empty and c.disjuncts]
    if len(open_cases) <= 1:
        return open_cases[0] if open_cases else None
    gaps = [float(np.maximum(np.maximum(c.lower - x, x - c.upper), 0.0).max()) for c in open_cases]
    return open_cases[int(np.argmin(gaps))]


def snap(case: Case, x: Array, ball: Ball | None) -> Float32 | None:
    """The float32 point of the region's box nearest to x, pulled towards the ball's centre where needed."""
    lower, upper, _ = inward_float32(case)
    for shrink in _SHRINK:
        moved = x if ball is None else ball.centre + (1 - shrink) * (x - ball.centre)
        if ball is not None and ball.distance(moved) > ball.radius:
            moved = ball.centre + (1 - shrink) * (ball.radius / ball.distance(moved)) * (moved - ball.centre)
        with np.errstate(over="ignore"):
            rounded: Float32 = np.clip(moved.astype(np.float32), lower, upper)
        if ball is None or in_ball(ball, rounded):
            return rounded
    return None


def in_ball(ball: Ball, x: Float32) -> bool:
    """Whether a float32 point lies in the ball, exactly where doubles leave a doubt."""
    distance = ball.distance(x.astype(np.float64))
    slack = 1e-12 * (distance + ball.radius) * (1 + len(x) ** 0.5)
    if abs(distance - ball.radius) > slack:
        return distance < ball.radius
    parts = [abs(Fraction(float(a)) - Fraction(float(c))) for a, c in zip(x, ball.centre, strict=True)]
    radius = Fraction(ball.radius)
    if ball.norm == 1:
        return sum(parts) <= radius
    return sum(p * p for p in parts) <= radius**2 if ball.norm == 2 else max(parts) <= radius


def confirm(query: Query, witness: Witness) -> Witness:
    """The second half of `judge`: what exact arithmetic on the stored weights says about the witness."""
    from verifolio.graph import exact
    from verifolio.graph.enclosure import enclose

    if query.graph.steps or any(n.exposed for n in query.networks):
        witness = _unfused(query, witness)
    x = witness.x.astype(np.float64)
    check = query.specification.check(witness.x, witness.y, ulp=True)
    if check.case is None:
        return witness
    disjuncts = query.specification.cases[check.case].disjuncts
    value, radius = enclose(query.graph, x)
    point, error = np.concatenate([x, value]), np.concatenate([np.zeros(len(x)), radius])
    verdicts = [rows_hold(rows, point, error) for rows in disjuncts]
    if any(v is True for v in verdicts):
        return _flagged(witness, set())
    if all(v is False for v in verdicts):
        return _flagged(witness, {Flag.FLOAT_ONLY})
    if not exact.evaluable(query.graph):
        return witness
    numbers = [*(Fraction(float(v)) for v in x), *exact.evaluate(query.graph, x)]
    return _flagged(witness, _exact_flags(disjuncts, numbers))


def _unfused(query: Query, witness: Witness) -> Witness:
    """The witness, flagged where it is none without ONNX Runtime's graph optimisations."""
    plain = run_networks(query, witness.x, optimised=False)
    if query.specification.check(witness.x, plain, ulp=True).holds:
        return witness
    return replace(witness, flags=witness.flags | {Flag.FUSED})


def _flagged(witness: Witness, found: set[Flag]) -> Witness:
    return replace(witness, flags=frozenset((witness.flags - set(_EXACT)) | found))


def rows_hold(rows: Rows, point: Array, error: Array) -> bool | None:
    """Whether all rows hold at a point known up to `error`: certainly, certainly not, or None."""
    if rows.count == 0:
        return True
    products = rows.coefficient * point[rows.column]
    wiggle = np.abs(rows.coefficient) * error[rows.column]
    total = np.bincount(rows.row, products, rows.count)
    size = np.bincount(rows.row, np.abs(products), rows.count) + np.abs(rows.rhs)
    # rounding of the sums: Higham 2002, section 3.1, with a wide margin
    slack = np.bincount(rows.row, wiggle, rows.count) + size * (len(products) + 4) * 2.0**-51 + 1e-300
    margin = rows.rhs - total  # nothing is larger or smaller than a slack that is infinite or not a number
    if bool((margin > slack).all()):
        return True
    return False if bool((margin < -slack).any()) else None


def _exact_flags(disjuncts: tuple[Rows, ...], numbers: list[Fraction]) -> set[Flag]:
    flags = {Flag.FLOAT_ONLY}
    for rows in disjuncts:
        margins = [
            (row.rhs - sum((c * numbers[k] for k, c in row.terms), Fraction(0)), row.strict)
            for row in rows.linear_rows()
        ]
        if all(m > 0 or (m == 0 and not strict) for m, strict in margins):
            tie = any(m == 0 for m, _ in margins)
            if not tie:
                return set()
            flags = {Flag.TIE}
    return flags


def confirmed(witness: Witness) -> bool:
    """Whether the witness is one in exact arithmetic too, and inside the bounds as written."""
    return not witness.flags & {Flag.FLOAT_ONLY, Flag.UNCHECKED_EXACT, Flag.INPUT_ULP}
