"""What earlier answers imply: only what follows from the numbers as written, never from their roundings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio.errors import VerifolioError
from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.model.problem import Ball, Domain, Region, condition_key, rows_key
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.samples import write_sum
from verifolio.trust.knowledge import Knowledge, contains
from verifolio.vnnlib import box_case, loads, make_rows

PROOF = Answer(Verdict.UNSAT, "prover")
JUST_ABOVE_ONE = "1.00000000000000000001"  # both round to doubles as 1.0 does, one of them outward
JUST_BELOW_ONE = "0.99999999999999999999"


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return write_sum(tmp_path)


@pytest.fixture(autouse=True)
def _alarms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))


def ask(network: Network, condition: str, upper: str = "1.0", lower: str = "0.0") -> Query:
    """y = (x_0 + x_1, ...) on a box."""
    text = "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "Y_0", "Y_1"))
    for k in range(2):
        text += f"(assert (>= X_{k} {lower}))\n(assert (<= X_{k} {upper}))\n"
    return Query((network,), loads(f"{text}(assert {condition})\n"))


def test_a_proof_about_one_decimal_is_none_about_its_neighbour(network: Network) -> None:
    """Y_0 >= 2.00...01 is impossible on the unit square, Y_0 >= 2.0 is not."""
    knowledge = Knowledge()
    knowledge.learn(ask(network, "(>= Y_0 2.00000000000000000001)"), PROOF)
    assert knowledge.infer(ask(network, "(>= Y_0 2.0)")) is None
    again = knowledge.infer(ask(network, "(>= Y_0 2.000000000000000000010)"))
    assert again is not None
    assert again.verdict is Verdict.UNSAT


def test_an_exact_verifier_is_not_overheard(network: Network) -> None:
    with Oracle(single_verifier("smt"), "inline", timeout=60.0) as oracle:
        above = oracle.ask(ask(network, "(>= Y_0 2.00000000000000000001)"))
        there = oracle.ask(ask(network, "(>= Y_0 2.0)"))
    assert above.verdict is Verdict.UNSAT
    assert there.verdict is Verdict.SAT
    assert Flag.ALARM not in there.flags


def test_a_strict_row_is_another_condition(network: Network) -> None:
    knowledge = Knowledge()
    knowledge.learn(ask(network, "(> Y_0 2.0)"), PROOF)
    assert knowledge.infer(ask(network, "(>= Y_0 2.0)")) is None


def test_a_proof_covers_the_written_box_and_not_its_rounding(network: Network) -> None:
    """Both boxes have the same doubles around them."""
    knowledge = Knowledge()
    knowledge.learn(ask(network, "(>= Y_0 2.0)", upper=JUST_BELOW_ONE), PROOF)
    assert knowledge.infer(ask(network, "(>= Y_0 2.0)", upper="1.0")) is None
    assert knowledge.infer(ask(network, "(>= Y_0 2.0)", upper="0.99999999999999999998")) is not None


def test_a_witness_outside_the_written_box_is_no_alarm(network: Network) -> None:
    knowledge = Knowledge()
    knowledge.learn(ask(network, "(>= Y_0 2.0)", upper=JUST_BELOW_ONE), PROOF)
    point, outputs = np.ones(2, np.float32), np.array([2.0, 0.0], np.float32)
    sat = Answer(Verdict.SAT, "attacker", witness=Witness(point, outputs, (0.0,)))
    assert Flag.ALARM not in knowledge.learn(ask(network, "(>= Y_0 2.0)"), sat).flags
    assert knowledge.infer(ask(network, "(>= Y_0 2.0)", upper=JUST_BELOW_ONE)) is not None


def test_a_witness_inside_the_written_box_is_one(network: Network) -> None:
    knowledge = Knowledge()
    knowledge.learn(ask(network, "(>= Y_0 2.0)", upper=JUST_ABOVE_ONE), PROOF)
    sat = Answer(
        Verdict.SAT,
        "attacker",
        witness=Witness(np.ones(2, np.float32), np.array([2.0, 0.0], np.float32), (0.0,)),
    )
    assert Flag.ALARM in knowledge.learn(ask(network, "(>= Y_0 2.0)"), sat).flags


def test_an_inferred_witness_says_whether_it_lies_in_these_bounds(network: Network) -> None:
    """The nearest float32 to 0.1 lies inside [0, 1], but not inside [0.1, 0.1]."""
    knowledge = Knowledge()
    tenth = np.float32(0.1)
    point, outputs = np.array([tenth, tenth]), np.array([2 * tenth, 0.0], np.float32)
    seen = Witness(point, outputs, (0.0,), frozenset({Flag.INPUT_ULP}))
    sat = Answer(Verdict.SAT, "attacker", witness=seen, flags=seen.flags)
    knowledge.learn(ask(network, "(<= Y_0 0.5)", lower="0.1", upper="0.1"), sat)
    inside = knowledge.infer(ask(network, "(<= Y_0 0.5)", upper="0.5"))
    assert inside is not None
    assert inside.witness is not None
    assert Flag.INPUT_ULP not in inside.flags
    assert inside.witness.margins == (0.5 - float(2 * tenth),)


def test_true_and_false_are_different_conditions() -> None:
    assert condition_key(()) != condition_key((make_rows([]),))


def test_rows_are_told_apart_by_their_exact_sides() -> None:
    from decimal import Decimal

    one, more = (make_rows([({0: 1.0}, Decimal(t))]) for t in (JUST_BELOW_ONE, "1.0"))
    assert one.rhs.tolist() == more.rhs.tolist()
    assert rows_key(one) != rows_key(more)
    low, high = np.zeros(1), np.ones(1)
    assert not Domain(low, high, more).within(Domain(low, high, one))
    assert Domain(low, high, one).sha256 != Domain(low, high, more).sha256


def test_regions_compare_floats_decimals_and_fractions() -> None:
    from decimal import Decimal
    from fractions import Fraction

    def region(upper: Fraction | Decimal) -> Region:
        return Region.of(box_case([Decimal("0.0")], [upper], [make_rows([])]))

    third, double, decimal = Fraction(1, 3), Fraction(1 / 3), Decimal("0.33333333333333333333")
    assert region(decimal).within(region(third))
    assert not region(third).within(region(decimal))
    assert region(double).within(region(third)) == (double <= third)
    assert region(third).within(region(third))


def test_balls_of_far_apart_scales_are_not_taken_for_each_other() -> None:
    """Squares of these distances vanish in doubles."""
    near, far = Ball(np.zeros(2), 1e-200, 2.0), Ball(np.full(2, 1e-190), 1e-200, 2.0)
    assert not far.within(near)
    assert not near.within(far)
    assert near.distance(np.full(2, 3e-190)) == pytest.approx(3e-190 * 2**0.5)


def test_sizes_still_have_to_match(network: Network) -> None:
    text = (
        "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (>= X_0 0.0))\n(assert (<= X_0 1.0))\n"
    )
    with (
        Oracle(single_verifier("pgd"), "inline", timeout=5.0) as oracle,
        pytest.raises(VerifolioError, match="2 inputs"),
    ):
        oracle.ask(Query((network,), loads(text + "(assert (>= Y_0 0.0))\n")))


@pytest.mark.parametrize(
    ("x", "expected"), [((0.5, 0.5), True), ((1.5, 0.5), False), ((0.5, -0.5), False), ((1.0, 0.0), True)]
)
def test_one_input_outside_is_outside(x: tuple[float, float], expected: bool) -> None:
    region = Region.of(box_case([0.0, 0.0], [1.0, 1.0], [make_rows([])]))
    point, none = np.array(x, np.float32), np.zeros(1, np.float32)
    assert contains(region, Witness(point, none, ())) is expected
