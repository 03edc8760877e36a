"""001: uniqueness and swaps against the installed selection, intervals against scipy, judgements on made-up rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from verifolio.plugins.ensemble.fewest import fewest_errors
from verifolio.plugins.ensemble.scores import MutualErrors, replace_members
from verifolio.plugins.studies.amir import curves, tables
from verifolio.plugins.studies.amir.ensembles import (
    ENSEMBLES,
    PAPER,
    best_ensemble,
    ensemble_of,
    joint,
    mean_uniqueness,
    mutual_errors,
    swapped,
    uniqueness,
)
from verifolio.plugins.studies.amir.members import COUNT, FIRST, SECOND
from verifolio.plugins.studies.amir.mutual import PAIRS, WAYS
from verifolio.plugins.studies.amir.robust import RADII, named, softmax
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


def test_the_best_ensemble_is_the_one_of_the_integer_program() -> None:
    errors = random_errors(3)
    best, fewest = best_ensemble(errors, 5)
    assert joint(errors, best) == fewest
    assert fewest <= min(joint(errors, m) for m in (FIRST, SECOND, swapped(errors, FIRST)))
    found = fewest_errors(MutualErrors(errors, np.zeros_like(errors), 60), 5)
    assert (found.joint_errors, found.proved) == (fewest, True)


def test_a_failed_attack_leaves_nothing_open() -> None:
    rows = [mutual("ga1", 4, left=6), mutual("verify", 4, left=1)]
    lines = tables.means(Tables({"mutual": rows}))
    assert any("| mnist | ga1 | 10 | 95.4 / 60.00 |" in line for line in lines)
    assert any("| mnist | verify | 10 | 55 / 50.00 to 60.00 |" in line for line in lines)
    assert any("180 of 450 (40.0 %)" in line for line in tables.attacks(Tables({"mutual": rows})).lines)


@pytest.mark.parametrize("seed", range(4))
def test_ensembles_of_the_figures(seed: int) -> None:
    errors = random_errors(seed)
    assert (
        ensemble_of("E1", errors) == FIRST
        and ensemble_of("E2", errors) == ensemble_of("E4", errors) == SECOND
    )
    one, two = (ensemble_of(f"E4 {w}", errors) for w in ("swap", "two swaps"))
    assert joint(errors, SECOND) >= joint(errors, one) >= joint(errors, two)
    down, further = (ensemble_of(f"E4 {w}", errors) for w in ("reverse", "two reverses"))
    assert joint(errors, SECOND) <= joint(errors, down) <= joint(errors, further)
    least, other = (set(FIRST) - set(ensemble_of(f"E1 {w}", errors)) for w in ("swap", "other swap"))
    assert not least & other, "the two swaps replace different members"
    scores = {m: uniqueness(errors, 60, m, FIRST) for m in FIRST}
    assert all(scores[m] == min(scores.values()) for m in least)
    assert set(PAPER) == {e for names in ENSEMBLES.values() for e in names if " " in e}


def test_mean_uniqueness_is_highest_where_errors_are_fewest() -> None:
    errors = random_errors(5)
    best, fewest = best_ensemble(errors, 5)
    assert mean_uniqueness(errors, 60, best) == pytest.approx(1 - fewest / (60 * 10))
    assert np.isnan(mean_uniqueness(errors, 0, best))


def test_a_softmax_adds_up_to_one() -> None:
    values = np.random.default_rng(0).normal(0, 300, (3, 7, 10))
    assert softmax(values).sum(axis=-1) == pytest.approx(1)
    assert (softmax(values).argmax(-1) == values.argmax(-1)).all()


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
    assert curves.wilson(hits, count) == pytest.approx((wanted.low, wanted.high), abs=1e-4)


def robust(ensemble: str, proved: int, broken: int, errors: np.ndarray) -> list[dict[str, str]]:
    base = {"data": "mnist", "block": "0", "ensemble": ensemble, "points": "100", "timeout": "60"}
    counts = {"robust": str(proved), "broken": str(broken), "open": str(100 - proved - broken)}
    members = {"members": named(ensemble_of(ensemble, errors))}
    return [base | counts | members | {"radius": f"{r:g}"} for r in RADII]


def drawn_mutual() -> tuple[dict[str, str], np.ndarray]:
    """A row in which pairs differ, and its matrix."""
    errors = random_errors(0, 10)
    each = " ".join(str(errors[a, b]) for a, b in PAIRS)
    return mutual("verify", 0) | {"found": each}, errors


@pytest.mark.parametrize(
    ("proved", "broken", "said"),
    [(60, 40, "confirmed"), (10, 90, "refuted"), (31, 69, "not decided"), (20, 40, "not decided")],
)
def test_robust_accuracy_is_judged_by_intervals(proved: int, broken: int, said: str) -> None:
    row, errors = drawn_mutual()
    rows = [*robust("E1", 30, 70, errors), *robust("E1 swap", proved, broken, errors)]
    found = curves.accuracy_statements(Tables({"robust": rows, "mutual": [row]}), "mnist")
    assert str(found[0].judgement) == said
    assert str(found[1].judgement) == "not decided"


def test_rows_of_members_that_are_no_longer_chosen_do_not_count() -> None:
    row, errors = drawn_mutual()
    rows = robust("E1 swap", 60, 40, errors)
    now = Tables({"robust": rows, "mutual": [row]})
    assert curves.robust_rows(now, "mnist", "E1 swap", "0.02") == (60, 40, 100)
    later = Tables(
        {"robust": rows, "mutual": [row, mutual("verify", 0, block="1") | {"found": reversed_counts(row)}]}
    )
    assert curves.robust_rows(later, "mnist", "E1 swap", "0.02") == (0, 0, 0)


def reversed_counts(row: dict[str, str]) -> str:
    """Counts that turn the order of the pairs around ten times over."""
    return " ".join(str(10 * (10 - int(c))) for c in row["found"].split())


def test_accuracy_after_swaps() -> None:
    row, errors = drawn_mutual()

    def whole(ensemble: str, right: int) -> dict[str, str]:
        members = named(ensemble_of(ensemble, errors))
        return {
            "data": "mnist",
            "ensemble": ensemble,
            "members": members,
            "n": "1000",
            "right": str(right),
        } | {"otherwise": "3"}

    for right, said in ((962, "confirmed"), (963, "refuted")):
        rows = [whole("E1", 960), whole("E1 swap", right)]
        made = Tables({"ensembles": rows, "mutual": [row]})
        assert str(curves.kept_accuracy(made, "mnist").judgement) == said
        assert "at most 3 of 1000" in curves.averaging(made, "mnist")[0]


def test_fractions_agree() -> None:
    errors = random_errors(2)
    known = MutualErrors(errors, np.zeros_like(errors), 60)
    assert known.uniqueness(0, FIRST).lower == Fraction(60 * 4 - int(errors[0, list(FIRST)].sum()), 60 * 4)
