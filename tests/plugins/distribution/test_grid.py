"""The scheduler of k-binary search, on simulated query times."""

from __future__ import annotations

import random

import pytest

from verifolio.errors import SoundnessAlarm
from verifolio.model.answer import Verdict
from verifolio.plugins.distribution.grid import Scheduler, splits
from verifolio.plugins.distribution.parse import parse_epsilons
from verifolio.plugins.distribution.simulate import draw_times, simulate

SIZE = 200


def test_one_at_a_time_needs_at_most_eight_queries_of_two_hundred() -> None:
    for critical in range(SIZE + 1):
        found = simulate(1, critical, draw_times(critical, critical, SIZE))
        assert (found.lo, found.hi) == (critical - 1, critical)
        assert found.queries <= 8
        assert found.cancelled == 0


def test_more_at_a_time_finds_the_same_sooner() -> None:
    mean_wall = {}
    for k in (1, 2, 4, 8, 16):
        runs = [simulate(k, c, draw_times(1000 + c, c, SIZE)) for c in range(SIZE + 1)]
        assert [(r.lo, r.hi) for r in runs] == [(c - 1, c) for c in range(SIZE + 1)]
        mean_wall[k] = sum(r.wall for r in runs) / len(runs)
    walls = list(mean_wall.values())
    assert walls == sorted(walls, reverse=True)
    assert walls[-1] < 0.5 * walls[0]


def test_random_finishing_order_needs_the_expected_number_of_queries() -> None:
    """Means of a long simulation of the same rule: 7.7, 11.3, 17.3, 27.4."""
    for k, expected in ((1, 7.73), (2, 11.28), (4, 17.3), (8, 27.45)):
        rng = random.Random(k)
        counts = [
            simulate(k, c, [rng.expovariate(1) for _ in range(SIZE)]).queries for c in range(0, SIZE + 1, 2)
        ]
        assert sum(counts) / len(counts) == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_unanswered_queries_narrow_nothing(k: int) -> None:
    undecided = frozenset(range(95, 103))
    found = simulate(k, 100, draw_times(5, 100, SIZE), undecided)
    assert (found.lo, found.hi) == (94, 103)


def test_everything_undecided_asks_every_radius_once() -> None:
    found = simulate(3, 100, draw_times(6, 100, SIZE), frozenset(range(SIZE)))
    assert (found.lo, found.hi) == (-1, SIZE)
    assert found.queries == SIZE


def test_answers_cancel_what_they_make_pointless() -> None:
    scheduler = Scheduler(100, 3)
    assert scheduler.launch() == [25, 50, 75]
    assert scheduler.answer(50, Verdict.UNSAT) == [25]
    assert (scheduler.lo, scheduler.hi, scheduler.running) == (50, 100, {75})
    assert scheduler.launch() == [74, 76]
    assert scheduler.answer(75, Verdict.SAT) == [76]
    assert scheduler.hi == 75


def test_a_cancelled_query_that_answers_all_the_same_is_checked() -> None:
    scheduler = Scheduler(100, 3)
    scheduler.launch()
    scheduler.answer(50, Verdict.UNSAT)
    assert scheduler.answer(25, Verdict.CANCELLED) == []
    assert scheduler.unanswered == set()
    with pytest.raises(SoundnessAlarm, match="contradict"):
        scheduler.answer(25, Verdict.SAT)


def test_a_contradiction_is_an_alarm() -> None:
    scheduler = Scheduler(10, 2)
    first, second = scheduler.launch()
    scheduler.answer(first, Verdict.SAT)
    with pytest.raises(SoundnessAlarm):
        scheduler.answer(second, Verdict.UNSAT)


def test_an_earlier_run_is_taken_over() -> None:
    scheduler = Scheduler(SIZE, 1)
    scheduler.recall(
        [(100, Verdict.SAT), (50, Verdict.UNSAT), (75, Verdict.TIMEOUT), (60, Verdict.CANCELLED)]
    )
    assert (scheduler.lo, scheduler.hi, scheduler.unanswered) == (50, 100, {75})
    assert 60 in scheduler.candidates()


def test_splits_are_equal_parts() -> None:
    assert splits(list(range(200)), 1) == [100]
    assert splits(list(range(10)), 4) == [2, 4, 6, 8]
    assert splits([3, 7], 4) == [3, 7]
    assert splits([], 4) == []


def test_the_papers_grid() -> None:
    radii = parse_epsilons("0.001:0.4:0.002")
    assert len(radii) == 200
    assert (radii[0], radii[1], radii[-1]) == (0.001, 0.003, 0.399)
