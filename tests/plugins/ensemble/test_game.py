"""The game: its value in fractions, few attacks, certificates; what sets imply about each other."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from verifolio.errors import InputError
from verifolio.plugins.ensemble.game import bound_of, gauss, lay_out, solve, spread, value_of
from verifolio.plugins.ensemble.lattice import Lattice, SetStatus, maximal, maximal_avoiding, members

POINT = np.zeros(2, np.float32)


def random_families(rng: np.random.Generator, points: int, networks: int) -> list[frozenset[int]]:
    return [
        frozenset(maximal(rng.integers(0, 1 << networks, rng.integers(1, 4)).tolist())) for _ in range(points)
    ]


def test_the_value_is_exact_certified_and_reached_by_few_attacks(tiny: Any) -> None:
    rng = np.random.default_rng(7)
    for _ in range(150):
        networks, points = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        families = random_families(rng, points, networks)
        game = solve(families, networks)
        assert game.lower == game.upper
        assert abs(float(game.lower) - tiny.product_game([sorted(f) for f in families], networks)) < 1e-9
        assert sum(game.weights) == 1
        assert min(game.weights) >= 0
        assert bound_of(families, game.weights) == game.upper
        plays = lay_out(game.shares)
        assert len(plays) <= networks
        assert sum(p.probability for p in plays) == 1
        losses = [
            sum(p.probability * sum(s >> c & 1 for s in p.sets) for p in plays) for c in range(networks)
        ]
        assert min(losses) / points == game.lower
        assert all(s in f for p in plays for s, f in zip(p.sets, families, strict=True))


def test_many_points_with_equal_families_are_one_block() -> None:
    game = solve([frozenset({0b01, 0b10})] * 1001, 2)
    assert game.lower == game.upper == Fraction(1, 2)
    assert len(lay_out(game.shares)) <= 2
    assert value_of(game.shares, 2) == Fraction(1, 2)


def test_thirds_are_thirds() -> None:
    game = solve([frozenset({0b011, 0b101, 0b110})], 3)
    assert game.lower == game.upper == Fraction(2, 3)
    assert game.weights == (Fraction(1, 3),) * 3


def test_small_tools() -> None:
    assert gauss([[Fraction(2), Fraction(1)], [Fraction(1), Fraction(3)]], [Fraction(3), Fraction(5)]) == [
        Fraction(4, 5),
        Fraction(7, 5),
    ]
    assert gauss([[Fraction(1), Fraction(1)], [Fraction(2), Fraction(2)]], [Fraction(1)] * 2) is None
    assert spread({1: Fraction(3, 2), 2: Fraction(1, 2)}, 2) == [
        {1: Fraction(1)},
        {1: Fraction(1, 2), 2: Fraction(1, 2)},
    ]
    assert members(0b1101) == [0, 2, 3]


def test_witnesses_cover_subsets_and_proofs_supersets() -> None:
    lattice = Lattice(3)
    assert lattice.upper_family() == {0b111}
    assert lattice.lower_family() == {0}
    lattice.add_witness(0b011, POINT)
    lattice.add_proof(0b110)
    assert [lattice.status(s) for s in (0b001, 0b010, 0b011)] == [SetStatus.SAT] * 3
    assert [lattice.status(s) for s in (0b110, 0b111)] == [SetStatus.UNSAT] * 2
    assert lattice.status(0b101) is SetStatus.OPEN
    assert lattice.upper_family() == {0b011, 0b101}
    lattice.add_unknown(0b101)
    assert lattice.status(0b101) is SetStatus.UNKNOWN
    assert lattice.upper_family() == {0b011, 0b101}
    assert lattice.hopeful_family() == {0b011, 0b100}
    lattice.add_witness(0b101, POINT)
    assert lattice.status(0b101) is SetStatus.SAT
    assert lattice.lower_family() == {0b011, 0b101}


def test_a_witness_drops_the_proofs_it_contradicts() -> None:
    lattice = Lattice(2)
    lattice.add_proof(0b01)
    lattice.add_witness(0b11, POINT)
    assert lattice.status(0b01) is SetStatus.SAT
    lattice.add_proof(0b10)
    assert lattice.status(0b10) is SetStatus.SAT


def test_maximal_sets_by_enumeration() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        n = int(rng.integers(1, 6))
        bad = frozenset(int(s) for s in rng.integers(1, 1 << n, rng.integers(0, 4)))
        good = [s for s in range(1 << n) if not any(b & ~s == 0 for b in bad)]
        assert maximal_avoiding(n, bad) == set(maximal(good))


def test_too_many_networks_are_refused() -> None:
    with pytest.raises(InputError, match="networks"):
        Lattice(40)
