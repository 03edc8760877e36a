"""Numbers that people give in Python, as the numbers they mean: radii, legal values, how much may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from verifolio.cli.bundles import Bundle
from verifolio.cli.parse import parse_epsilon
from verifolio.errors import InputError

Epsilon = float | str | Mapping[str, float | str] | Sequence[float]
Radius = float | dict[str, float] | Sequence[float]
Range = tuple[float, float] | Mapping[str, tuple[float, float]] | None


def chosen_epsilon(given: Any) -> Radius:
    """One radius, or one for each feature; also numbers of numpy and torch, and texts such as 8/255."""
    if isinstance(given, Mapping):
        return {name: _radius(value, f"epsilon of {name}") for name, value in given.items()}
    if isinstance(given, str) or np.ndim(given) == 0:
        return _radius(given, "epsilon")
    return [_radius(value, "epsilon") for value in np.ravel(given).tolist()]


def _radius(given: Any, where: str) -> float:
    if isinstance(given, str):
        return parse_epsilon(given)
    found = number(given)
    if found is None or not 0 <= found < np.inf:
        remedy = "such as 0.05 or '8/255', in the units of the data"
        raise InputError(where, "a finite number, not negative", repr(given), remedy)
    return found


def number(given: Any) -> float | None:
    """A number of any library; None where it is none."""
    if isinstance(given, bool | str | bytes) or np.ndim(given) != 0:
        return None
    try:
        return float(given)
    except (TypeError, ValueError):
        return None


def chosen_range(given: Any) -> Range:
    """Legal values: one pair, or one by the name of each feature."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {name: _pair(value, f"range of {name}") for name, value in given.items()}
    return _pair(given, "range")


def _pair(given: Any, where: str) -> tuple[float, float]:
    values = [number(v) for v in given] if isinstance(given, list | tuple | np.ndarray) else []
    low, high = values if len(values) == 2 else (None, None)
    if low is None or high is None or not low < high:
        raise InputError(where, "(LOW, HIGH) with LOW below HIGH", repr(given), "such as (0, 1)")
    return low, high


def check_least(cls: type[Bundle], told: Mapping[str, Any]) -> None:
    """Refuse numbers below the least that the command line takes."""
    for one in fields(cls):
        least, given = one.metadata.get("min"), told.get(one.name)
        if least is None or given is None:
            continue
        found = number(given)
        if found is None or not found >= least:
            raise InputError(one.name, f"a number, at least {least:g}", repr(given))
