"""Checks what rests on many certificates: a table of proved radii, and the value of an ensemble.

A folder has, per proof, NAME.gz (the certificate), NAME.vnnlib (its property) and NAME.json, which states the input,
its label, the radius and the legal range, and `mean` and `std` where networks read (x - mean) / std. The property has
to cover every input of that ball, and every way in which all networks of the set give another label.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from verifolio_check import operators
from verifolio_check.certificate import check, lines_of
from verifolio_check.files import load, read_bytes
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.network import Network
from verifolio_check.vnnlib import Region
from verifolio_check.witness import outputs

MOST_CHOICES, MOST_NETWORKS = 100_000, 14
FAR = 2.0**300  # stands for infinite ends of a legal range


@dataclass(frozen=True)
class Ball:
    """All legal inputs within a radius, and the label that none of them is to change."""

    x: list[Fraction]
    label: int
    radius: Fraction
    low: Fraction
    high: Fraction
    mean: list[Fraction]
    std: list[Fraction]

    @classmethod
    def stated(cls, found: Mapping[str, Any]) -> Ball:
        x, size = [exact(v) for v in found["x"]], len(found["x"])
        mean, std = ([exact(v) for v in found.get(key) or [d] * size] for key, d in (("mean", 0), ("std", 1)))
        radius, low, high = (exact(found[key]) for key in ("radius", "low", "high"))
        legal = radius >= 0 and low <= min(x) and max(x) <= high  # else it is empty, and anything holds of it
        if not legal or type(found["label"]) is not int or not size == len(mean) == len(std) or min(std) <= 0:
            raise Unreadable("a ball whose numbers do not fit each other")
        return cls(x, found["label"], radius, low, high, mean, std)

    def ends(self) -> list[tuple[Fraction, Fraction]]:
        return [(max(self.low, x - self.radius), min(self.high, x + self.radius)) for x in self.x]

    def within(self, region: Region) -> bool:
        """Whether a box has all inputs, as the network reads them."""
        sides = zip(self.ends(), self.mean, self.std, region.lower, region.upper, strict=True)
        return all(a <= (low - m) / s and (high - m) / s <= b for (low, high), m, s, a, b in sides)


def exact(value: Any) -> Fraction:
    """The double that a text or a number stands for."""
    return Fraction(min(max(float(value), -FAR), FAR))


def check_radii(nets: Sequence[Path], table: Path, folder: Path) -> str:
    """Every radius of the column `lower` has a certificate, of this radius or a larger one."""
    found = [(path, json.loads(read_bytes(path))) for path in sorted(folder.glob("*.json"))]
    known = {(s["network"], s["split"], s["image_id"]): (path, Ball.stated(s)) for path, s in found}
    with table.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row["lower"] or 0) > 0]
    for row in rows:
        path, ball = known.get((row["network"], row["split"], int(row["image_id"])), (folder, None))
        if ball is None or ball.radius < exact(row["lower"]) or ball.label != int(row["predicted"]):
            place = f"{row['network']} {row['split']} {row['image_id']}"
            raise Invalid(f"{place}: there is no certificate of the radius {row['lower']}")
        mine = [n for n in nets if row["network"] in (n.name, str(n))]
        if len(mine) != 1:
            raise Unreadable(f"expected the network {row['network']} once, got it {len(mine)} times")
        check_ball(mine, ball, path)
    return f"valid: {len(rows)} radii"


def check_ball(nets: Sequence[Path], ball: Ball, path: Path) -> None:
    """Returns if the certificate proves that no input of the ball makes all networks give another label."""
    network, regions, hashes = load(nets, path.with_suffix(".vnnlib"))
    if not any(ball.within(r) and condition(r, network.sizes, ball.label) for r in regions):
        raise Invalid(f"{path.stem}.vnnlib is about less than the ball or than all other labels")
    try:
        check(network, regions, hashes, lines_of(path.with_suffix(".gz")))
    except Invalid as error:
        raise Invalid(f"{path.stem}: {error}") from error


def condition(region: Region, sizes: Sequence[int], label: int) -> bool:
    """Whether every choice of a wrong label per network has a disjunct: its rows, or its rows and their sum."""
    if not 0 <= label < min(sizes) or prod(sizes) > MOST_CHOICES:
        raise Unreadable(f"no label {label}, or more than {MOST_CHOICES} choices of labels")
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    known = {
        frozenset((row.inputs, tuple(sorted(row.outputs)), row.limit, row.strict) for row in rows)
        for rows in region.disjuncts
    }
    for choice in product(*([w for w in range(size) if w != label] for size in sizes)):
        gaps = [((s + label, 1), (s + w, -1)) for s, w in zip(starts, choice, strict=True)]
        rows = [((), tuple(sorted(terms)), 0, False) for terms in (*gaps, sum(gaps, ()))]
        if not {frozenset(rows), frozenset(rows[:-1])} & known:
            return False
    return True


def check_value(nets: Sequence[Path], folder: Path) -> str:
    """The value of the game: what attacks reach, by exact outputs, and what weights prove, by certificates."""
    game = json.loads(read_bytes(folder / "value.json"))
    balls, weights = [Ball.stated(p) for p in game["points"]], [Fraction(w) for w in game["weights"]]
    if [n.name for n in nets] != game["networks"] or len(weights) != len(nets):
        raise Unreadable(f"expected the networks {' '.join(game['networks'])} in this order")
    if min(weights) < 0 or sum(weights) != 1 or not balls or len(nets) > MOST_NETWORKS:
        raise Invalid(f"the weights do not add up to 1, or no points, or more than {MOST_NETWORKS} networks")
    safe: list[list[int]] = [[] for _ in balls]
    for proof in game["proofs"]:
        path, point = folder / f"{proof['file']}.json", proof["point"]
        if Ball.stated(json.loads(read_bytes(path))) != balls[point]:
            raise Invalid(f"{proof['file']} is about another point")
        check_ball([nets[c] for c in proof["set"]], balls[point], path)
        safe[point].append(sum(1 << c for c in set(proof["set"])))
    total = sum((heaviest(weights, sets) for sets in safe), Fraction(0)) / len(balls)
    if total > Fraction(game["upper"]):
        raise Invalid(f"the certificates prove the value {total} only, not {game['upper']}")
    least = min(reached([operators.read(read_bytes(n)) for n in nets], game["attacks"], balls))
    if least < Fraction(game["lower"]):
        raise Invalid(f"the attacks reach {least} only in exact arithmetic, not {game['lower']}")
    return f"valid: the value lies between {game['lower']} and {game['upper']}"


def heaviest(weights: Sequence[Fraction], safe: Sequence[int]) -> Fraction:
    """The most that networks weigh which may all be fooled at once: no safe set is among them."""
    open_sets = (m for m in range(1 << len(weights)) if not any(s & ~m == 0 for s in safe))
    return max(sum((w for c, w in enumerate(weights) if m >> c & 1), Fraction(0)) for m in open_sets)


def reached(networks: Sequence[Network], attacks: Sequence[Any], balls: Sequence[Ball]) -> list[Fraction]:
    """The share of points at which each network gives another label, or a tie, in exact arithmetic."""
    shares = [Fraction(attack["probability"]) for attack in attacks]
    if min(shares, default=0) < 0 or sum(shares) != 1:
        raise Invalid("the probabilities of attacks do not add up to 1")
    total = [Fraction(0)] * len(networks)
    for share, attack in zip(shares, attacks, strict=True):
        for x, ball in zip(attack["points"], balls, strict=True):
            values = [exact(v) for v in x]
            if not all(a <= v <= b for v, (a, b) in zip(values, ball.ends(), strict=True)):
                raise Invalid("an attack uses an input that is out of reach")
            read = [(v - m) / s for v, m, s in zip(values, ball.mean, ball.std, strict=True)]
            for c, network in enumerate(networks):
                low, high = outputs(network, read)
                if not 0 <= ball.label < len(low):
                    raise Unreadable(f"no label {ball.label}")
                wrong = max(low[: ball.label] + low[ball.label + 1 :]) >= high[ball.label]
                total[c] += share / len(balls) if wrong else 0
    return total
