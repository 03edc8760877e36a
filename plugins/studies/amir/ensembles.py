"""Ensembles from mutual errors: uniqueness, the swaps of the paper, and the best ensemble of all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..study import Tables
from .members import COUNT, FIRST, SECOND
from .mutual import PAIRS

# The ensembles of figures 4 and 5: E1 with either of its two least unique members replaced, E2 with either of its two
# most unique ones replaced by the worst candidate, E4 after one and two swaps in both directions.
ENSEMBLES = {
    "mnist": ("E1", "E1 swap", "E1 other swap", "E2", "E2 reverse", "E2 other reverse"),
    "fashion-mnist": ("E4", "E4 swap", "E4 two swaps", "E4 reverse", "E4 two reverses"),
}
# what the paper swaps in them, for its own networks
PAPER = {
    "E1 swap": "2 -> 9",
    "E1 other swap": "5 -> 9",
    "E2 reverse": "9 -> 4",
    "E2 other reverse": "10 -> 4",
    "E4 swap": "20 -> 15",
    "E4 two swaps": "20 -> 15, 16 -> 12",
    "E4 reverse": "18 -> 13",
    "E4 two reverses": "18 -> 13, 17 -> 11",
}


def mutual_errors(
    tables: Tables, data: str, way: str, radius: str = ""
) -> tuple[np.ndarray, np.ndarray, int]:
    """Matrices of found and open mutual errors over all rows (of one radius), and the number of balls."""
    found, left, balls = np.zeros((COUNT, COUNT), int), np.zeros((COUNT, COUNT), int), 0
    for row in tables.of("mutual", data=data, way=way):
        if radius and row["radius"] != radius:
            continue
        balls += int(row["points"])
        for (a, b), one, more in zip(PAIRS, row["found"].split(), row["open"].split(), strict=True):
            found[a, b] += int(one)
            left[a, b] += int(more)
    return found + found.T, left + left.T, balls


def joint(errors: np.ndarray, members: Sequence[int]) -> int:
    """How many mutual errors an ensemble has."""
    return int(sum(errors[a, b] for a, b in itertools.combinations(members, 2)))


def uniqueness(errors: np.ndarray, balls: int, member: int, members: Sequence[int]) -> float:
    """One minus the mean share of balls in which the member errs together with another."""
    others = [m for m in members if m != member]
    return 1 - sum(errors[member, m] for m in others) / (balls * len(others)) if balls else float("nan")


def mean_uniqueness(errors: np.ndarray, balls: int, members: Sequence[int]) -> float:
    """Over all members."""
    return float(np.mean([uniqueness(errors, balls, m, members) for m in members]))


def swapped(
    errors: np.ndarray, members: tuple[int, ...], reverse: bool = False, place: int = 0
) -> tuple[int, ...]:
    """One step of the paper's loop: the least unique member for the best candidate, or the reverse.

    `place` takes the member after the least (or most) unique one, as in the second ensembles of figure 4.
    """
    total = {m: sum(int(errors[m, o]) for o in members if o != m) for m in members}
    sign = 1 if reverse else -1
    out = sorted(members, key=lambda m: (sign * total[m], m))[place]
    rest = [m for m in members if m != out]
    fresh = [f for f in range(COUNT) if f not in members]
    cost = {f: sum(int(errors[f, o]) for o in rest) for f in fresh}
    best = (max if reverse else min)(fresh, key=lambda f: cost[f])
    better = cost[best] > total[out] if reverse else cost[best] < total[out]
    return tuple(best if m == out else m for m in members) if better else members


def ensemble_of(name: str, errors: np.ndarray) -> tuple[int, ...]:
    """The members of an ensemble by its name."""
    members = FIRST if name.startswith("E1") else SECOND
    words = name.split()[1:]
    reverse = bool(words) and words[-1].startswith("reverse")
    if not words:
        return members
    once = swapped(errors, members, reverse, place=int(words[0] == "other"))
    return swapped(errors, once, reverse) if words[0] == "two" else once


def best_ensemble(errors: np.ndarray, size: int) -> tuple[tuple[int, ...], int]:
    """The ensemble with the fewest mutual errors of all, by looking at every one."""
    found = min(itertools.combinations(range(COUNT), size), key=lambda members: joint(errors, members))
    return found, joint(errors, found)
