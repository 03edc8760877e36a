"""Hostile verifiers in worker processes: the clock, the memory and the verdict are core's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from verifolio.model.answer import Answer, Flag, Verdict
from verifolio.onnx_import.network import Network
from verifolio.plugin.executor import Executor
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Verifier
from verifolio.portfolio.tree import Member, Portfolio, Race, Series, Stage, single_verifier
from verifolio.run.settings import Settings
from verifolio.solve.walk import Walk
from verifolio.testing import hostile_verifiers as bad
from verifolio.testing.samples import reaches, write_sum


@pytest.fixture(scope="module")
def place() -> Iterator[Executor]:
    with current_plugins().executors.get("process")(2) as executor:
        executor.warm(wait=True)
        yield executor


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return write_sum(tmp_path_factory.mktemp("network"))


@pytest.fixture(autouse=True)
def _alarms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path))


def solve(
    place: Executor,
    network: Network,
    member: Verifier | Stage,
    threshold: float = 2.5,
    timeout: float = 20.0,
    memory: int | None = None,
) -> Answer:
    portfolio = single_verifier(member) if isinstance(member, Verifier) else Portfolio(member)
    settings = Settings(timeout=timeout, memory=memory, grace=0.4)
    return Walk(reaches(network, threshold), portfolio, place, settings).run()


def test_a_deadline_is_a_deadline(place: Executor, network: Network) -> None:
    started = time.monotonic()
    answer = solve(place, network, bad.Stubborn(), timeout=0.5)
    assert answer.verdict is Verdict.TIMEOUT
    assert "stopped after" in answer.reason
    assert time.monotonic() - started < 5.0


def test_memory_has_an_end(place: Executor, network: Network) -> None:
    answer = solve(place, network, bad.Greedy(), memory=2**29)
    assert answer.verdict is Verdict.MEMOUT
    assert "limit 0.5 GB" in answer.reason


def test_a_crash_is_an_error_of_the_member(place: Executor, network: Network) -> None:
    answer = solve(place, network, bad.Crashing())
    assert answer.verdict is Verdict.ERROR
    assert answer.reason


def test_daemons_die_too(place: Executor, network: Network) -> None:
    settings = Settings(timeout=1.0, grace=0.2)
    answer = Walk(reaches(network, 2.5), single_verifier(bad.Daemon()), place, settings).run()
    assert answer.verdict is Verdict.TIMEOUT
    said = str(answer.attempts[0].stats["notes"])
    assert not psutil.pid_exists(int(said.split()[1]))


def test_printing_answers_is_not_answering(place: Executor, network: Network) -> None:
    answer = solve(place, network, bad.Noisy())
    assert answer.verdict is Verdict.UNKNOWN
    assert "made some noise" in answer.reason


def test_an_exception_is_one_line(place: Executor, network: Network) -> None:
    answer = solve(place, network, bad.Raising())
    assert answer.verdict is Verdict.ERROR
    assert "ArithmeticError: the first line the second line" in answer.reason
    assert "\n" not in answer.reason
    assert "Traceback" in answer.attempts[0].log


@pytest.mark.parametrize(
    ("member", "why"), [(bad.WrongPoint(), "by 1.5"), (bad.NoPoint(), "without a point")]
)
def test_a_wrong_sat_is_unknown(place: Executor, network: Network, member: Verifier, why: str) -> None:
    answer = solve(place, network, member)
    assert answer.verdict is Verdict.UNKNOWN
    assert why in answer.reason


def test_a_proof_needs_a_prover(place: Executor, network: Network) -> None:
    assert solve(place, network, bad.Presumptuous()).verdict is Verdict.ERROR


def test_a_witness_survives_the_member_that_found_it(place: Executor, network: Network) -> None:
    answer = solve(place, network, bad.Corners(bad.CornerOptions(hang=True)), threshold=1.5, timeout=0.5)
    assert answer.verdict is Verdict.SAT
    assert answer.witness is not None
    assert answer.witness.x.tolist() == [1.0, 1.0]


def test_every_member_is_heard_and_named(place: Executor, network: Network) -> None:
    stages = (Member(bad.Crashing()), Member(bad.Noisy()), Member(bad.WrongPoint()))
    answer = solve(place, network, Series(stages))
    assert answer.verdict is Verdict.UNKNOWN
    assert [a.verifier for a in answer.attempts] == [m.name for m in stages]
    assert all(m.name in answer.reason for m in stages)


def test_the_stages_share_one_clock(place: Executor, network: Network) -> None:
    stages = (Member(bad.Stubborn(), seconds=0.3), Member(bad.Stubborn()), Member(bad.Stubborn(), share=0.25))
    started = time.monotonic()
    answer = solve(place, network, Series(stages), timeout=1.2)
    assert answer.verdict is Verdict.TIMEOUT
    assert time.monotonic() - started < 6.0
    assert len(answer.attempts) == 3


def test_evidence_survives_its_finder_and_serves_the_next(place: Executor, network: Network) -> None:
    stages = (Member(bad.Teacher(), seconds=1.0), Member(bad.Pupil()))
    answer = solve(place, network, Series(stages), threshold=1.5)
    assert answer.verdict is Verdict.SAT
    assert answer.verifier == bad.Pupil.name
    assert answer.stats == {"source": bad.Teacher.name}


def test_a_refusal_is_recorded_and_takes_no_time(place: Executor, network: Network) -> None:
    stages = (Member(bad.Picky()), Member(bad.Noisy()), Member(bad.Picky(), share=0.9))
    answer = solve(place, network, Series(stages))
    assert answer.verdict is Verdict.UNKNOWN
    said = [(a.verifier, a.reason, a.seconds) for a in answer.attempts if a.verifier == bad.Picky.name]
    assert said == [(bad.Picky.name, "refuses: not today", 0.0)] * 2
    assert solve(place, network, bad.Picky()).reason == f"{bad.Picky.name}: refuses: not today"


def test_time_is_divided_among_those_who_want_it(place: Executor, network: Network) -> None:
    stages = (Member(bad.Noisy()), Member(bad.Picky(), share=0.9), Member(bad.Noisy(), seconds=20.0))
    walk = Walk(reaches(network, 2.5), Portfolio(Series(stages)), place, Settings(timeout=100.0))
    assert walk._allot(stages[0], 100.0, stages) == pytest.approx(100.0 / 3)  # all of it was promised away
    walk._survey()
    assert walk._allot(stages[0], 100.0, stages) == 80.0
    assert walk._allot(stages[2], 100.0, stages[2:]) == 20.0
    assert walk._allot(stages[2], 5.0, stages[2:]) == 5.0


def test_a_race_is_over_when_one_has_won(place: Executor, network: Network) -> None:
    race = Race((Member(bad.Stubborn()), Member(bad.Corners())))
    started = time.monotonic()
    answer = solve(place, network, race, threshold=1.5, timeout=60.0)
    assert answer.verdict is Verdict.SAT
    assert answer.verifier == bad.Corners.name
    assert time.monotonic() - started < 10.0
    assert {a.verifier: a.verdict for a in answer.attempts}[bad.Stubborn.name] is Verdict.CANCELLED


def test_two_that_disagree_raise_the_alarm(place: Executor, network: Network, tmp_path: Path) -> None:
    """The corner search announces its witness and hangs; then the liar claims a proof."""
    corners = Member(bad.Corners(bad.CornerOptions(hang=True)))
    race = Race((corners, Series((Member(bad.Stubborn(), seconds=1.5), Member(bad.WrongProof())))))
    answer = solve(place, network, race, threshold=1.5, timeout=20.0)
    assert answer.verdict is Verdict.SAT
    assert Flag.ALARM in answer.flags
    assert bad.WrongProof.name in answer.reason
    (folder,) = tmp_path.glob("verifolio-alarm-*")
    names = {p.name for p in folder.iterdir()}
    assert names == {"sum2.onnx", "property.vnnlib", "counterexample.txt", "alarm.json"}


def test_workers_are_warm_the_second_time(place: Executor, network: Network) -> None:
    member = single_verifier(bad.Noisy())
    seconds = []
    for k in range(12):
        walk = Walk(reaches(network, 3.0 + k), member, place, Settings(timeout=10.0))
        seconds.append(walk.run().seconds)
    assert float(np.median(seconds)) < 0.1  # 20 ms on an idle machine


def test_a_race_on_one_core_takes_turns(place: Executor, network: Network) -> None:
    """Never more processes than cores: the second member starts when the first one's part of time is over."""
    race = Race((Member(bad.Stubborn()), Member(bad.Corners())))
    settings = Settings(timeout=3.0, grace=0.3, total=1)
    answer = Walk(reaches(network, 1.5), Portfolio(race), place, settings).run()
    assert answer.verdict is Verdict.SAT
    assert [a.verdict for a in answer.attempts] == [Verdict.TIMEOUT, Verdict.SAT]
    assert 1.4 < answer.attempts[0].seconds < 2.5
