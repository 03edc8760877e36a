"""Arithmetic on folded constants that never loses a rounding: the error of each result is bounded.

Sums and products use error-free transformations (Knuth's TwoSum, Dekker's TwoProduct), so results that are
exact in float64 stay exact, and inexact ones carry their exact rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from verifolio.graph.ops import Array
from verifolio.onnx_import.values import Known, Malformed, Refused

UNIT = 2.0**-53  # half the distance from 1 to the next double: the largest relative rounding error
SPLIT = 2.0**27 + 1  # halves the 53 bits of a double (Veltkamp; Dekker 1971)
UP = 1 + 2.0**-48  # covers the roundings made while adding up a few nonnegative error terms
SMALL = 2.0**-960  # below this Dekker's product may underflow
TINY = 1e-300  # above every error that underflow makes, and far below every value that matters
SINGLE, SMALLEST = 2.0**-24, 2.0**-149  # unit roundoff and least number of single precision


def _finish(value: Array, error: Array, single: Array, *operands: Known) -> Known:
    """`single` is what single precision carries over from the operands; its own rounding is added here."""
    wide = any(k.wide for k in operands)
    # a result that is zero is not rounded, and any other one by no more than the least number where it is tiny
    tiny = np.where((value != 0) & (np.abs(value) < 2.0**-120), SMALLEST, 0.0)
    rounded = (single + np.abs(value) * SINGLE) * (1 + 2.0**-20) + tiny
    # single precision computes what it can represent
    same = (np.asarray(single) == 0) & (np.asarray(error) == 0) & (value.astype(np.float32) == value)
    rounded = np.where(same, 0.0, rounded)
    return Known(value, error * UP if error.any() else None, wide, rounded if rounded.any() else None)


def rounded_more(a: Known, times: int) -> Known:
    """The same number where ONNX Runtime computes it by other steps, which round that often more."""
    return replace(a, single=_single(a) + times * SINGLE * np.abs(a.value))


def _error(a: Known) -> Array | float:
    return 0.0 if a.error is None else a.error


def _single(a: Known) -> Array | float:
    return 0.0 if a.single is None else a.single


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _halves(a: Array) -> tuple[Array, Array]:
    big = SPLIT * a
    high = big - (big - a)
    return high, a - high


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    rest = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    tiny = (np.abs(product) < SMALL) & (a != 0) & (b != 0)
    return product, np.where(tiny, TINY, rest)


def _integers(compute: Callable[..., Any], *operands: Known) -> Known:
    """Integer arithmetic in the operands' type; a result that leaves the type has no agreed meaning."""
    kind = operands[0].value.dtype
    size = np.asarray(compute(*(k.value.astype(np.float64) for k in operands)))
    limits = np.iinfo(np.int64 if kind.kind == "b" else kind)
    # 2**62: the comparison is made in doubles
    if bool((size < max(limits.min, -(2**62))).any()) or bool((size > min(limits.max, 2**62)).any()):
        raise Refused(f"arithmetic that leaves the range of {kind.name}")
    return Known(np.asarray(compute(*(k.value for k in operands))))


def add(a: Known, b: Known) -> Known:
    if not a.is_float:
        return _integers(np.add, a, b)
    value, rest = _two_sum(a.value, b.value)
    return _finish(value, np.abs(rest) + _error(a) + _error(b), np.asarray(_single(a) + _single(b)), a, b)


def negate(a: Known) -> Known:
    return Known(-a.value, a.error, a.wide, a.single)


def subtract(a: Known, b: Known) -> Known:
    return add(a, negate(b)) if a.is_float else _integers(np.subtract, a, b)


def multiply(a: Known, b: Known) -> Known:
    if not a.is_float:
        return _integers(np.multiply, a, b)
    value, rest = _two_product(a.value, b.value)
    ea, eb = _error(a), _error(b)
    error = np.abs(rest) + np.abs(a.value) * eb + np.abs(b.value) * ea + ea * eb
    sa, sb = _single(a), _single(b)
    return _finish(value, error, np.abs(a.value) * sb + np.abs(b.value) * sa + sa * sb, a, b)


def divide(a: Known, b: Known) -> Known:
    """Quotients round to nearest; an exact one is recognised by multiplying back. Integers truncate."""
    if bool((np.abs(b.value) <= _error(b)).any()):
        raise Malformed("a divisor other than zero", "zero")
    if not a.is_float:
        quotient = np.abs(a.value) // np.abs(b.value)
        return Known(np.where((a.value < 0) != (b.value < 0), -quotient, quotient))
    value = a.value / b.value
    back, rest = _two_product(value, b.value)
    rounding = np.where((back == a.value) & (rest == 0), 0.0, np.abs(value) * UNIT + TINY)
    spread = (_error(a) + np.abs(value) * _error(b)) / (np.abs(b.value) - _error(b))
    room = np.abs(b.value) - _single(b)
    single = np.where(room > 0, (_single(a) + np.abs(value) * _single(b)) / room, np.inf)
    return _finish(value, rounding + spread, single, a, b)


def root(a: Known) -> Known:
    """Square root; |sqrt(v + d) - sqrt(v)| <= |d| / sqrt(v)."""
    if bool((a.value - _error(a) < 0).any()):
        raise Malformed("a square root of numbers >= 0", f"{float(a.value.min())}")
    value = np.sqrt(a.value)
    back, rest = _two_product(value, value)
    rounding = np.where((back == a.value) & (rest == 0), 0.0, value * UNIT + TINY)
    spread = 0.0 if a.error is None else a.error / np.maximum(value, TINY)
    single = np.zeros(a.shape) if a.single is None else a.single / np.maximum(value, TINY)
    return _finish(value, rounding + spread, single, a)


def matmul(a: Known, b: Known, charge: Callable[[int], None]) -> Known:
    """A product of constant matrices, with Higham's bound on the error of its sums."""
    terms = a.shape[-1]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    charge(math.prod(lead) * a.shape[-2] * b.shape[-1])
    if not a.is_float:
        return _integers(np.matmul, a, b)
    value = np.matmul(a.value, b.value)
    size_a, size_b = np.abs(a.value), np.abs(b.value)
    error = np.matmul(size_a, size_b) * (1.01 * (terms + 2) * UNIT) + TINY
    if a.error is not None:
        error = error + np.matmul(a.error, size_b)
    if b.error is not None:
        error = error + np.matmul(size_a + _error(a), b.error)
    single = np.matmul(size_a, size_b) * (1.01 * (terms + 2) * SINGLE)
    single = single + np.matmul(size_a + _single(a), size_b + _single(b)) - np.matmul(size_a, size_b)
    return _finish(value, error * (1 + (terms + 2) * 4 * UNIT), 1.01 * single, a, b)


def total(a: Known) -> Known:
    """Sums over the last axis, with Higham's bound on their error."""
    if not a.is_float:
        return _integers(lambda v: v.sum(axis=-1, dtype=v.dtype), a)
    value = a.value.sum(axis=-1)
    terms = a.shape[-1]
    spread = 0.0 if a.error is None else a.error.sum(axis=-1)
    rounding = 0.0 if terms == 1 else 1.01 * (terms + 2) * UNIT
    error = np.abs(a.value).sum(axis=-1) * rounding + spread
    single = np.abs(a.value).sum(axis=-1) * (1.01 * (terms + 2) * SINGLE)
    single = single + (0.0 if a.single is None else 1.01 * a.single.sum(axis=-1))
    return _finish(value, np.asarray(error * (1 + 4 * terms * UNIT)), np.asarray(single), a)
