"""Batches through the oracle: many attacks, bounds and replays in one job each, refereed, with their finders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verifolio.encode.onnx_writer import write_onnx
from verifolio.errors import InputError, SoundnessAlarm, VerifolioError
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.batch import Atom, Batch, plain_batch
from verifolio.model.joint import Joint
from verifolio.model.neighbourhood import Neighbourhood
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.model.radius import RadiusStart
from verifolio.onnx_import.network import Network
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.choice import Choice
from verifolio.plugin.verifier import Context, Verifier
from verifolio.portfolio.file import parse_portfolio
from verifolio.portfolio.tree import Member, Portfolio, Series, single_verifier
from verifolio.solve.batches import _valid
from verifolio.solve.oracle import Oracle
from verifolio.testing.hostile_verifiers import HangingAttack, Picky, WrongBounds
from verifolio.testing.networks import dense_graph
from verifolio.trust.referee import replay
from verifolio.vnnlib import make_rows


def save(folder: Path, name: str, weight: list[list[float]], bias: list[float]) -> Network:
    write_onnx(dense_graph([(weight, bias)]), folder / f"{name}.onnx")
    return Network.load(folder / f"{name}.onnx")


@pytest.fixture
def wide(tmp_path: Path) -> Network:
    """y = (1, mean of 32 inputs): class 1 from a mean of 1 on."""
    return save(tmp_path, "wide", [[0.0] * 32, [1 / 32] * 32], [1.0, 0.0])


def loses(inputs: int) -> tuple[object, ...]:
    """y_0 <= y_1."""
    return (make_rows([({inputs: 1.0, inputs + 1: -1.0}, 0.0)]),)


def boxes(inputs: int, radii: Sequence[float]) -> list[Domain]:
    return [Domain(np.full(inputs, -r), np.full(inputs, r)) for r in radii]


def balls(network: Network, radii: Sequence[float]) -> Batch:
    return plain_batch(network, boxes(32, radii), loses(32))  # type: ignore[arg-type]


def named(answer: object) -> tuple[str, str, str]:
    return answer.verdict.value, answer.verifier, answer.attempts[0].verifier  # type: ignore[attr-defined]


def test_attacks_and_bounds_agree_with_queries_one_by_one(wide: Network) -> None:
    batch = balls(wide, (0.25, 0.5, 1.0, 1.5))
    with Oracle(executor="inline", timeout=20.0) as oracle:
        attacked, bounded = oracle.attack(batch), oracle.bound(batch)
        asked = [oracle.ask(batch.query(k)).verdict for k in range(4)]
    assert asked == [Verdict.UNSAT, Verdict.UNSAT, Verdict.SAT, Verdict.SAT]
    assert [named(a) for a in bounded[:2]] == [("unsat", "crown", "crown")] * 2
    assert [named(a) for a in attacked[2:]] == [("sat", "pgd", "pgd")] * 2
    assert not any(a.verdict.decided for a in (*bounded[2:], *attacked[:2]))
    assert [a.bound for a in bounded] == pytest.approx([0.75, 0.5, 0.0, -0.5], abs=1e-6)
    for k in (2, 3):
        witness = attacked[k].witness
        assert witness is not None
        assert type(replay(batch.query(k), witness.x)) is type(witness)


def test_in_workers_it_is_the_same(wide: Network) -> None:
    batch = balls(wide, (0.5, 1.5))
    with Oracle(executor="process", timeout=20.0) as oracle:
        assert [a.verdict for a in oracle.attack(batch, 20.0)] == [Verdict.UNKNOWN, Verdict.SAT]
        assert [a.verdict for a in oracle.bound(batch, 20.0)] == [Verdict.UNSAT, Verdict.UNKNOWN]
        points = [(0, np.full(32, 0.5)), (1, np.full(32, 1.25))]
        assert [set(s.witnesses) for s in oracle.replay(batch, points)] == [set(), {1}]


def test_one_input_for_several_networks(tmp_path: Path) -> None:
    """Each errs on one side of the origin, so the first and the third do together, the first two do not."""
    sides = [
        save(tmp_path, n, [[0.0, 0.0], [s, 0.0]], [0.5, 0.0]) for n, s in (("a", 1), ("b", -1), ("c", 2))
    ]
    domain = Domain(-np.ones(2), np.ones(2), None, Ball(np.zeros(2), 1.0, 1.0))
    atoms = tuple(Atom((k,), 0, 0) for k in range(3))
    batch = Batch(tuple(sides), (domain,), (loses(2),), atoms, ((0, 1), (0, 2), (1,)))  # type: ignore[arg-type]
    with Oracle(executor="inline", timeout=20.0) as oracle:
        attacked, bounded = oracle.attack(batch), oracle.bound(batch)
        asked = [oracle.ask(batch.query(k)).verdict for k in range(3)]
        (seen,) = oracle.replay(batch, [(0, np.array([0.75, 0.0]))])
    assert [a.verdict is Verdict.SAT for a in attacked] == [False, True, True]
    assert bounded[0].verdict is Verdict.UNSAT  # by the sum of the two rows: neither alone is out of reach
    assert asked == [Verdict.UNSAT, Verdict.SAT, Verdict.SAT]
    assert set(seen.witnesses) == {0, 2}
    witness = attacked[1].witness
    assert witness is not None and len(witness.y) == 4
    assert _valid(batch, 1, witness)
    assert not _valid(batch, 1, replace(witness, y=-witness.y))


def test_a_portfolio_of_one_uses_nobody_else(wide: Network) -> None:
    batch = balls(wide, (0.5, 1.5))
    for name, attacks, bounds in (("pgd", True, False), ("crown", False, True), ("milp", False, False)):
        with Oracle(single_verifier(name), "inline", timeout=20.0) as oracle:
            names = [{a.verifier for a in found} for found in (oracle.attack(batch), oracle.bound(batch))]
        assert names == [{name if attacks else ""}, {name if bounds else ""}]


def test_files_name_who_works_on_batches(wide: Network) -> None:
    text = "attack: {verifier: fgsm, options: {steps: 3}}\nbounder: smooth\nsequence: [crown, pgd]"
    portfolio = parse_portfolio(text)
    assert [m and m.name for m in (portfolio.attack, portfolio.bounder)] == ["fgsm", "smooth"]
    plain = parse_portfolio("sequence: [crown, pgd]")
    assert plain.key == portfolio.key  # of queries
    assert plain.identity != portfolio.identity
    with Oracle(portfolio, "inline") as oracle:
        assert oracle.bound(balls(wide, (0.5,)))[0].verifier == "smooth"
    with Oracle(plain, "inline") as oracle:
        assert oracle.attack(balls(wide, (1.5,)))[0].verifier == "pgd"
    unable = parse_portfolio("attack: milp\nverifier: milp")
    with Oracle(unable, "inline") as oracle, pytest.raises(InputError, match="can attack many"):
        oracle.attack(balls(wide, (1.5,)))
    with pytest.raises(InputError, match="without limits"):
        parse_portfolio("attack: {verifier: pgd, seconds: 3}\nverifier: milp")


class Liar(Verifier):
    """Offers the upper corner of every box, and says nothing else."""

    name = "liar"
    can_attack_many = True
    taken: list[bool]

    def __init__(self) -> None:
        super().__init__()
        self.taken = []

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.unknown("only attacks batches")

    def attack_many(self, questions: Sequence[Joint], context: BatchContext) -> None:
        self.taken = [context.offer(k, q.domain.upper) for k, q in enumerate(questions)]


def test_every_offered_point_is_refereed(wide: Network) -> None:
    liar = Liar()
    with Oracle(single_verifier(liar), "inline") as oracle:
        found = oracle.attack(balls(wide, (0.5, 1.5)))
    assert liar.taken == [False, True]
    assert [a.verdict for a in found] == [Verdict.UNKNOWN, Verdict.SAT]


def test_wrong_bounds_are_an_alarm(wide: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    with Oracle(single_verifier(WrongBounds()), "inline") as oracle:
        with pytest.raises(SoundnessAlarm, match="bounder hostile-wrong-bounds claims a proof"):
            oracle.bound(balls(wide, (1.5,)))
        assert oracle.bound(balls(wide, (0.5,)))[0].verdict is Verdict.UNSAT
    assert list((tmp_path / "alarms").iterdir())


def test_what_was_found_before_a_job_was_stopped_counts(wide: Network) -> None:
    with Oracle(single_verifier(HangingAttack()), "process") as oracle:
        oracle.warm(wait=True)
        found = oracle.attack(balls(wide, (0.5, 1.5)), 2.0)
    assert [a.verdict for a in found] == [Verdict.TIMEOUT, Verdict.SAT]


def test_a_refusal_is_no_answer(wide: Network) -> None:
    class Choosy(Picky):
        can_bound_many = True

    with Oracle(single_verifier(Choosy()), "inline") as oracle:
        assert oracle.bound(balls(wide, (0.5,)))[0].verdict is Verdict.UNKNOWN


def test_both_sides_of_a_radius(wide: Network) -> None:
    around = Neighbourhood((wide,), np.full(32, 0.25), high=2.0, condition=loses(32))  # type: ignore[arg-type]
    for portfolio, names in (
        (None, ("pgd", "crown")),
        (single_verifier("crown"), ("", "crown")),
        (single_verifier("pgd"), ("pgd", "")),
        (Portfolio(Series((Member(Choice("milp")), Member(Choice("crown"))))), ("", "crown")),
    ):
        with Oracle(portfolio, "inline") as oracle:
            (found,) = oracle.radius_bounds([RadiusStart(around, 0.0, around.largest)], 1e-3, 20.0)
        assert (found.finder, found.prover) == names
        assert found.lower <= 0.75
        assert not found.prover or found.lower > 0.74
        near = math.inf if found.witness is None else around.distance(found.witness.x)
        assert near >= 0.75 - 1e-6
        assert not found.finder or near < 0.76
    with Oracle(single_verifier("milp"), "inline") as oracle:
        (none,) = oracle.radius_bounds([RadiusStart(around, 0.1, 1.0)], 1e-3, 20.0)
    assert (none.lower, none.witness) == (0.1, None)
    assert "nobody" in none.reason


def test_later_queries_know_the_closest_point(wide: Network) -> None:
    around = Neighbourhood((wide,), np.full(32, 0.25), high=2.0, condition=loses(32))  # type: ignore[arg-type]
    with Oracle(None, "inline", timeout=20.0) as oracle:
        oracle.radius_bounds([RadiusStart(around, 0.0, around.largest)], 1e-3, 20.0)
        answer = oracle.ask(around.query(0.8))
    assert (answer.verdict, answer.verifier) == (Verdict.SAT, "inference")


def test_points_that_were_not_judged_are_an_error(wide: Network) -> None:
    """The file has changed: it must not look as if the points were no counterexamples."""
    batch = balls(wide, (1.5,))
    query = batch.query(0)
    wide.path.write_bytes(b"something else")
    with Oracle(executor="process") as oracle:
        with pytest.raises(VerifolioError, match="could not be judged"):
            oracle.judge(query, np.full(32, 1.25))
        with pytest.raises(InputError, match="has changed"):
            oracle.replay(batch, [(0, np.full(32, 1.25))])


def test_a_point_is_judged(wide: Network) -> None:
    query = balls(wide, (1.5,)).query(0)
    with Oracle(executor="inline") as oracle:
        assert oracle.judge(query, np.full(32, 1.25)) is not None
        assert oracle.judge(query, np.full(32, 0.5)) is None
        assert oracle.ask(query).verifier == "inference"


def test_bounds_of_who_cannot_prove_are_no_proofs(wide: Network) -> None:
    class Presumptuous(WrongBounds):
        can_prove = False

    with Oracle(single_verifier(Presumptuous()), "inline") as oracle:
        assert oracle.bound(balls(wide, (0.5,)))[0].verdict is Verdict.UNKNOWN
