"""Randomized attacks: the exact value against brute force and against one big program; ties; time; stores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.data import load_data
from verifolio.encode.onnx_writer import write_onnx
from verifolio.errors import InputError
from verifolio.graph import Dense, GraphBuilder, Relu, Scale
from verifolio.model.joint import Joint
from verifolio.onnx_import.network import Network
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.estimator import silent
from verifolio.plugin.property import Reference
from verifolio.plugins.ensemble.attack import (
    AttackOptions,
    AttackRequest,
    AttackResult,
    EnsembleAttack,
    GameVerdict,
    Method,
    realised_value,
)
from verifolio.plugins.ensemble.commands import after_attacks
from verifolio.plugins.ensemble.decompose import decompose
from verifolio.plugins.ensemble.highs import Ending
from verifolio.plugins.ensemble.joint_gradient import JointGradient
from verifolio.plugins.ensemble.ledger import EnsembleLedger
from verifolio.plugins.ensemble.monolith import Program, make_part
from verifolio.plugins.ensemble.spot import Spot, make_references
from verifolio.plugins.ensemble.survey import Survey
from verifolio.portfolio.tree import Member
from verifolio.solve.oracle import Oracle

EXAMPLES = Path(__file__).parents[3] / "examples" / "ensemble"


def play(
    networks: tuple[Network, ...],
    references: tuple[Reference, ...],
    oracle: Any,
    alpha: str | None = None,
    **options: Any,
) -> AttackResult:
    level = None if alpha is None else Fraction(alpha)
    settings = AttackOptions(**options)
    return EnsembleAttack(settings).run(AttackRequest(networks, references, level), oracle)


def figure_one(tiny: Any, folder: Path) -> tuple[tuple[Network, ...], tuple[Reference, ...]]:
    """One point in the plane; one classifier errs far to the left, the other far to the right."""
    left = tiny.linear(folder / "left.onnx", [[0, 0], [-1, 0]], [0.0, -1.0])
    right = tiny.linear(folder / "right.onnx", [[0, 0], [1, 0]], [0.0, -1.0])
    point = Reference(np.zeros(2), 0, 2.0, 1.0, -math.inf, math.inf)
    return (left, right), (point,)


@pytest.mark.parametrize("method", [Method.DECOMPOSITION, Method.MAXMIN, Method.MILP, Method.SMT])
def test_the_first_figure_has_value_one_half(tiny: Any, tmp_path: Path, method: Method) -> None:
    networks, points = figure_one(tiny, tmp_path)
    with tiny.inline() as oracle:
        result = play(networks, points, oracle, "1/2", method=method, attacks=2)
    assert result.verdict is GameVerdict.NOT_ROBUST
    assert result.value_lower == Fraction(1, 2)
    assert [a.probability for a in result.attacks] == [Fraction(1, 2)] * 2
    if method is Method.DECOMPOSITION:
        assert result.value_upper == Fraction(1, 2)
        assert result.weights == (Fraction(1, 2), Fraction(1, 2))


def test_just_above_the_value_the_first_figure_is_robust(tiny: Any, tmp_path: Path) -> None:
    networks, points = figure_one(tiny, tmp_path)
    with tiny.inline() as oracle:
        assert play(networks, points, oracle, "0.5000001").verdict is GameVerdict.ROBUST
        assert play(networks, points, oracle, "0.5").verdict is GameVerdict.NOT_ROBUST
        assert play(networks, points, oracle, "0.6", method=Method.SMT).verdict is GameVerdict.ROBUST
        few = play(networks, points, oracle, "0.4", method=Method.SMT, attacks=1)
    assert few.verdict is GameVerdict.UNKNOWN
    assert "2 may be needed" in few.reason


@pytest.mark.parametrize("method", [Method.MILP, Method.MAXMILP, Method.MAXMIN])
def test_that_a_solver_finds_no_attack_is_no_proof(tiny: Any, tmp_path: Path, method: Method) -> None:
    networks, points = figure_one(tiny, tmp_path)
    with tiny.inline() as oracle:
        result = play(networks, points, oracle, "0.6", method=method)
    assert result.verdict is GameVerdict.UNKNOWN
    assert result.value_upper == 1
    assert "claimed" in result.stats


def test_single_network_attackers(tiny: Any, tmp_path: Path) -> None:
    networks, points = figure_one(tiny, tmp_path)
    with tiny.inline() as oracle:
        uniform = play(networks, points, oracle, "1/2", method=Method.UNIFORM)
        best = play(networks, points, oracle, "1/2", method=Method.DETERMINISTIC)
    assert uniform.value_lower == Fraction(1, 2)
    assert uniform.verdict is GameVerdict.NOT_ROBUST
    assert best.value_lower == 0
    assert best.verdict is GameVerdict.UNKNOWN


def test_a_tie_is_an_error(tiny: Any, tmp_path: Path) -> None:
    """Two zeros behind a ReLU: nobody's label, so the loss is one without any attack."""
    dead = tiny.ends_in_relu(tmp_path / "dead.onnx", [[1, 0], [0, 1]], [-5.0, -5.0])
    point = Reference(np.zeros(2), 0, 0.5, math.inf, -math.inf, math.inf)
    with tiny.inline() as oracle:
        result = play((dead,), (point,), oracle, "1")
    assert result.verdict is GameVerdict.NOT_ROBUST
    assert result.value_lower == 1


