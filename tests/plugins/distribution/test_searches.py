"""The three searches against networks whose critical radii are known."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verifolio.errors import InputError, SoundnessAlarm
from verifolio.model.answer import Flag, Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.onnx_import.network import Network
from verifolio.plugin.executor import Executor, Handle
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.distribution.bracket import Bracket
from verifolio.plugins.distribution.closest import ClosestSearch
from verifolio.plugins.distribution.family import Family, per_input
from verifolio.plugins.distribution.grid_search import Binary, KBinary, KBinaryOptions
from verifolio.plugins.distribution.radius_search import Critical, RadiusQuestion, SearchStatus, SearchStep
from verifolio.portfolio.tree import single_verifier
from verifolio.run import End, Job, Link, Result
from verifolio.solve.oracle import Oracle
from verifolio.vnnlib import load

GRID = tuple(round(0.001 + 0.002 * i, 3) for i in range(200))
Make = Callable[..., Network]


class ThreadHandle(Handle):
    def __init__(self, job: Job) -> None:
        self._stop, self._inbox = threading.Event(), list[object]()
        self._result: Result | None = None
        self._thread = threading.Thread(target=self._run, args=(job,))
        self._thread.start()

    def _run(self, job: Job) -> None:
        began = time.monotonic()
        link = Link(began + (job.limits.seconds or math.inf), self._stop.is_set, self._inbox.append)
        value = job.function(job.payload, link)
        end = End.CANCELLED if self._stop.is_set() else End.DONE
        self._result = Result(end, value, "", time.monotonic() - began, messages=tuple(self._inbox))

    def cancel(self) -> None:
        self._stop.set()

    def messages(self) -> tuple[object, ...]:
        return tuple(self._inbox)

    def result(self, timeout: float | None = None) -> Result | None:
        self._thread.join(timeout)
        return self._result


class Threads(Executor):
    """Jobs in threads: many at a time, and quick enough to measure a schedule."""

    name = "threads"

    def submit(self, job: Job) -> Handle:
        return ThreadHandle(job)

    def wait(self, handles: Sequence[Handle], timeout: float | None = None) -> list[Handle]:
        return [h for h in handles if h.result(timeout) is not None]


class Clocked(Verifier):
    """Decides `line` at once, but takes its recorded time; some radii it never decides."""

    name = "clocked"
    can_prove = True
    can_falsify = True

    def __init__(self, seconds: float = 0.0, never: tuple[float, float] = (2.0, 2.0)) -> None:
        super().__init__()
        self.seconds, self.never = seconds, never

    def run(self, problem: Problem, context: Context) -> Outcome:
        radius = float(problem.domain.upper[0]) - 0.3
        end = time.monotonic() + self.seconds / (1 + 10 * abs(radius - 0.2))
        while time.monotonic() < end:
            if context.budget.expired():
                return Outcome.unknown("stopped")
            time.sleep(0.002)
        if self.never[0] <= radius <= self.never[1]:
            return Outcome.unknown("gave up")
        if problem.domain.upper[0] >= 0.5:
            return Outcome.found(problem.domain.upper)
        return Outcome.proved()


def ask(
    network: Network, search: Binary | KBinary, verifier: Verifier, **more: object
) -> tuple[Critical, list[SearchStep]]:
    """The critical radius of `line` around 0.3 (0.2, just after grid point 0.199)."""
    steps: list[SearchStep] = []
    question = RadiusQuestion(Family(network, np.array([0.3]), 0), GRID, log=steps.append, **more)  # type: ignore[arg-type]
    with Oracle(single_verifier(verifier), Threads(16), infer=False) as oracle:
        return search.run(question, oracle), steps


@pytest.fixture(scope="module")
def inline() -> Iterator[Oracle]:
    with Oracle(executor="inline") as oracle:
        yield oracle


def test_binary_search_brackets_on_the_grid(line: Network) -> None:
    found, steps = ask(line, Binary(), Clocked())
    assert (found.lower, found.upper, found.status) == (0.199, 0.201, SearchStatus.CLOSED)
    assert found.queries == len(steps) <= 8
    assert found.distance is not None and found.upper is not None
    assert found.lower < found.distance <= found.upper


def test_more_queries_at_a_time_agree_and_are_quicker(line: Network) -> None:
    walls = {}
    for k in (1, 4, 8):
        begin = time.monotonic()
        found, steps = ask(line, KBinary(KBinaryOptions(k)), Clocked(0.15))
        walls[k] = time.monotonic() - begin
        assert (found.lower, found.upper) == (0.199, 0.201)
        assert found.cancelled == sum(s.verdict is Verdict.CANCELLED for s in steps)
        print(f"k={k}: {found.queries} queries, {found.cancelled} cancelled, {walls[k]:.2f} s")
    assert found.cancelled > 0
    assert min(walls[4], walls[8]) < walls[1]


def test_cancelled_queries_are_logged_with_their_time(line: Network) -> None:
    _, steps = ask(line, KBinary(KBinaryOptions(8)), Clocked(0.15))
    stopped = [s for s in steps if s.verdict is Verdict.CANCELLED]
    assert stopped
    assert any(s.seconds > 0 for s in stopped)
    assert all(s.proved is None and s.distance is None for s in stopped)


def test_unanswered_radii_leave_it_open_and_the_lower_side_conservative(line: Network) -> None:
    found, _ = ask(line, KBinary(KBinaryOptions(2)), Clocked(never=(0.15, 0.206)))
    assert (found.lower, found.upper, found.status) == (0.149, 0.207, SearchStatus.OPEN)
    assert "without an answer" in found.reason


def test_nothing_answered_is_zero_and_no_upper_side(line: Network) -> None:
    found, _ = ask(line, Binary(), Clocked(never=(0.0, 1.0)), budget=0.3)
    assert (found.lower, found.upper, found.status) == (0.0, None, SearchStatus.OPEN)


def test_a_contradiction_raises(line: Network) -> None:
    lies = (SearchStep("query", 0.101, Verdict.SAT), SearchStep("query", 0.151, Verdict.UNSAT))
    with pytest.raises(SoundnessAlarm, match="contradict"):
        ask(line, KBinary(), Clocked(), history=lies)


def test_a_search_continues_from_its_log(line: Network) -> None:
    found, steps = ask(line, Binary(), Clocked())
    again, fresh = ask(line, Binary(), Clocked(), history=tuple(steps[:4]))
    assert (again.lower, again.upper, again.queries) == (found.lower, found.upper, found.queries)
    assert len(fresh) == len(steps) - 4


def test_a_grid_must_be_given(line: Network, inline: Oracle) -> None:
    with pytest.raises(InputError, match="grid"):
        Binary().run(RadiusQuestion(Family(line, np.array([0.3]), 0)), inline)


@pytest.mark.parametrize(("norm", "exact"), [(math.inf, 0.25), (1.0, 0.5), (2.0, 0.5 / math.sqrt(2))])
def test_bracket_finds_exact_distances_in_every_norm(
    plane: Network, inline: Oracle, norm: float, exact: float
) -> None:
    family = Family(plane, np.array([0.2, 0.3]), 0, norm)
    found = Bracket().run(RadiusQuestion(family, tolerance=1e-3, budget=20), inline)
    assert found.status is SearchStatus.CLOSED
    assert found.upper is not None and found.upper - found.lower <= 1e-3
    assert found.lower <= exact <= found.upper * (1 + 1e-6)


def test_bracket_agrees_with_brute_force(make_network: Make, inline: Oracle) -> None:
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 301)] * 2), -1).reshape(-1, 2)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sizes = ((8, 2), (8,), (3, 8), (3,))
        w1, b1, w2, b2 = (rng.normal(size=s).astype(np.float32).astype(np.float64) for s in sizes)
        network = make_network((w1, b1), (w2, b2), name=f"random{seed}")
        x = rng.uniform(0.2, 0.8, 2)
        hidden = np.maximum(grid @ w1.T + b1, 0)
        outputs = hidden @ w2.T + b2
        label = Family(network, x, 0).predicted
        wrong = grid[outputs.argmax(1) != label]
        found = Bracket().run(RadiusQuestion(Family(network, x, label), tolerance=1e-3, budget=20), inline)
        assert found.status is SearchStatus.CLOSED
        if len(wrong):
            nearest = float(np.abs(wrong - x).max(1).min())
            assert found.lower < nearest
            assert found.upper is not None and found.upper <= nearest + 1e-3
        else:
            assert found.upper is None or found.upper > 0.1


def test_a_robust_input_is_proved_on_its_whole_range(make_network: Make, inline: Oracle) -> None:
    network = make_network((np.array([[0.0], [1.0]]), np.array([2.0, 0.0])), name="never")
    found = Bracket().run(RadiusQuestion(Family(network, np.array([0.3]), 0), budget=10), inline)
    assert (found.upper, found.status) == (None, SearchStatus.CLOSED)
    assert found.lower >= 0.7


def test_a_tie_is_a_counterexample_and_flagged(make_network: Make, inline: Oracle) -> None:
    """y = (relu(1 - x), 0): equal from x = 1 on, never below."""
    network = make_network(
        (np.array([[-1.0]]), np.array([1.0])), (np.array([[1.0], [0.0]]), np.array([0.0, 0.0])), name="tie"
    )
    family = Family(network, np.array([0.25]), 0, high=2.0)
    found = Bracket().run(RadiusQuestion(family, tolerance=1e-3, budget=10), inline)
    assert found.upper == pytest.approx(0.75, abs=1e-3)
    assert found.upper is not None and found.lower <= 0.75 <= found.upper
    assert Flag.TIE in found.flags


def test_normalised_inputs_are_measured_in_the_datas_units(make_network: Make, inline: Oracle) -> None:
    """The network sees (x - 0.5) / 0.25; its boundary at 0 is x = 0.5."""
    network = make_network((np.array([[0.0], [1.0]]), np.array([0.0, 0.0])), name="normal")
    family = Family(network, np.array([0.3]), 0, mean=np.array([0.5]), std=np.array([0.25]))
    assert family.predicted == 0
    found = Bracket().run(RadiusQuestion(family, tolerance=1e-4, budget=10), inline)
    assert found.lower <= 0.2 <= (found.upper or 0.0) + 1e-6
    assert found.status is SearchStatus.CLOSED


def test_an_uneven_scale_has_no_l2_ball(plane: Network) -> None:
    with pytest.raises(InputError, match="one std"):
        Family(plane, np.array([0.2, 0.3]), 0, 2.0, std=np.array([0.2, 0.4]))
    uneven = Family(plane, np.array([0.2, 0.3]), 0, math.inf, std=np.array([0.2, 0.4]))
    lower, upper = uneven.box(0.1)
    assert np.allclose(upper - lower, [1.0, 0.5])
    assert uneven.network_ball(0.1) is None


def test_boxes_hold_the_true_ball(plane: Network) -> None:
    family = Family(plane, np.array([1 / 3, 0.9]), 0)
    lower, upper = family.box(0.2)
    assert lower[0] < 1 / 3 - 0.2 or lower[0] == np.nextafter(1 / 3 - 0.2, -1)
    assert upper[1] == 1.0


def test_channels_are_spread_over_inputs() -> None:
    assert per_input((), (3, 2, 2), "mean") is None
    values = per_input((1.0, 2.0, 3.0), (3, 2, 2), "std")
    assert values is not None and values.tolist() == [1.0] * 4 + [2.0] * 4 + [3.0] * 4
    with pytest.raises(InputError, match="1 or 3"):
        per_input((1.0, 2.0), (3, 2, 2), "mean")


def test_queries_are_kept_as_files(plane: Network, inline: Oracle, tmp_path: Path) -> None:
    grid = RadiusQuestion(
        Family(plane, np.array([0.2, 0.3]), 0, name="p"), (0.1, 0.2, 0.3), keep=tmp_path / "q"
    )
    found = Binary().run(grid, inline)
    assert (found.lower, found.upper) == (0.2, 0.3)
    kept = sorted((tmp_path / "q").glob("*.vnnlib"))
    assert len(kept) == found.queries
    assert load(kept[0]).input_size == 2
    ball = RadiusQuestion(Family(plane, np.array([0.2, 0.3]), 0, 2.0, name="b"), (0.1,), keep=tmp_path / "b")
    Binary().run(ball, inline)
    assert "no form for an L2 ball" in next((tmp_path / "b").glob("*")).read_text()


def test_a_stored_witness_is_replayed_before_it_counts(plane: Network, inline: Oracle) -> None:
    wrong = SearchStep("known", 1.0, Verdict.SAT, distance=0.01, witness=np.array([0.2, 0.3], np.float32))
    family = Family(plane, np.array([0.2, 0.3]), 0)
    found = Bracket().run(RadiusQuestion(family, budget=10, history=(wrong,)), inline)
    assert found.upper is not None and found.upper >= 0.25 - 1e-6


def test_a_witness_inside_a_proved_radius_raises(plane: Network, inline: Oracle) -> None:
    lie = SearchStep("known", 0.4, Verdict.UNSAT, proved=0.3)
    near = SearchStep(
        "known", 1.0, Verdict.SAT, distance=0.2505, witness=np.array([0.4505, 0.5505], np.float32)
    )
    question = RadiusQuestion(
        Family(plane, np.array([0.2, 0.3]), 0), tolerance=1e-6, budget=10, history=(lie, near)
    )
    with pytest.raises(SoundnessAlarm):
        Bracket().run(question, inline)


def test_a_failure_above_a_counterexample_is_history(plane: Network) -> None:
    """It says nothing about radii below the counterexample that was found since."""
    slow = SearchStep("query", 0.4, Verdict.UNKNOWN, seconds=5.0, timeout=5.0)
    point = np.array([0.46, 0.56], np.float32)
    near = SearchStep("query", 0.3, Verdict.SAT, seconds=0.1, distance=0.26, witness=point)
    looked = SearchStep("squeeze", 1.0, Verdict.UNKNOWN)
    steps: list[SearchStep] = []
    question = RadiusQuestion(
        Family(plane, np.array([0.2, 0.3]), 0),
        tolerance=1e-3,
        budget=20,
        history=(looked, slow, near),
        log=steps.append,
    )
    with Oracle(single_verifier("crown"), "inline") as oracle:
        found = Bracket().run(question, oracle)
    assert found.status is SearchStatus.CLOSED
    assert all(s.radius < 0.27 for s in steps)
    assert len(steps) < 30


def test_a_radius_is_not_asked_again_with_no_more_time(plane: Network) -> None:
    """A budget without end and a limit per query: what ran out of time stays open, and the search ends."""

    class Slow(Verifier):
        name = "slow"
        can_prove = True

        def run(self, problem: Problem, context: Context) -> Outcome:
            radius = float(problem.domain.upper[0]) - 0.2
            if radius < 0.2:
                return Outcome.proved()
            time.sleep(0.11)
            return Outcome.unknown("out of time")

    point = np.array([0.46, 0.56], np.float32)
    known = SearchStep("squeeze", 1.0, Verdict.SAT, distance=0.26, witness=point)
    family = Family(plane, np.array([0.2, 0.3]), 0)
    question = RadiusQuestion(family, tolerance=1e-3, timeout=0.1, history=(known,))
    with Oracle(single_verifier(Slow()), "inline") as oracle:
        found = Bracket().run(question, oracle)
    assert found.status is SearchStatus.OPEN
    assert 0.199 < found.lower < 0.2
    assert found.queries < 40


@pytest.mark.parametrize("verifier", ["milp", "pointwise-lp", "lbfgs"])
def test_the_closest_point_by_one_verifier(plane: Network, verifier: str) -> None:
    """Only `milp` proves a distance; nobody's point is closer than it can be."""
    steps: list[SearchStep] = []
    question = RadiusQuestion(
        Family(plane, np.array([0.2, 0.3]), 0), tolerance=1e-4, budget=20, log=steps.append
    )
    with Oracle(single_verifier(verifier), "inline") as oracle:
        found = ClosestSearch().run(question, oracle)
        again = ClosestSearch().run(replace(question, history=tuple(steps)), oracle)
    assert found.upper is not None and found.upper >= 0.25 * (1 - 1e-6)
    assert (again.lower, again.upper, len(steps)) == (found.lower, found.upper, 1)
    proves = verifier == "milp"
    assert found.status is (SearchStatus.CLOSED if proves else SearchStatus.OPEN)
    assert (found.lower > 0.2499) == proves


def test_a_verifier_that_does_not_minimise_leaves_it_open(plane: Network) -> None:
    question = RadiusQuestion(Family(plane, np.array([0.2, 0.3]), 0))
    with Oracle(single_verifier("pgd"), "inline") as oracle:
        found = ClosestSearch().run(question, oracle)
    assert (found.lower, found.upper, found.status) == (0.0, None, SearchStatus.OPEN)
    assert "minimises" in found.reason
