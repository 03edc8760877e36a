"""Certificates of an ensemble's value: the proofs that it rests on, and what the checker makes the value of."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.errors import InputError
from verifolio.model.neighbourhood import Neighbourhood
from verifolio.model.query import Query
from verifolio.plugin.property import Reference
from verifolio.solve.certifying import Certifying, text_of
from verifolio.solve.oracle import Oracle

from .attack import AttackRequest, AttackResult, Method
from .game import bound_of
from .joint import class_counts, dnf
from .lattice import maximal_avoiding, members

MOST_DISJUNCTS = 100_000  # that the checker reads


def require(request: AttackRequest, method: Method, oracle: Oracle) -> None:
    """Say at once that there can be no certificates."""
    if method is not Method.DECOMPOSITION:
        remedy = "use --method decomposition"
        raise InputError("--certificate", "a method that proves the value", method.value, remedy)
    for c in range(len(request.networks)):
        Certifying(oracle).require(set_query(request, request.references[0], 1 << c))


def set_query(request: AttackRequest, reference: Reference, mask: int) -> Query:
    """Is there an input of the ball, rounded outward, that all networks of a set give another label?"""
    networks = tuple(request.networks[c] for c in members(mask))
    sizes = class_counts(networks, reference)
    if math.prod(s - 1 for s in sizes) > MOST_DISJUNCTS:
        raise InputError("--certificate", f"at most {MOST_DISJUNCTS} choices of labels", "more")
    condition = dnf(tuple(sizes), reference.label, len(reference.x))
    low, high = float(np.min(reference.lower)), float(np.max(reference.upper))
    place = (networks, np.asarray(reference.x, np.float64), reference.norm, low, high)
    return Neighbourhood(*place, condition=condition, name="set").query(reference.epsilon)


def certify_value(request: AttackRequest, result: AttackResult, folder: Path, oracle: Oracle) -> list[str]:
    """One certificate per proof that the upper value rests on; says what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    certifying, kept, told = Certifying(oracle), list[dict[str, Any]](), list[str]()
    for j, mask in needed(result, len(request.networks), len(request.references)):
        name, query = f"point{j}-set{mask}", set_query(request, request.references[j], mask)
        said = certifying.make(query, oracle.timeout).save(folder / f"{name}.gz")
        if said.startswith("not written"):
            told.append(f"{name}: certificate {said}")
            continue
        (folder / f"{name}.vnnlib").write_bytes(text_of(query))
        (folder / f"{name}.json").write_text(json.dumps(point_of(request.references[j])) + "\n")
        kept.append({"point": j, "set": members(mask), "file": name})
    (folder / "value.json").write_text(json.dumps(game(request, result, kept), indent=1) + "\n")
    return [f"certificates: {len(kept)} of {len(kept) + len(told)} proofs in {folder}", *told]


def needed(result: AttackResult, networks: int, points: int) -> list[tuple[int, int]]:
    """The proofs without which some point would count for more."""
    found = []
    for j in range(points):
        safe = [mask for i, mask in result.proofs if i == j]
        target = most(safe, result.weights, networks)
        for mask in sorted(safe, key=lambda m: -m.bit_count()):
            rest = [m for m in safe if m != mask]
            if most(rest, result.weights, networks) <= target:
                safe = rest
        found += [(j, mask) for mask in safe]
    return found


def most(safe: Sequence[int], weights: Sequence[Fraction], networks: int) -> Fraction:
    """The most that networks weigh that may all be fooled."""
    return bound_of([maximal_avoiding(networks, frozenset(safe))], weights)


def point_of(reference: Reference) -> dict[str, Any]:
    low, high = float(np.min(reference.lower)), float(np.max(reference.upper))
    return {
        "label": reference.label,
        "radius": float(reference.epsilon),
        "low": low,
        "high": high,
        "mean": None,
        "std": None,
        "x": np.asarray(reference.x, np.float64).ravel().tolist(),
    }


def game(request: AttackRequest, result: AttackResult, proofs: list[dict[str, Any]]) -> dict[str, Any]:
    """What the checker reads: points, weights, proofs and attacks, and the two values that they come to."""
    return {
        "networks": [n.path.name for n in request.networks],
        "lower": str(result.value_lower),
        "upper": str(result.value_upper),
        "weights": [str(w) for w in result.weights],
        "points": [point_of(r) for r in request.references],
        "proofs": proofs,
        "attacks": [
            {
                "probability": str(a.probability),
                "points": [np.asarray(x, np.float64).tolist() for x in a.points],
            }
            for a in result.attacks
        ],
    }
