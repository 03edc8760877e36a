"""Checks what rests on many certificates: a table of proved radii, and the value of an ensemble.

A folder has, per proof, NAME.gz (the certificate), NAME.vnnlib (its property) and NAME.json, which states the input,
its label, the radius and the legal range, and `mean` and `std` where networks read (x - mean) / std. The property has
to cover every input of that ball, and every way in which all networks of the set give another label.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from verifolio_check import operators
from verifolio_check.certificate import check, lines_of
from verifolio_check.files import load
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.network import Network
from verifolio_check.vnnlib import Region
from verifolio_check.witness import outputs

LARGEST, MOST_CHOICES, MOST_NETWORKS = 1 << 28, 100_000, 14
Stated = Mapping[str, Any]


def check_radii(nets: Sequence[Path], table: Path, folder: Path) -> str:
    """Every radius of the column `lower` has a certificate, of this radius or a larger one."""
    known = {(s["network"], s["split"], s["image_id"]): s for s in map(state, sorted(folder.glob("*.json")))}
    with table.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row["lower"] or 0) > 0]
    for row in rows:
        name = f"{row['network']} {row['split']} {row['image_id']}"
        stated = known.get((row["network"], row["split"], int(row["image_id"])))
        if (
            stated is None
            or stated["radius"] < exact(row["lower"])
            or stated["label"] != int(row["predicted"])
        ):
            raise Invalid(f"{name}: there is no certificate of the radius {row['lower']}")
        mine = [n for n in nets if n.name == row["network"] or str(n) == row["network"]]
        if len(mine) != 1:
            raise Unreadable(f"expected the network {row['network']} once, got it {len(mine)} times")
        check_ball(mine, stated, folder)
    return f"valid: {len(rows)} radii"


def check_value(nets: Sequence[Path], folder: Path) -> str:
    """The value of the game: what attacks reach, by exact outputs, and what weights prove, by certificates."""
    game = read_json(folder / "value.json")
    sizes, weights = len(game["points"]), [Fraction(w) for w in game["weights"]]
    if [n.name for n in nets] != game["networks"] or len(weights) != len(nets) or min(weights) < 0:
        raise Unreadable(f"expected the networks {' '.join(game['networks'])} in this order")
    if sum(weights) != 1 or not sizes or len(nets) > MOST_NETWORKS:
        raise Invalid(f"the weights do not add up to 1, or no points, or more than {MOST_NETWORKS} networks")
    safe: list[list[int]] = [[] for _ in range(sizes)]
    for proof in game["proofs"]:
        stated, point = state(folder / f"{proof['file']}.json"), game["points"][proof["point"]]
        if any(stated[key] != exact_of(point[key]) for key in ("x", "label", "radius", "low", "high")):
            raise Invalid(f"{proof['file']} is about another point")
        check_ball([nets[c] for c in proof["set"]], stated, folder)
        safe[proof["point"]].append(sum(1 << c for c in set(proof["set"])))
    total = sum((heaviest(weights, sets) for sets in safe), Fraction(0)) / sizes
    if total > Fraction(game["upper"]):
        raise Invalid(f"the certificates prove the value {total} only, not {game['upper']}")
    reached = [Fraction(0)] * len(nets)
    networks = [operators.read(n.read_bytes()) for n in nets]
    for attack in game["attacks"]:
        for x, point in zip(attack["points"], game["points"], strict=True):
            for c in fooled(networks, x, point):
                reached[c] += Fraction(attack["probability"]) / sizes
    shares = [Fraction(a["probability"]) for a in game["attacks"]]
    if min(shares, default=0) < 0 or sum(shares) != 1 or min(reached) < Fraction(game["lower"]):
        raise Invalid(f"the attacks reach {min(reached)} only in exact arithmetic, not {game['lower']}")
    return f"valid: the value lies between {game['lower']} and {game['upper']}"


def heaviest(weights: Sequence[Fraction], safe: Sequence[int]) -> Fraction:
    """The most that networks weigh which may all be fooled at once: no safe set is among them."""
    open_sets = (m for m in range(1 << len(weights)) if not any(s & ~m == 0 for s in safe))
    return max(sum((w for c, w in enumerate(weights) if m >> c & 1), Fraction(0)) for m in open_sets)


def fooled(networks: Sequence[Network], x: Sequence[float], point: Stated) -> list[int]:
    """The networks that give an input of the ball another label, or a tie, in exact arithmetic."""
    low, high, radius = (exact(point[key]) for key in ("low", "high", "radius"))
    for value, centre in zip(map(exact, x), map(exact, point["x"]), strict=True):
        if not max(low, centre - radius) <= value <= min(high, centre + radius):
            raise Invalid("an attack uses an input that is out of reach")
    found = []
    for c, network in enumerate(networks):
        lower, upper = outputs(network, [exact(v) for v in x])
        others = [v for k, v in enumerate(lower) if k != point["label"]]
        found += [c] if max(others) >= upper[point["label"]] else []
    return found


def check_ball(nets: Sequence[Path], stated: Stated, folder: Path) -> None:
    """Returns if the certificate proves that no input of the ball makes all networks give another label."""
    network, regions, hashes = load(nets, folder / f"{stated['file']}.vnnlib")
    if not any(covers(r, stated) and condition(r, network.sizes, stated["label"]) for r in regions):
        raise Invalid(f"{stated['file']}.vnnlib is about less than the ball or than all other labels")
    try:
        check(network, regions, hashes, lines_of(folder / f"{stated['file']}.gz"))
    except Invalid as error:
        raise Invalid(f"{stated['file']}: {error}") from error


def covers(region: Region, stated: Stated) -> bool:
    """Whether a box contains all inputs within the radius and the range."""
    radius, size = stated["radius"], len(region.lower)
    mean, std = (stated[key] or [Fraction(default)] * size for key, default in (("mean", 0), ("std", 1)))
    if not len(stated["x"]) == len(mean) == len(std) == size or min(std) <= 0:
        raise Unreadable(f"{stated['file']}.json: numbers that do not fit the network")
    for x, m, s, lower, upper in zip(stated["x"], mean, std, region.lower, region.upper, strict=True):
        if (max(stated["low"], x - radius) - m) / s < lower or (
            min(stated["high"], x + radius) - m
        ) / s > upper:
            return False
    return True


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


def state(path: Path) -> Stated:
    """What NAME.json states, in exact numbers; `file` is NAME."""
    found = read_json(path)
    numbers = {key: exact_of(found[key]) for key in ("x", "label", "radius", "low", "high", "mean", "std")}
    return {**found, **numbers, "file": path.stem}


def exact_of(value: Any) -> Any:
    """Whole numbers as they are, others as fractions; nothing is an empty list."""
    if isinstance(value, list) or value is None:
        return [exact(v) for v in value or []]
    return value if isinstance(value, int) else exact(value)


def exact(value: Any) -> Fraction:
    """The double that a text or a number stands for; infinite ends of a range count as far away."""
    return Fraction(min(max(float(value), -(2.0**300)), 2.0**300))


def read_json(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        text = file.read(LARGEST)
    found = json.loads(text)
    if not isinstance(found, dict):
        raise Unreadable(f"{path.name}: expected an object")
    return found
