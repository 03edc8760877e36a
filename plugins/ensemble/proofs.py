"""Cheap proofs in batches, by whatever bounder is installed: for single networks, then for sets of them.

A set is safe if one of its members is, or if for every choice of wrong labels the gaps of its members
cannot all be closed at once; for the latter the sum of the gaps is bounded, over the product of the
networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.model.problem import Problem
from verifolio.model.query import product_graph
from verifolio.onnx_import.network import Network
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.manager import current_plugins
from verifolio.run.budget import Budget
from verifolio.trust.audit import refuting_candidates
from verifolio.trust.conflict import BOUNDER
from verifolio.vnnlib import Rows

from .joint import dnf
from .lattice import members
from .replay import Spot

Array = NDArray[np.float64]
CHUNK = 64
MAX_CHOICES = 100


class Prover:
    """Bounds for many spots of one set of networks at a time."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = list(networks)
        self._bounders = current_plugins().all_bounders()
        self._graphs: dict[int, Graph] = {}

    def graph(self, mask: int) -> Graph:
        """The product of a set's networks on one input."""
        if mask not in self._graphs:
            graphs = [self.networks[c].graph for c in members(mask)]
            self._graphs[mask] = product_graph(graphs, shared_input=True)
        return self._graphs[mask]

    def gaps(self, spots: Sequence[Spot], mask: int, stop: Callable[[], bool] = lambda: False) -> list[float]:
        """For each spot a lower bound of the gap that keeps the set from being fooled together; -inf if none."""
        sizes = self._sizes(mask)
        found: list[float] = []
        for start in range(0, len(spots), CHUNK):
            part = spots[start : start + CHUNK]
            if stop() or choices(sizes) > MAX_CHOICES:
                found += [-math.inf] * len(part)
                continue
            problems = [self._problem(s, mask, sizes) for s in part]
            bounder = self._willing(problems[0])
            found += [-math.inf] * len(part) if bounder is None else self._bound(bounder, problems)
        return found

    def refuting_candidates(self, spots: Sequence[Spot], mask: int, seconds: float) -> dict[int, Array]:
        """By position the points that refute, in doubles, that the set cannot be fooled together."""
        return refuting_candidates([self._problem(s, mask, self._sizes(mask)) for s in spots], seconds)

    def name(self, spot: Spot, mask: int) -> str:
        """Who bounds the set at a spot."""
        bounder = self._willing(self._problem(spot, mask, self._sizes(mask)))
        return "nobody" if bounder is None else f"{BOUNDER}{bounder.name}"

    def _sizes(self, mask: int) -> tuple[int, ...]:
        return tuple(self.networks[c].output_size for c in members(mask))

    def _problem(self, spot: Spot, mask: int, sizes: tuple[int, ...]) -> Problem:
        rows = _goals(sizes, spot.reference.label, len(spot.lower))
        return Problem(self.graph(mask), spot.domain, rows)

    def _willing(self, problem: Problem) -> Bounder | None:
        return self._bounders.best(problem, at_most=10)

    def _bound(self, bounder: Bounder, problems: Sequence[Problem]) -> list[float]:
        """The least gap over all choices of wrong labels, each by its best row."""
        found = bounder.bound(problems, Budget())
        return [b.least_margin(p) for b, p in zip(found, problems, strict=True)]


def choices(sizes: Sequence[int]) -> int:
    """How many combinations of wrong labels there are."""
    total = 1
    for s in sizes:
        total *= s - 1
    return total


@lru_cache(maxsize=64)
def _goals(sizes: tuple[int, ...], label: int, start: int) -> tuple[Rows, ...]:
    return dnf(sizes, label, start)
