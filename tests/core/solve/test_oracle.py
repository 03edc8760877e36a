"""The oracle: caching, monotone inference, parallel asking, cancelling, conflicts, storing."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verifolio.errors import InputError, SoundnessAlarm
from verifolio.model.answer import Answer, Flag, Outcome, Verdict
from verifolio.model.problem import Ball, Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.choice import Choice
from verifolio.plugin.executor import Executor
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context, Verifier
from verifolio.portfolio.tree import Member, Portfolio, Series, single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.storage.store import Store
from verifolio.testing import hostile_verifiers as bad
from verifolio.testing.samples import reaches, write_sum


class Sums(Verifier):
    """Decides `y_0 >= threshold` for the sum network on a box of non-negative points, by adding up."""

    name = "sums"
    can_prove = True
    can_falsify = True

    def run(self, problem: Problem, context: Context) -> Outcome:
        if problem.domain.upper.sum() >= -problem.disjuncts[0].rhs[0]:
            return Outcome.found(problem.domain.upper)
        return Outcome.proved()


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return write_sum(tmp_path)


@pytest.fixture(autouse=True)
def _alarms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))


@pytest.fixture(scope="module")
def place() -> Iterator[Executor]:
    with current_plugins().executors.get("process")(2) as executor:
        yield executor


def inline(verifier: Verifier | None = None, **more: object) -> Oracle:
    return Oracle(single_verifier(verifier or Sums()), "inline", **more)  # type: ignore[arg-type]


def upto(network: Network, threshold: float, radius: float, **more: object) -> Query:
    return reaches(network, threshold, (0.0, 0.0), (radius, radius), **more)  # type: ignore[arg-type]


def test_the_same_question_is_answered_once(network: Network) -> None:
    with inline() as oracle:
        first, second = oracle.ask(reaches(network, 1.5)), oracle.ask(reaches(network, 1.5))
    assert first.verdict is Verdict.SAT
    assert second == replace(first, reused=True)
    assert oracle.counts == {"run": 1, "cached": 1}


def test_after_an_attack_only_provers_are_asked(network: Network) -> None:
    both = Portfolio(Series((Member(Choice("pgd")), Member(Sums()))))
    with Oracle(both, "inline", timeout=5.0) as oracle:
        asked = oracle.ask(reaches(network, 9.0), attacked=True)
        again = oracle.ask(reaches(network, 8.0))
    assert [a.verifier for a in asked.attempts] == ["sums"]
    assert [a.verifier for a in again.attempts] == ["pgd", "sums"]


class Seen(Sums):
    """Says whether attacks were made before."""

    name = "seen"

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.unknown("attacked" if context.evidence.attacked else "fresh")


def test_members_can_see_that_others_attacked(network: Network) -> None:
    with Oracle(single_verifier(Seen()), "inline", timeout=5.0) as oracle:
        told = [a.reason for _, a in oracle.ask_many([reaches(network, 9.0)], attacked=True)]
        untold = [a.reason for _, a in oracle.ask_many([reaches(network, 8.0)])]
    assert "attacked" in told[0]
    assert "fresh" in untold[0]


def test_what_provers_left_open_is_asked_of_everybody(network: Network) -> None:
    """An undecided answer of fewer members is no answer of all; the other way round it is."""

    class Clueless(Verifier):
        name = "clueless"
        can_prove = True

        def run(self, problem: Problem, context: Context) -> Outcome:
            return Outcome.unknown("no idea")

    both = Portfolio(Series((Member(Choice("pgd")), Member(Clueless()))))
    query = reaches(network, 9.0)
    with Oracle(both, "inline", timeout=1.0) as oracle:
        asked = [oracle.ask(query, attacked=attacked).attempts for attacked in (True, False, True)]
    assert [len(attempts) for attempts in asked] == [1, 2, 2]
    assert oracle.counts == {"run": 2, "cached": 1}


def test_a_proof_covers_every_subset(network: Network) -> None:
    with inline() as oracle:
        assert oracle.ask(upto(network, 3.0, 1.0)).verdict is Verdict.UNSAT
        smaller = oracle.ask(upto(network, 3.0, 0.5))
        assert smaller.verdict is Verdict.UNSAT
        assert smaller.flags == {Flag.INFERRED}
        assert Flag.INFERRED not in oracle.ask(upto(network, 3.0, 1.25)).flags
        assert Flag.INFERRED not in oracle.ask(upto(network, 2.9, 0.5)).flags


def test_a_witness_covers_every_superset(network: Network) -> None:
    with inline() as oracle:
        assert oracle.ask(upto(network, 1.5, 1.0)).verdict is Verdict.SAT
        larger = oracle.ask(upto(network, 1.5, 2.0))
        assert larger.verdict is Verdict.SAT
        assert Flag.INFERRED in larger.flags
        assert larger.witness is not None
        assert larger.witness.x.tolist() == [1.0, 1.0]
        assert oracle.ask(upto(network, 1.5, 0.25)).verdict is Verdict.UNSAT


def test_inference_respects_balls(network: Network) -> None:
    def ball(radius: float) -> Ball:
        return Ball(np.zeros(2), radius, 1.0)

    with inline() as oracle:
        assert oracle.ask(upto(network, 3.0, 1.0, ball=ball(0.5))).verdict is Verdict.UNSAT
        assert Flag.INFERRED in oracle.ask(upto(network, 3.0, 1.0, ball=ball(0.25))).flags
        assert Flag.INFERRED not in oracle.ask(upto(network, 3.0, 1.0, ball=ball(0.75))).flags
        assert Flag.INFERRED not in oracle.ask(upto(network, 3.0, 1.0)).flags


def test_inference_can_be_switched_off(network: Network) -> None:
    with inline(infer=False) as oracle:
        for radius in (1.0, 0.5):
            assert not oracle.ask(upto(network, 3.0, radius)).flags
    assert oracle.counts == {"run": 2}


def test_a_false_proof_meets_a_known_witness(network: Network) -> None:
    with inline(bad.Corners()) as oracle:
        assert oracle.ask(upto(network, 1.5, 1.0)).verdict is Verdict.SAT
        oracle.infer = False
        oracle.portfolio = single_verifier(bad.WrongProof())
        with pytest.raises(SoundnessAlarm, match="hostile-wrong-proof"):
            oracle.ask(upto(network, 1.5, 2.0))


def test_a_witness_meets_a_known_false_proof(network: Network) -> None:
    with inline(bad.Corners(), alarm=False, infer=False) as oracle:
        oracle._knowledge.learn(upto(network, 1.5, 2.0), Answer(Verdict.UNSAT, "somebody"))
        answer = oracle.ask(upto(network, 1.5, 1.0))
        assert answer.verdict is Verdict.SAT
        assert Flag.ALARM in answer.flags
        oracle.infer = True  # the false proof is forgotten
        assert oracle.ask(upto(network, 1.5, 0.8)).verdict is not Verdict.UNSAT


def test_a_disagreement_within_rounding_is_no_alarm(network: Network) -> None:
    """y_0 <= 1 at (1, 2^-30) holds in float32 only."""
    from verifolio.vnnlib import box_case, make_rows, specification_from_cases

    case = box_case([1.0, 2.0**-30], [1.0, 2.0**-30], [make_rows([({2: 1.0}, 1.0)])])
    query = Query((network,), specification_from_cases([case], output_size=2))
    with inline(bad.WrongProof()) as oracle:
        assert oracle.ask(query).verdict is Verdict.UNSAT
        oracle.infer = False
        oracle._cache.clear()
        oracle.portfolio = single_verifier(bad.Corners())
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.SAT
    assert {Flag.NUMERICAL, Flag.FLOAT_ONLY} <= answer.flags


def test_several_regions_need_several_proofs(network: Network) -> None:
    from verifolio.vnnlib import specification_from_cases

    def both(a: float, b: float) -> Query:
        cases = [upto(network, 3.0, r).specification.cases[0] for r in (a, b)]
        return Query((network,), specification_from_cases(cases, output_size=2))

    with inline() as oracle:
        assert oracle.ask(both(0.5, 1.0)).verdict is Verdict.UNSAT
        assert Flag.INFERRED in oracle.ask(upto(network, 3.0, 0.75)).flags
        assert Flag.INFERRED in oracle.ask(both(0.25, 0.75)).flags
        assert oracle.ask(both(0.25, 2.0)).verdict is Verdict.SAT


def test_an_empty_region_holds_no_counterexample(network: Network) -> None:
    with inline(bad.Noisy()) as oracle:
        assert oracle.ask(reaches(network, 0.0, (1.0, 1.0), (0.0, 0.0))).verdict is Verdict.UNSAT


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("threshold", "verdict"), [(3.5, Verdict.SAT), (4.5, Verdict.UNSAT)])
def test_several_networks_are_one_question(
    network: Network, shared: bool, threshold: float, verdict: Verdict
) -> None:
    """The first outputs of two networks add up to at most 4 on the unit box."""
    from verifolio.vnnlib import box_case, make_rows, specification_from_cases

    inputs = 2 if shared else 4
    rows = make_rows([({inputs: -1.0, inputs + 2: -1.0}, -threshold)])
    case = box_case([0.0] * inputs, [1.0] * inputs, [rows])
    query = Query((network, network), specification_from_cases([case], output_size=4), shared_input=shared)
    with Oracle(None, "inline", timeout=20.0) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is verdict, answer.reason
    if answer.witness is not None:
        assert len(answer.witness.y) == 4


def test_many_are_answered_as_they_finish(network: Network, place: Executor) -> None:
    queries = [reaches(network, 1.0 + 0.125 * k) for k in range(16)]
    with Oracle(single_verifier(bad.Corners()), place, timeout=20.0) as oracle:
        found = dict(oracle.ask_many(queries))
    assert sorted(found) == list(range(16))
    for k, answer in found.items():
        assert answer.verdict is (Verdict.SAT if k <= 8 else Verdict.UNKNOWN)


def test_running_queries_can_be_cancelled(network: Network, place: Executor) -> None:
    with Oracle(single_verifier(bad.Stubborn()), place, timeout=60.0) as oracle:
        askings = [oracle.submit(reaches(network, 2.5 + k)) for k in range(5)]
        assert oracle.wait(askings, timeout=0.3) == []
        started = time.monotonic()
        for asking in askings:
            asking.cancel()
        verdicts = {asking.answer(20.0).verdict for asking in askings}
    assert verdicts == {Verdict.CANCELLED}
    assert time.monotonic() - started < 10.0


def test_leaving_the_loop_cancels_the_rest(network: Network, place: Executor) -> None:
    queries = [reaches(network, 1.5)] + [reaches(network, 2.5 + k) for k in range(3)]
    member = bad.Corners(bad.CornerOptions(seconds=0.0))
    started = time.monotonic()
    with Oracle(single_verifier(member), place, timeout=60.0) as oracle:
        for _, answer in oracle.ask_many(queries):
            assert answer.verdict in (Verdict.SAT, Verdict.UNKNOWN)
            break
    assert time.monotonic() - started < 10.0


def test_the_closest_counterexample_is_found_and_bounded(network: Network) -> None:
    query = reaches(network, 1.5)
    with Oracle(single_verifier("milp"), "inline") as oracle:
        found = oracle.closest(query, Ball(np.array([0.5, 0.5]), 0.5, math.inf), timeout=20.0)
        none = oracle.closest(query, Ball(np.array([0.5, 0.5]), 0.125, math.inf), timeout=20.0)
    assert found.witness is not None
    assert found.lower <= 0.25 <= found.distance
    assert found.distance - found.lower < 1e-3
    assert none.witness is None
    assert none.lower >= 0.125


def test_bad_input_reaches_the_asker(network: Network) -> None:
    query = reaches(network, 1.0, (0.0,) * 3, (1.0,) * 3)
    with inline() as oracle, pytest.raises(InputError, match="2 inputs"):
        oracle.ask(query)


def test_an_undecided_answer_serves_shorter_requests_only(network: Network) -> None:
    with inline(bad.Noisy()) as oracle:
        for timeout, runs in ((10.0, 1), (5.0, 1), (20.0, 2)):
            assert oracle.ask(reaches(network, 2.5), timeout).verdict is Verdict.UNKNOWN
            assert oracle.counts["run"] == runs


def test_a_rerun_continues_from_the_store(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    for _ in range(2):
        with Store(path) as store, inline(store=store) as oracle:
            sat, unsat = oracle.ask(reaches(network, 1.5)), oracle.ask(reaches(network, 2.5))
        assert (sat.verdict, unsat.verdict) == (Verdict.SAT, Verdict.UNSAT)
        assert sat.witness is not None
        assert sat.witness.x.tolist() == [1.0, 1.0]
        assert sat.witness.margins == (0.5,)
        assert [a.verifier for a in sat.attempts] == ["sums"]
    assert oracle.counts == {"stored": 2}
    rows = sqlite3.connect(path).execute("SELECT verdict, seed, versions FROM answers").fetchall()
    assert [r[0] for r in rows] == ["sat", "unsat"]
    assert "onnxruntime" in rows[0][2]


def test_the_store_keeps_portfolios_and_timeouts_apart(network: Network, tmp_path: Path) -> None:
    query = reaches(network, 2.5)
    with Store(tmp_path / "answers.db") as store:
        for portfolio, timeout in ((single_verifier(bad.Noisy()), 5.0), (single_verifier(Sums()), 5.0)):
            with Oracle(portfolio, "inline", store, timeout=timeout) as oracle:
                oracle.ask(query)
        assert [r["verdict"] for r in store.answers()] == ["unknown", "unsat"]

        def counts(portfolio: Portfolio, timeout: float) -> dict[str, int]:
            with Oracle(portfolio, "inline", store, timeout=timeout) as oracle:
                oracle.ask(query)
            return oracle.counts

        assert counts(single_verifier(bad.Noisy()), 5.0) == {"stored": 1}
        assert counts(single_verifier(Sums()), math.inf) == {"stored": 1}
        assert counts(single_verifier(bad.Noisy()), 6.0) == {"run": 1}
        assert counts(single_verifier(bad.Noisy()), 6.0) == {"stored": 1}


def test_a_file_that_is_no_store_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    path.write_text("this is not a database, it only looks like one " * 10)
    with pytest.raises(InputError, match="store"):
        Store(path)


def test_the_query_hash_depends_on_content_only(network: Network) -> None:
    assert reaches(network, 1.5).sha256 == replace(reaches(network, 1.5), name="other").sha256
    assert reaches(network, 1.5).sha256 != reaches(network, 1.25).sha256


def test_a_distance_of_who_cannot_prove_is_none(network: Network) -> None:
    class Presumptuous(bad.Presumptuous):
        can_minimise = True

        def minimise(self, problem: Problem, ball: Ball, context: Context) -> Outcome:
            return Outcome(Verdict.UNSAT, distance=ball.radius)

    with Oracle(single_verifier(Presumptuous()), "inline") as oracle:
        found = oracle.closest(reaches(network, 1.9), Ball(np.array([0.5, 0.5]), 0.5, math.inf), timeout=20.0)
    assert found.lower == 0.0
