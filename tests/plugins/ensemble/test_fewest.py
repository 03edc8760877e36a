"""The integer program against looking at every ensemble."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from verifolio.plugins.ensemble.fewest import fewest_errors
from verifolio.plugins.ensemble.scores import MutualErrors, replace_members


def pairs(seed: int, count: int, most: int) -> MutualErrors:
    drawn = np.triu(np.random.default_rng(seed).integers(0, most, (count, count)), 1)
    found = drawn + drawn.T
    return MutualErrors(found, np.zeros_like(found), most)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("count", "size", "most"), [(8, 4, 50), (10, 5, 3), (12, 3, 2000), (6, 5, 9)])
def test_as_few_as_the_best_of_all(seed: int, count: int, size: int, most: int) -> None:
    errors = pairs(seed, count, most)
    found = fewest_errors(errors, size)
    assert found.proved
    assert len(set(found.ensemble)) == size
    assert found.joint_errors == errors.joint_errors(found.ensemble)
    assert found.joint_errors == min(errors.joint_errors(e) for e in combinations(range(count), size))


def test_sets_of_three() -> None:
    rng = np.random.default_rng(1)
    groups = {sum(1 << m for m in g): (int(rng.integers(0, 9)), 0) for g in combinations(range(7), 3)}
    errors = MutualErrors(np.zeros((7, 7), int), np.zeros((7, 7), int), 9, 3, groups)
    found = fewest_errors(errors, 4)
    assert found.proved
    assert found.joint_errors == min(errors.joint_errors(e) for e in combinations(range(7), 4))


def test_swaps_may_end_at_a_worse_one() -> None:
    """Replacing members one by one stops where no single swap helps; the program does not."""
    worse = 0
    for seed in range(20):
        errors = pairs(seed, 10, 30)
        swaps = replace_members(errors, range(5), 20)
        last = swaps[-1].ensemble if swaps else tuple(range(5))
        best = fewest_errors(errors, 5)
        assert best.joint_errors <= errors.joint_errors(last)
        worse += best.joint_errors < errors.joint_errors(last)
    assert worse > 0


def test_no_errors_at_all() -> None:
    errors = MutualErrors(np.zeros((4, 4), int), np.zeros((4, 4), int), 5)
    assert fewest_errors(errors, 2).joint_errors == 0


def test_open_questions_count_as_none() -> None:
    found, left = np.zeros((4, 4), int), np.zeros((4, 4), int)
    found[0, 1] = found[1, 0] = 3
    left[2, 3] = left[3, 2] = 3
    assert fewest_errors(MutualErrors(found, left, 5), 2).joint_errors == 0
