"""Texts of the command line that mean numbers: radii, norms, lists."""

from __future__ import annotations

import math
from decimal import Decimal

from verifolio.errors import InputError

NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
MOST = 1_000_000  # radii of a grid: more is a typing error


def parse_epsilon(text: str) -> float:
    """One radius."""
    radii = parse_epsilons(text)
    if len(radii) != 1:
        raise InputError("--epsilon", "one radius", repr(text), "this command takes one at a time")
    return radii[0]


def parse_epsilons(text: str) -> tuple[float, ...]:
    """`start:stop:step` (stop included where it is hit) or numbers with commas; increasing, not negative."""
    remedy = "write 0.1, 8/255, 0.01,0.02,0.05 or 0.001:0.4:0.002"
    try:
        parts = _grid(text) if ":" in text else [part for part in text.split(",") if part.strip()]
        radii = tuple(parse_number(part) if isinstance(part, str) else float(part) for part in parts)
    except (ArithmeticError, ValueError):
        raise InputError("--epsilon", "a number, numbers or start:stop:step", repr(text), remedy) from None
    sane = all(math.isfinite(r) and r >= 0 for r in radii)
    if not radii or len(radii) >= MOST or not sane or list(radii) != sorted(set(radii)):
        got = repr(text) if len(radii) < MOST else f"{len(radii)} of them"
        raise InputError("--epsilon", "increasing radii, none negative", got, remedy)
    return radii


def parse_number(text: str) -> float:
    """A decimal, or a fraction of two of them as people write 8/255; ValueError or ArithmeticError otherwise."""
    above, slash, below = text.partition("/")
    return float(Decimal(above.strip())) / (float(Decimal(below.strip())) if slash else 1.0)


def _grid(text: str) -> list[Decimal]:
    start, stop, step = (Decimal(part) for part in text.split(":"))
    count = int((stop - start) / step) + 1 if step > 0 else 0
    return [start + k * step for k in range(min(count, MOST))]


def parse_numbers(text: str, what: str) -> tuple[float, ...]:
    """Numbers with commas; nothing gives nothing."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(what, "numbers with commas", repr(text)) from None
