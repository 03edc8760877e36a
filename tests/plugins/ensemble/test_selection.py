"""Selection: agreement points, mutual errors, scores as intervals, replacements, resuming, commands."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.cli.main import run
from verifolio.data import load_data
from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.onnx_import.network import Network
from verifolio.plugins.ensemble.ledger import EnsembleLedger
from verifolio.plugins.ensemble.scores import Interval, MutualErrors, replace_members
from verifolio.plugins.ensemble.selection import (
    EnsembleSelection,
    SelectionOptions,
    SelectionRequest,
    SelectionResult,
    agreement_points,
)

EXAMPLES = Path(__file__).parents[3] / "examples" / "ensemble"
RADII = (0.05, 0.09)


@pytest.fixture(scope="module")
def networks() -> tuple[Network, ...]:
    return tuple(Network.load(EXAMPLES / f"digits_{n}.onnx") for n in "abe")


def choose(
    tiny: Any, networks: tuple[Network, ...], test: int = 0, **options: Any
) -> tuple[SelectionResult, Any]:
    data = load_data("digits:train")
    request = SelectionRequest(
        networks, data, RADII, (0, 1), 8, None, (0.0, 1.0), load_data("digits:test"), tuple(range(test))
    )
    method = options.pop("method", "verify")
    settings = SelectionOptions("verify" if method == "verify" else "attack", **options)
    how = "search" if method == "verify" else method
    with tiny.inline(timeout=10.0, steps=10, restarts=1, method=how) as oracle:
        return EnsembleSelection(settings).run(request, oracle), oracle.counts


def errors(found: list[list[int]], left: list[list[int]] | None = None, balls: int = 10) -> MutualErrors:
    return MutualErrors(np.array(found), np.array(left or np.zeros_like(found)), balls)


def test_agreement_points_are_the_first_that_all_get_right(tiny: Any, networks: tuple[Network, ...]) -> None:
    data = load_data("digits:test")
    with tiny.inline() as oracle:
        found = agreement_points(networks, data, 15, oracle)
        fives = agreement_points(networks, data, 4, oracle, label=5)
        with pytest.raises(InputError, match="correctly"):
            agreement_points(networks, data.take([]), 4, oracle)
    assert len(found) == 15
    for i in range(found[-1] + 1):
        right = all(int(n.replay(data.image(i)).argmax()) == data.labels[i] for n in networks)
        assert (i in found) == right
    assert all(data.labels[i] == 5 for i in fives)


def test_attacks_find_less_than_verification(
    tiny: Any, networks: tuple[Network, ...], tmp_path: Path
) -> None:
    counts = []
    for method in ("ga1", "ga2", "ga3", "verify"):
        result, _ = choose(tiny, networks, method=method)
        counts.append([int(e.found.sum()) // 2 for e in result.by_epsilon])
        assert int(result.errors.open.sum()) == 0 or method != "verify"
    for weak, strong in pairwise(counts):
        assert all(a <= b for a, b in zip(weak, strong, strict=True))
    assert sum(counts[-1]) > 0


def test_a_second_run_asks_nothing(tiny: Any, networks: tuple[Network, ...], tmp_path: Path) -> None:
    store = str(tmp_path / "facts.db")
    first, asked = choose(tiny, networks, test=3, store=store)
    assert asked.get("run", 0) > 0
    again, asked = choose(tiny, networks, test=3, store=store)
    assert asked == {}
    assert (again.errors.found == first.errors.found).all()
    assert [a.share for a in again.before] == [a.share for a in first.before]
    ledger = EnsembleLedger(store)
    sat = [f for f in ledger if f.verdict is Verdict.SAT]
    assert sat
    assert all(f.x is not None and f.x.shape == (64,) for f in sat)
    ledger.close()


def test_scores_are_intervals_where_questions_are_open() -> None:
    m = errors([[0, 2, 4], [2, 0, 0], [4, 0, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert m.score(0, 1) == Interval(Fraction(1, 5), Fraction(3, 10))
    assert m.uniqueness(0, (0, 1, 2)) == Interval(Fraction(13, 20), Fraction(7, 10))
    assert str(m.uniqueness(2, (0, 2))) == "60.00 %"
    assert m.joint_errors((0, 1, 2)) == 6


def test_larger_sets_than_pairs(tiny: Any) -> None:
    networks = tuple(Network.load(EXAMPLES / f"digits_{n}.onnx") for n in "abce")
    data = load_data("digits:train")
    request = SelectionRequest(networks, data, (0.09,), (0, 1, 2), 6)
    with tiny.inline(timeout=20.0, steps=10, restarts=1) as oracle:
        found = EnsembleSelection(SelectionOptions(together=3)).run(request, oracle)
    assert set(found.errors.groups) == {0b0111, 0b1011, 0b1101, 0b1110}
    assert sum(count for count, _ in found.errors.groups.values()) > 0
    for mask, (count, left) in found.errors.groups.items():
        members = [m for m in range(4) if mask >> m & 1]
        assert left == 0
        assert count <= min(found.errors.found[a, b] for a in members for b in members if a != b)
        assert found.errors.joint_errors(members) == count
    others = [found.errors.score(0, 1, 2).lower]
    assert found.errors.uniqueness(0, (0, 1, 2)).lower == 1 - sum(others)
    with tiny.inline() as oracle, pytest.raises(InputError, match="the 3 members"):
        EnsembleSelection(SelectionOptions(together=4)).run(request, oracle)


def test_replacement_converges_and_errors_fall() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        found = rng.integers(0, 50, (7, 7))
        found = np.triu(found, 1) + np.triu(found, 1).T
        m = errors(found.tolist(), balls=50)
        swaps = replace_members(m, (0, 1, 2), 100)
        before = m.joint_errors((0, 1, 2))
        for swap in swaps:
            assert swap.joint_errors < before
            assert swap.after.upper > swap.before.upper
            before = swap.joint_errors
        worse = replace_members(m, (0, 1, 2), 100, reverse=True)
        assert all(s.after.upper < s.before.upper for s in worse)


def test_certified_replacement_needs_disjoint_intervals() -> None:
    found = [[0, 5, 4], [5, 0, 4], [4, 4, 0]]
    left = [[0, 0, 2], [0, 0, 2], [2, 2, 0]]
    assert len(replace_members(errors(found), (0, 1), 5, certified=True)) == 1
    assert len(replace_members(errors(found, left), (0, 1), 5)) == 1
    assert replace_members(errors(found, left), (0, 1), 5, certified=True) == []


def test_the_select_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / f"digits_{n}.onnx") for n in "abe"]
    asked = ["--data", "digits:train", "--size", "2", "--epsilon", "0.03", "--points", "4"]
    more = ["--test-points", "2", "--executor", "inline", "--timeout", "5", "--json"]
    picture = tmp_path / "heat.png"
    assert run(["ensemble", "select", *files, *asked, *more, "--picture", str(picture)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"final", "mutual_errors", "uniqueness", "swaps", "fewest", "robust_accuracy"} <= told.keys()
    assert len(told["robust_accuracy"]["before"]) == 1
    assert picture.stat().st_size > 1000
    assert run(["ensemble", "select", *files, *asked[:2], "--size", "3", "--epsilon", "0.1"]) == 2
    capsys.readouterr()
    for wrong, said in (
        (["--rank", "0.07"], "one of the radii"),
        (["--method", "ga1", "--verifier", "crown"], "names the attack"),
        (["--picture", "heat.xyz"], "a file ending in .png"),
        (["--picture", str(tmp_path / "none" / "heat.png")], "an existing folder"),
    ):
        assert run(["ensemble", "select", *files, *asked, *more, *wrong]) == 2
        told_off = capsys.readouterr().err
        assert said in told_off
        assert "bounds of networks" not in told_off  # before anything is computed


def test_the_attack_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / f"pair_{n}.onnx") for n in "ab"]
    asked = ["--data", str(EXAMPLES / "pair.npz"), "--indices", "0:3", "--executor", "inline"]
    picture, kept = tmp_path / "attack.png", tmp_path / "kept"
    more = ["--norm", "linf", "--epsilon", "0.25", "--alpha", "0.1", "--picture", str(picture)]
    assert run(["ensemble", "attack", *files, *asked, *more, "--json", "--keep-queries", str(kept)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"value_lower", "value_upper", "verdict", "probabilities", "attacks", "weights"} <= told.keys()
    assert told["verdict"] == "not-robust"
    networks = [Network.load(f) for f in files]
    data = load_data(str(EXAMPLES / "pair.npz"))
    for attack in told["attacks"]:
        for point in attack["points"]:
            x = np.array(point["x"], np.float32)
            label = int(data.labels[point["index"]])
            assert np.abs(x - data.image(point["index"])).max() <= 0.25
            wrong = [c for c, n in enumerate(networks) if n.replay(x)[1 - label] >= n.replay(x)[label]]
            assert wrong == point["fooled"]
    assert picture.stat().st_size > 1000
    assert run(["ensemble", "attack", *files, *asked, "--epsilon", "0.1", "--alpha", "much"]) == 2
    assert "--alpha" in capsys.readouterr().err
    plain = ["--epsilon", "0.0001", "--alpha", "1", "--timeout", "20"]
    assert run(["ensemble", "attack", *files, *asked, *plain]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "robust"
    assert out[1].startswith("value: ")
