"""001: uniqueness and swaps against the installed selection, intervals against scipy, judgements on made-up rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from verifolio.plugins.ensemble.scores import MutualErrors, replace_members
from verifolio.plugins.studies.amir import tables
from verifolio.plugins.studies.amir.members import COUNT, FIRST, SECOND
from verifolio.plugins.studies.amir.mutual import (
    PAIRS,
    RADII,
    WAYS,
    best_ensemble,
    ensemble_of,
    joint,
    mutual_errors,
    swapped,
    uniqueness,
)
from verifolio.plugins.studies.study import Tables


def random_errors(seed: int, balls: int = 60) -> np.ndarray:
    drawn = np.triu(np.random.default_rng(seed).integers(0, balls, (COUNT, COUNT)), 1)
    return drawn + drawn.T


@pytest.mark.parametrize("seed", range(8))
def test_scores_and_swaps_are_those_of_the_selection(seed: int) -> None:
    errors = random_errors(seed)
    known = MutualErrors(errors, np.zeros_like(errors), 60)
    for member in FIRST:
        assert uniqueness(errors, 60, member, FIRST) == pytest.approx(
            float(known.uniqueness(member, FIRST).lower)
        )
    for reverse, start in ((False, FIRST), (True, SECOND)):
        steps = replace_members(known, start, 1, reverse)
        assert joint(errors, swapped(errors, start, reverse)) == (
            steps[0].joint_errors if steps else known.joint_errors(start)
        )


def test_the_best_ensemble_is_no_worse_than_any() -> None:
    errors = random_errors(3)
    best, fewest = best_ensemble(errors, 5)
    assert joint(errors, best) == fewest
    assert fewest <= min(joint(errors, m) for m in (FIRST, SECOND, swapped(errors, FIRST)))


def test_names_of_ensembles() -> None:
    errors = random_errors(1)
    assert ensemble_of("E1", errors) == FIRST and ensemble_of("E2", errors) == SECOND
    assert len(set(ensemble_of("E1 selected", errors))) == 5
    assert joint(errors, ensemble_of("E2 reversed", errors)) >= joint(errors, SECOND)


def mutual(way: str, each: int, block: str = "0", radius: str = "0.02", left: int = 0) -> dict[str, str]:
    counts = {"found": " ".join([str(each)] * len(PAIRS)), "open": " ".join([str(left)] * len(PAIRS))}
    return {
        "data": "mnist",
        "block": block,
        "way": way,
        "radius": radius,
        "points": "10",
        "timeout": "60",
    } | counts


def test_rows_add_up() -> None:
    rows = [mutual("verify", 2), mutual("verify", 3, block="1"), mutual("verify", 9, radius="0.04")]
    errors, left, balls = mutual_errors(Tables({"mutual": rows}), "mnist", "verify", "0.02")
    assert balls == 20 and int(errors.sum()) == 2 * 45 * 5 and not left.any()
    assert uniqueness(errors, balls, 0, FIRST) == pytest.approx(0.75)
    assert mutual_errors(Tables({"mutual": rows}), "mnist", "verify")[2] == 30


def test_orders_are_judged_where_all_methods_saw_the_same_balls() -> None:
    rows = [mutual(way, k + 1) for k, way in enumerate(WAYS)]
    said = [str(s.judgement) for s in tables.attacks(Tables({"mutual": rows})).statements]
    assert said == ["confirmed", "refuted", "confirmed"], "a quarter is missed, not 44 %"
    assert not tables.attacks(Tables({"mutual": rows[:3]})).statements
    wide = [*rows[:3], mutual("verify", 4, left=3)]
    assert str(tables.attacks(Tables({"mutual": wide})).statements[2].judgement) == "refuted"


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (3, 10), (57, 200), (200, 200)])
def test_intervals_are_wilsons(hits: int, count: int) -> None:
    wanted = stats.binomtest(hits, count).proportion_ci(method="wilson")
    assert tables.wilson(hits, count) == pytest.approx((wanted.low, wanted.high), abs=1e-4)


def robust(ensemble: str, proved: int, broken: int) -> list[dict[str, str]]:
    base = {
        "data": "mnist",
        "block": "0",
        "ensemble": ensemble,
        "members": "1 2",
        "points": "100",
        "timeout": "60",
    }
    counts = {"robust": str(proved), "broken": str(broken), "open": str(100 - proved - broken)}
    return [base | counts | {"radius": f"{r:g}"} for r in RADII]


@pytest.mark.parametrize(
    ("proved", "broken", "said"),
    [(60, 40, "confirmed"), (10, 90, "refuted"), (31, 69, "not decided"), (20, 40, "not decided")],
)
def test_robust_accuracy_is_judged_by_intervals(proved: int, broken: int, said: str) -> None:
    rows = [*robust("E1", 30, 70), *robust("E1 selected", proved, broken)]
    found = tables.accuracy_statements(Tables({"robust": rows}), "mnist")
    assert str(found[0].judgement) == said
    assert str(found[1].judgement) == "not decided"


def test_fractions_agree() -> None:
    errors = random_errors(2)
    known = MutualErrors(errors, np.zeros_like(errors), 60)
    assert known.uniqueness(0, FIRST).lower == Fraction(60 * 4 - int(errors[0, list(FIRST)].sum()), 60 * 4)
