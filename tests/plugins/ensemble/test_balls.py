"""Several radii at once: what is inferred along them is what every ball says for itself; stops and timeouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from verifolio.data import load_data
from verifolio.encode.onnx_writer import write_onnx
from verifolio.graph import Dense, GraphBuilder
from verifolio.model.answer import Verdict
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Reference
from verifolio.plugins.ensemble.accuracy import robust_accuracies
from verifolio.plugins.ensemble.balls import Balls
from verifolio.plugins.ensemble.climb import best_move, climb
from verifolio.plugins.ensemble.falsify import Plan
from verifolio.plugins.ensemble.lattice import Status
from verifolio.plugins.ensemble.ledger import Fact, Ledger
from verifolio.plugins.ensemble.replay import Spot, make_references
from verifolio.plugins.ensemble.selection import (
    EnsembleSelection,
    SelectionOptions,
    SelectionRequest,
    SelectionResult,
    agreement_points,
)
from verifolio.plugins.ensemble.survey import Survey
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.samples import age

EXAMPLES = Path(__file__).parents[3] / "examples" / "ensemble"
RADII = (0.04, 0.06, 0.08, 0.1)
POINTS = 5
WEAK = Plan(1, 0)  # attacks that leave work to the oracle


@pytest.fixture(scope="module")
def networks() -> tuple[Network, ...]:
    return tuple(Network.load(EXAMPLES / f"digits_{n}.onnx") for n in "abe")


def make_balls(networks: Sequence[Network], radii: Sequence[float], oracle: Oracle) -> Balls:
    data = load_data("digits:train")
    points = agreement_points(networks, data, POINTS)
    spots = [Spot(r) for e in radii for r in make_references(data, points, e, math.inf, True)]
    return Balls(Survey(networks, spots, oracle, plan=WEAK), POINTS, len(radii))


def statuses(balls: Balls, radius: int) -> list[Status]:
    return [balls.survey.status(j, m) for j, m in balls.questions(radius, balls.pairs)]


def test_all_radii_together_say_what_each_says_alone(tiny: Any, networks: tuple[Network, ...]) -> None:
    with tiny.inline() as oracle:
        together = make_balls(networks, RADII, oracle)
        together.decide(lambda *_: None)
        assert 0 < oracle.counts["run"] < len(RADII) * POINTS
    for e, radius in enumerate(RADII):
        with tiny.inline() as oracle:
            balls = make_balls(networks, [radius], oracle)
            balls.survey.decide(balls.questions(0, balls.pairs))
        assert statuses(balls, 0) == statuses(together, e)
        assert set(statuses(balls, 0)) <= {Status.SAT, Status.UNSAT}


def select(
    tiny: Any, networks: tuple[Network, ...], timeout: float = 20.0, stop_after: int = -1, store: str = ""
) -> tuple[SelectionResult | None, int]:
    """Mutual errors and accuracies, or None if stopped after so many messages; and how many queries ran."""
    said = 0

    def say(done: int, total: int, message: str) -> None:
        nonlocal said
        said += 1
        if said == stop_after:
            raise KeyboardInterrupt

    data, test = load_data("digits:train"), load_data("digits:test")
    request = SelectionRequest(networks, data, RADII, (0, 1), POINTS, None, True, test, (0, 1, 2))
    with tiny.inline(timeout=timeout) as oracle:
        try:
            found = EnsembleSelection(SelectionOptions(plan=WEAK, store=store)).run(request, oracle, say)
        except KeyboardInterrupt:
            found = None
        return found, oracle.counts.get("run", 0)


def test_a_stopped_run_continues(tiny: Any, networks: tuple[Network, ...], tmp_path: Path) -> None:
    whole, fresh = select(tiny, networks)
    assert whole is not None
    store, asked, again = str(tmp_path / "facts.db"), 0, None
    for stop_after in (4, 7, -1):
        again, more = select(tiny, networks, stop_after=stop_after, store=store)
        asked += more
    assert again is not None
    assert (again.errors.found == whole.errors.found).all()
    assert [a.share for a in again.after] == [a.share for a in whole.after]
    assert asked <= fresh + 4  # what was under way when it stopped
    ledger = Ledger(store)
    assert all(f.x is not None for f in ledger if f.verdict is Verdict.SAT)
    ledger.close()


def test_facts_of_an_earlier_version_are_proved_again(tmp_path: Path) -> None:
    """y = (x_0, x_1): at (0.5, 0) nothing is fooled within 0.125, and all within 0.5."""
    builder = GraphBuilder(2)
    write_onnx(builder.finish(builder.add(Dense(2, np.zeros(2), np.eye(2)), 0)), tmp_path / "n.onnx")
    network = Network.load(tmp_path / "n.onnx")
    store, near, far = (
        tmp_path / "facts.db",
        *(
            Reference(np.array([0.5, 0.0]), 0, radius, math.inf, -math.inf, math.inf)
            for radius in (0.125, 0.5)
        ),
    )
    key, point = f"average+{network.sha256}", np.array([0.0, 0.5], np.float32)
    with Ledger(store) as ledger:
        false = Fact(key, Spot(far).sha256, Verdict.UNSAT, "bounds")
        lost = Fact(key, Spot(near).sha256, Verdict.SAT, "search", point)  # outside the ball
        ledger.add([false, lost, Fact("other", "spot", Verdict.SAT, "search", point)])
        assert len(ledger) == 3
    age(store)
    with Ledger(store) as ledger, Oracle(single_verifier("crown"), "inline", timeout=20.0) as oracle:
        assert {f.verdict for f in ledger} == {Verdict.SAT}
        found = robust_accuracies([network], [[near], [far]], oracle, ledger, lambda: False)
    assert [(r.robust, r.broken) for r in found] == [(1, 0), (0, 1)]


def test_without_answers_the_intervals_hold_the_scores(tiny: Any, networks: tuple[Network, ...]) -> None:
    exact, _ = select(tiny, networks)
    hasty, _ = select(tiny, networks, timeout=1e-3)
    assert exact is not None and hasty is not None
    assert int(hasty.errors.open.sum()) > 0 == int(exact.errors.open.sum())
    for m in range(3):
        wide, true = hasty.errors.uniqueness(m, (0, 1, 2)), exact.errors.uniqueness(m, (0, 1, 2))
        assert wide.lower <= true.lower == true.upper <= wide.upper
    for unsure, sure in zip(hasty.before, exact.before, strict=True):
        assert unsure.share.lower <= sure.share.lower <= sure.share.upper <= unsure.share.upper


def test_accuracies_of_all_radii_are_those_of_each(tiny: Any, networks: tuple[Network, ...]) -> None:
    data = load_data("digits:test")
    rows = [make_references(data, range(6), e, math.inf, True) for e in RADII]
    with tiny.inline() as oracle:
        together = robust_accuracies(networks, rows, oracle, Ledger(), lambda: False)
    for row, found in zip(rows, together, strict=True):
        with tiny.inline() as oracle:
            assert robust_accuracies(networks, [row], oracle, Ledger(), lambda: False) == (found,)


def test_moves_are_nearly_those_of_the_linear_program() -> None:
    rng = np.random.default_rng(0)
    for k in (1, 2, 3):
        for _ in range(10):
            margins, slopes = rng.normal(size=k) - 1, rng.normal(size=(k, 20))
            upper = rng.uniform(0, 1, 20)
            cost = np.r_[np.zeros(20), -1.0]
            rows = np.hstack([-slopes, np.ones((k, 1))])
            limits = [*((-u, u) for u in upper), (None, None)]
            best = -float(linprog(cost, A_ub=rows, b_ub=margins, bounds=limits).fun or 0.0)
            tensors = (torch.tensor(t, dtype=torch.float32)[None] for t in (margins, slopes, -upper, upper))
            move = best_move(*tensors)[0].double().numpy()
            assert (np.abs(move) <= upper + 1e-6).all()
            reached = float((margins + slopes @ move).min())
            assert reached <= best + 1e-4
            assert best - reached <= 0.1 * (best - margins.min())


def test_two_networks_that_corners_do_not_fool_together() -> None:
    """Margins x - 0.9 y - 0.04 and y - 0.9 x - 0.04 in the unit box: both are positive at (1, 1) alone."""
    slopes = torch.tensor([[1.0, -0.9], [-0.9, 1.0]])

    def linear(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ slopes.T - 0.04, slopes.expand(len(x), 2, 2)

    one = torch.ones(1, 2)
    x, reached = climb(linear, 0 * one, -one, one, 20)
    assert float(reached) >= 0
    assert (x.abs() <= 1).all()
