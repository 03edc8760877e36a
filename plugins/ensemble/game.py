"""The game between a randomized attack and an ensemble: its value, exactly, from sets of fooled networks.

At point j the attacker may fool any set of a family F_j. By linearity only the marginals q_j over F_j
count, so the value is  max t  s.t.  sum_j sum_{S in F_j, c in S} q_jS >= t m  for every network c,  sum_S
q_jS = 1. Points with equal families are one block with weight. HiGHS finds a basis; the numbers are then
recomputed as fractions from that basis, and both sides of linear programming duality certify them: any q
gives a lower bound, any weights w over networks the upper bound (1/m) sum_j max_{S in F_j} w(S).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import highspy
import numpy as np

from verifolio.encode.highs import new_solver, run

from .lattice import members

Family = frozenset[int]
Shares = dict[int, Fraction]


@dataclass(frozen=True)
class Game:
    """The exact solution: `shares[j]` says how often each set is fooled at point j.

    `lower` is what the shares reach, `upper` what `weights` (over networks, summing to 1) prove that nobody
    can exceed; they are equal unless HiGHS returned a basis that is not optimal in exact arithmetic.
    """

    lower: Fraction
    upper: Fraction
    shares: tuple[Shares, ...]
    weights: tuple[Fraction, ...]


@dataclass(frozen=True)
class Block:
    """Points that share a family, and its sets in order."""

    points: tuple[int, ...]
    sets: tuple[int, ...]


def solve(families: Sequence[Family], networks: int) -> Game:
    """The value of the game and how to play it."""
    if all(len(family) == 1 for family in families):
        return _without_choice(families, networks)
    places: dict[Family, list[int]] = defaultdict(list)
    for j, family in enumerate(families):
        places[family].append(j)
    blocks = [Block(tuple(points), tuple(sorted(family))) for family, points in places.items()]
    basis = _basis(blocks, networks, len(families))
    amounts = _primal(blocks, networks, len(families), basis)
    weights = _dual(blocks, networks, basis)
    shares: list[Shares] = [{} for _ in families]
    for block, amount in zip(blocks, amounts, strict=True):
        for j, share in zip(block.points, spread(amount, len(block.points)), strict=True):
            shares[j] = share
    return Game(value_of(shares, networks), bound_of(families, weights), tuple(shares), tuple(weights))


def _without_choice(families: Sequence[Family], networks: int) -> Game:
    """Where every point has one set only: the network that is fooled the least is the certificate."""
    shares = tuple({next(iter(family)): Fraction(1)} for family in families)
    counts = [sum(_has(mask, c) for share in shares for mask in share) for c in range(networks)]
    weights = tuple(Fraction(c == counts.index(min(counts))) for c in range(networks))
    return Game(value_of(shares, networks), bound_of(families, weights), shares, weights)


def value_of(shares: Sequence[Shares], networks: int) -> Fraction:
    """min over networks of the mean share of points at which it is fooled."""
    totals = [Fraction(0)] * networks
    for share in shares:
        for mask, amount in share.items():
            for c in members(mask):
                totals[c] += amount
    return min(totals) / len(shares)


def bound_of(families: Sequence[Family], weights: Sequence[Fraction]) -> Fraction:
    """(1/m) sum_j max_S w(S): no attack on these families exceeds it."""
    cache: dict[Family, Fraction] = {}
    total = Fraction(0)
    for family in families:
        if family not in cache:
            cache[family] = max(sum((weights[c] for c in members(s)), Fraction(0)) for s in family)
        total += cache[family]
    return total / len(families)


@dataclass(frozen=True)
class _Basis:
    """Which columns are basic: (block, set) pairs, whether t is, and which networks' rows are slack."""

    columns: tuple[tuple[int, int], ...]
    value: bool
    slack: tuple[int, ...]
    guess: tuple[float, ...]  # the amounts of all columns in floating point, in block order
    duals: tuple[float, ...]


def _basis(blocks: Sequence[Block], networks: int, points: int) -> _Basis:
    """An optimal basis by HiGHS' dual simplex."""
    pairs = [(b, mask) for b, block in enumerate(blocks) for mask in block.sets]
    solver = new_solver(threads=1)
    solver.setOptionValue("solver", "simplex")
    solver.setOptionValue("presolve", "off")
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        solver.setOptionValue(name, 1e-10)
    solver.passModel(_program(blocks, pairs, networks, points))
    run(solver)
    basis, solution = solver.getBasis(), solver.getSolution()
    basic = highspy.HighsBasisStatus.kBasic
    columns = tuple(p for p, s in zip(pairs, basis.col_status, strict=False) if s == basic)
    slack = tuple(c for c in range(networks) if basis.row_status[c] == basic)
    values, duals = list(solution.col_value), list(solution.row_dual)
    is_basic = basis.col_status[len(pairs)] == basic
    return _Basis(columns, is_basic, slack, tuple(values[:-1]), tuple(duals[:networks]))


def _program(blocks: Sequence[Block], pairs: Sequence[tuple[int, int]], networks: int, points: int) -> Any:
    """Rows: networks, then blocks. Columns: the pairs, then t. Minimises -t."""
    starts, index, value = [0], list[int](), list[float]()
    for b, mask in pairs:
        index += [*members(mask), networks + b]
        value += [1.0] * (len(index) - len(value))
        starts.append(len(index))
    index += range(networks)
    value += [-float(points)] * networks
    starts.append(len(index))
    sizes = [float(len(block.points)) for block in blocks]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(pairs) + 1, networks + len(blocks)
    lp.col_cost_ = np.array([0.0] * len(pairs) + [-1.0])
    lp.col_lower_ = np.zeros(len(pairs) + 1)
    lp.col_upper_ = np.full(len(pairs) + 1, np.inf)
    lp.row_lower_ = np.array([0.0] * networks + sizes)
    lp.row_upper_ = np.array([np.inf] * networks + sizes)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.array(starts, np.int32)
    lp.a_matrix_.index_ = np.array(index, np.int32)
    lp.a_matrix_.value_ = np.array(value)
    return lp


