"""The ensemble with the fewest mutual errors of all, by integer programming."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import sparse

from verifolio.encode.model import Model, ModelBuilder

from .scores import MutualErrors

SECONDS = 60.0  # for the program; ten networks need a hundredth of a second, and an unproved answer says so


@dataclass(frozen=True)
class Fewest:
    """Members, their mutual errors counted again, and whether no other choice has fewer."""

    ensemble: tuple[int, ...]
    joint_errors: int
    proved: bool


def fewest_errors(errors: MutualErrors, size: int, seconds: float = SECONDS) -> Fewest:
    """Of all ensembles of a size one with the fewest mutual errors; open questions count as no error.

    At a fixed size that is the one with the highest mean uniqueness score. Replacing members one by one may end
    at another.
    """
    from .highs import Ending, minimise  # HiGHS is imported when it is wanted

    count = len(errors.found)
    groups = {g: n for g in combinations(range(count), errors.together) if (n := errors.counts(g)[0])}
    solution = minimise(program(count, groups, size), seconds)
    if solution.point is None:
        chosen = tuple(range(size))
    else:
        chosen = tuple(sorted(int(m) for m in np.argsort(-solution.point[:count], kind="stable")[:size]))
    total = errors.joint_errors(chosen)
    # whole numbers: a bound above the next smaller one leaves nothing below
    return Fewest(chosen, total, solution.ending is Ending.OPTIMAL and solution.bound > total - 1 + 1e-6)


def program(count: int, groups: dict[tuple[int, ...], int], size: int) -> Model:
    """A binary per network, `size` of them one; a column per group that is at least one where all of it are in."""
    builder = ModelBuilder()
    members = builder.add_columns(np.zeros(count), np.ones(count), integer=True)
    builder.add_rows(
        [(sparse.csr_array(np.ones((1, count))), members)], np.array([float(size)]), np.array([float(size)])
    )
    together = builder.add_columns(np.zeros(len(groups)), np.ones(len(groups)))
    if groups:
        inside = np.array([[float(m in group) for m in range(count)] for group in groups])
        both = sparse.csr_array(np.hstack([inside, -np.eye(len(groups))]))
        at_most = inside.sum(axis=1) - 1  # all members of a group in, and its column must be one
        builder.add_rows(
            [(both, np.concatenate([members, together]))], np.full(len(groups), -np.inf), at_most
        )
    return builder.model(np.concatenate([np.zeros(count), np.array(list(groups.values()), np.float64)]))
