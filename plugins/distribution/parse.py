"""Command-line texts of this plugin: grids of radii, norms, lists of numbers."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

from verifolio.errors import InputError

NORMS = {"linf": math.inf, "l2": 2.0, "l1": 1.0}
MOST = 1_000_000


def parse_epsilons(text: str) -> tuple[float, ...]:
    """`start:stop:step` (stop included where it is hit) or numbers with commas; increasing, positive."""
    remedy = "write 0.001:0.4:0.002 or 0.01,0.02,0.05"
    try:
        if ":" in text:
            start, stop, step = (Decimal(part) for part in text.split(":"))
            count = int((stop - start) / step) + 1 if step > 0 else 0
            values = [start + k * step for k in range(min(count, MOST))]
        else:
            values = [Decimal(part) for part in text.split(",") if part.strip()]
    except (InvalidOperation, ValueError, OverflowError):
        raise InputError("--epsilons", "start:stop:step or numbers", repr(text), remedy) from None
    radii = tuple(float(v) for v in values)
    if not radii or len(radii) >= MOST or min(radii) < 0 or list(radii) != sorted(set(radii)):
        got = f"{len(radii)} values from {text!r}"
        raise InputError("--epsilons", "an increasing grid of radii, none negative", got, remedy)
    return radii


def parse_norm(text: str) -> float:
    """linf, l2 or l1."""
    if text.lower() not in NORMS:
        raise InputError("--norm", "linf, l2 or l1", repr(text))
    return NORMS[text.lower()]


def parse_numbers(text: str, what: str) -> tuple[float, ...]:
    """Numbers with commas; nothing gives nothing."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(what, "numbers with commas", repr(text)) from None