def _primal(blocks: Sequence[Block], networks: int, points: int, basis: _Basis) -> list[Shares]:
    """Exact amounts per block: the basis with one key column per block eliminated, a small dense system."""
    keys, extra = _keys(len(blocks), basis)
    unknowns = len(extra) + int(basis.value) + len(basis.slack)
    if len(keys) == len(blocks) and unknowns == networks:
        rows, right = [], []
        for c in range(networks):
            row = [Fraction(_has(mask, c) - _has(keys[b], c)) for b, mask in extra]
            row += [Fraction(-points)] if basis.value else []
            row += [Fraction(-1 if c == s else 0) for s in basis.slack]
            rows.append(row)
            base = sum(len(block.points) for b, block in enumerate(blocks) if _has(keys[b], c))
            right.append(Fraction(-base))
        solved = gauss(rows, right)
        if solved is not None:
            amounts: list[Shares] = [{keys[b]: Fraction(len(blk.points))} for b, blk in enumerate(blocks)]
            for (b, mask), amount in zip(extra, solved, strict=False):
                amounts[b][mask] = amount
                amounts[b][keys[b]] -= amount
            if all(a >= 0 for amount in amounts for a in amount.values()):
                return [{s: a for s, a in amount.items() if a} for amount in amounts]
    return _rounded(blocks, basis.guess)


def _rounded(blocks: Sequence[Block], guess: Sequence[float]) -> list[Shares]:
    """The floating-point amounts as fractions, made to add up: feasible, if not optimal to the last digit."""
    amounts, start = [], 0
    for block in blocks:
        part = [Fraction(max(v, 0.0)) for v in guess[start : start + len(block.sets)]]
        start += len(block.sets)
        total = sum(part, Fraction(0))
        scaled = [v * len(block.points) / total for v in part] if total else [Fraction(len(block.points))]
        amounts.append({s: v for s, v in zip(block.sets, scaled, strict=False) if v})
    return amounts


def _dual(blocks: Sequence[Block], networks: int, basis: _Basis) -> list[Fraction]:
    """Exact weights: basic sets of a block weigh the same, slack networks nothing, all together one."""
    keys, extra = _keys(len(blocks), basis)
    rows = [[Fraction(_has(mask, c) - _has(keys[b], c)) for c in range(networks)] for b, mask in extra]
    rows += [[Fraction(c == s) for c in range(networks)] for s in basis.slack]
    right = [Fraction(0)] * len(rows)
    if basis.value:
        rows.append([Fraction(1)] * networks)
        right.append(Fraction(1))
    solved = gauss(rows, right) if len(rows) == networks else None
    if solved is None or min(solved) < 0 or sum(solved) != 1:
        solved = [Fraction(max(abs(d), 0.0)) for d in basis.duals]
        total = sum(solved, Fraction(0))
        return [w / total for w in solved] if total else [Fraction(1, networks)] * networks
    return solved


def _keys(blocks: int, basis: _Basis) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """One basic set per block, and the other basic columns."""
    keys: dict[int, int] = {}
    extra = []
    for b, mask in basis.columns:
        if b in keys:
            extra.append((b, mask))
        else:
            keys[b] = mask
    return keys, extra


def _has(mask: int, network: int) -> int:
    return mask >> network & 1


def gauss(matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction] | None:
    """The solution of a square system in exact arithmetic, or None where it is singular."""
    size = len(right)
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    for k in range(size):
        pivot = next((r for r in range(k, size) if rows[r][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        head = rows[k][k]
        rows[k] = [v / head for v in rows[k]]
        for r in range(size):
            factor = rows[r][k]
            if r != k and factor:
                rows[r] = [v - factor * w for v, w in zip(rows[r], rows[k], strict=True)]
    return [row[size] for row in rows]


def spread(amount: Shares, points: int) -> list[Shares]:
    """Amounts that add up to `points`, laid end to end and cut at whole numbers: one share per point."""
    shares: list[Shares] = [{} for _ in range(points)]
    at = Fraction(0)
    for mask, size in amount.items():
        end = at + size
        while at < end:
            j = int(at)
            step = min(end, Fraction(j + 1)) - at
            shares[j][mask] = shares[j].get(mask, Fraction(0)) + step
            at += step
    return shares


@dataclass(frozen=True)
class Play:
    """A deterministic attack: which set it fools at every point, and how likely it is."""

    probability: Fraction
    sets: tuple[int, ...]


def lay_out(shares: Sequence[Shares]) -> list[Play]:
    """A randomized attack with these marginals: lay each point's shares on [0, 1] and cut at every boundary.

    A basic solution has at most one share per point and one more per network in all, so the cuts leave at
    most as many attacks as there are networks.
    """
    cuts = {Fraction(0), Fraction(1)}
    for share in shares:
        at = Fraction(0)
        for amount in share.values():
            at += amount
            cuts.add(at)
    ordered = sorted(cuts)
    return [
        Play(end - begin, tuple(_at(share, begin) for share in shares)) for begin, end in pairwise(ordered)
    ]


def _at(share: Shares, place: Fraction) -> int:
    """The set whose interval begins at or before `place` and ends after it."""
    at = Fraction(0)
    for mask, amount in share.items():
        at += amount
        if place < at:
            return mask
    return next(reversed(share))