def test_the_value_is_that_of_all_attacks_and_of_the_big_program(tiny: Any, tmp_path: Path) -> None:
    """200 random ensembles: sets by linear regions, the game over all combinations, and one program."""
    rng = np.random.default_rng(11)
    values = set()
    with tiny.inline() as oracle:
        for trial in range(200):
            folder = tmp_path / str(trial)
            folder.mkdir()
            count = 3 if trial % 5 == 0 else 2
            networks = tiny.random_ensemble(rng, folder, count, 2)
            points = tiny.random_points(rng, 1 if trial % 3 else 2, 2, math.inf)
            result = play(networks, points, oracle)
            assert result.value_lower == result.value_upper
            assert realised_value(result.attacks, count) == result.value_lower
            assert len(result.attacks) <= count
            truth = tiny.product_game([tiny.true_sets(networks, p) for p in points], count)
            assert abs(float(result.value_lower) - truth) < 1e-6
            program = play(networks, points, oracle, method=Method.MAXMIN)
            assert abs(program.stats["objective"] - truth) < 1e-6
            assert program.value_lower <= result.value_lower <= program.value_upper
            values.add(result.value_lower)
    assert len(values) >= 4  # not all of them are trivial


def test_in_l1_balls_the_value_is_that_of_the_big_program(tiny: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    values = set()
    with Oracle(after_attacks(1.0), "inline", timeout=30.0) as oracle:
        for trial in range(20):
            folder = tmp_path / str(trial)
            folder.mkdir()
            networks = tiny.random_ensemble(rng, folder, 3, 2)
            points = tiny.random_points(rng, 2, 2, 1.0)
            result = play(networks, points, oracle)
            assert result.value_lower == result.value_upper == realised_value(result.attacks, 3)
            program = play(networks, points, oracle, method=Method.MAXMIN)
            assert abs(program.stats["objective"] - float(result.value_lower)) < 1e-6
            values.add(result.value_lower)
    assert len(values) >= 3


def test_where_bounds_say_it_all_nothing_is_attacked_or_asked(tiny: Any, tmp_path: Path) -> None:
    networks, (point,) = figure_one(tiny, tmp_path)
    near = replace(point, epsilon=0.5)
    with tiny.inline() as oracle:
        survey = Survey(networks, [Spot(near)], oracle)
        result = decompose(survey, Fraction(1, 2), True, silent)
        assert oracle.counts == {}
    assert (result.verdict, result.value_upper) == (GameVerdict.ROBUST, Fraction(0))
    assert survey.tally.bounded == 1  # one network that is safe is enough
    assert not survey.attacked


class Counting(JointGradient):
    """Remembers how many questions it had."""

    asked = 0

    def attack_many(self, questions: Sequence[Joint], context: BatchContext) -> None:
        self.asked += len(questions)
        super().attack_many(questions, context)


def test_nothing_is_attacked_again_from_the_same_points(tiny: Any, tmp_path: Path) -> None:
    networks, (point,) = figure_one(tiny, tmp_path)
    counting = Counting()
    with Oracle(replace(after_attacks(), attack=Member(counting)), "inline") as oracle:
        survey = Survey(networks, [Spot(point)], oracle)
        for _ in range(2):
            survey.attack([(0, 0b11)])
        survey.attack([(0, 0b01)])  # fooled: another start for the pair
        survey.attack([(0, 0b11)])
    assert counting.asked == 3


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_other_norms_agree_with_samples(tiny: Any, tmp_path: Path, norm: float) -> None:
    rng = np.random.default_rng(5)
    with tiny.inline() as oracle:
        for trial in range(6):
            folder = tmp_path / str(trial)
            folder.mkdir()
            networks = tiny.random_ensemble(rng, folder, 2, 3)
            points = tiny.random_points(rng, 1, 3, norm)
            result = play(networks, points, oracle)
            ball = points[0].ball
            assert ball is not None
            for attack in result.attacks:
                assert ball.distance(attack.points[0].astype(np.float64)) <= ball.radius
            samples = ball.centre + rng.uniform(-ball.radius, ball.radius, (400, 2))
            inside = [x for x in samples if ball.distance(x) < ball.radius]
            for x in inside:
                wrong = []
                for n in networks:
                    y = n.replay(x.astype(np.float32))
                    wrong.append(bool(np.delete(y, points[0].label).max() >= y[points[0].label]))
                if all(wrong):
                    assert result.value_upper == 1


def test_without_answers_the_interval_still_holds_the_value(tiny: Any, tmp_path: Path) -> None:
    """A verifier that proves nothing, or no time at all: wider intervals, never wrong ones."""
    rng = np.random.default_rng(2)
    for trial in range(8):
        folder = tmp_path / str(trial)
        folder.mkdir()
        networks = tiny.random_ensemble(rng, folder, 3, 3)
        points = tiny.random_points(rng, 2, 3, math.inf)
        with tiny.inline() as oracle:
            exact = play(networks, points, oracle)
        with tiny.inline("fgsm", steps=1) as oracle:
            blind = play(networks, points, oracle)
        with tiny.inline() as oracle:
            late = play(networks, points, oracle, seconds=0.0)
        assert exact.value_lower == exact.value_upper
        for loose in (blind, late):
            assert loose.value_lower <= exact.value_lower <= loose.value_upper
            assert realised_value(loose.attacks, 3) >= loose.value_lower


def test_a_second_run_asks_nothing(tiny: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    networks = tiny.random_ensemble(rng, tmp_path, 3, 3)
    points = tiny.random_points(rng, 15, 3, 1.0)
    store = str(tmp_path / "facts.db")
    with tiny.inline() as oracle:
        first = play(networks, points, oracle, store=store)
        assert oracle.counts.get("run", 0) > 0
    with tiny.inline() as oracle:
        again = play(networks, points, oracle, store=store)
        assert oracle.counts == {}
    assert (again.value_lower, again.value_upper) == (first.value_lower, first.value_upper)
    ledger = EnsembleLedger(store)
    assert len(ledger) > 0
    assert all(fact.x is not None for fact in ledger if fact.verdict.value == "sat")
    ledger.close()


def test_bad_requests_say_why(tiny: Any, tmp_path: Path) -> None:
    networks, points = figure_one(tiny, tmp_path)
    with pytest.raises(InputError, match="from 0 to 1"):
        AttackRequest(networks, points, Fraction(2))
    with tiny.inline() as oracle, pytest.raises(InputError, match="different networks"):
        play((networks[0], networks[0]), points, oracle)
    wide = Reference(np.zeros(3), 0, 1.0)
    with tiny.inline() as oracle, pytest.raises(InputError, match="3 inputs"):
        play(networks, (wide,), oracle)
    with tiny.inline() as oracle, pytest.raises(InputError, match="--alpha"):
        play(networks, points, oracle, method=Method.MILP)


def test_a_program_with_a_solution_is_not_called_infeasible(tiny: Any) -> None:
    """Tolerances of 1e-8 made HiGHS say so of this one."""
    networks = [Network.load(EXAMPLES / f"pair_{n}.onnx") for n in "abc"]
    references = make_references(load_data(str(EXAMPLES / "pair.npz")), range(4), 2.5, 1.0)
    with tiny.inline() as oracle:
        survey = Survey(networks, [Spot(r) for r in references], oracle)
        program = Program([make_part(survey, j) for j in range(4)], 1, 0.0)
    program.demand(0.4)
    assert program.solve(None, 60.0).ending is not Ending.INFEASIBLE


def test_an_ensemble_of_a_clipped_network_is_not_called_robust(tiny: Any, tmp_path: Path) -> None:
    """Bounds of this network were 0.2 too large; where they said so, a point of the ball fools it by 0.1."""
    rng, builder, node, before = np.random.default_rng(54), GraphBuilder(2), 0, 2
    layers = []
    for size in (3, 3, 2):
        weight = rng.normal(size=(size, before)) * np.sqrt(2.0 / before)
        layers.append((weight, rng.normal(size=size) * 0.3))
        before = size
    layers[-1][1][0] += 0.67
    for k, layer in enumerate(layers):
        weight, bias = (part.astype(np.float32).astype(np.float64) for part in layer)
        node = builder.add(Dense(len(bias), bias, weight), node)
        node = builder.add(Relu(3), node) if k < 2 else node
        if k == 0:
            flipped = Scale(3, np.full(3, np.float64(np.float32(0.7))), -np.ones(3))
            node = builder.add(Relu(3), builder.add(flipped, node))
    write_onnx(builder.finish(node), tmp_path / "clipped.onnx")
    network = Network.load(tmp_path / "clipped.onnx")
    grid = np.stack(np.meshgrid(*[np.linspace(0.0, 2.0, 65)] * 2), -1).reshape(-1, 2)
    fooled = [x for x in grid.astype(np.float32) if network.replay(x)[0] < network.replay(x)[1] - 0.05]
    assert fooled
    reference = Reference(np.ones(2), 0, 1.0, math.inf, -math.inf, math.inf)
    request = AttackRequest((network,), (reference,), Fraction(1, 2))
    with tiny.inline() as oracle:
        found = EnsembleAttack(AttackOptions(exact=True, seconds=20.0)).run(request, oracle)
    assert found.verdict is GameVerdict.NOT_ROBUST
