"""One thread for tensors: these tests are many small products, which only suffer from company.

`seen` hands what a fast path knows about one box of a batch to the reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from verifolio.graph.ops import Array
from verifolio.model.problem import Ball, Domain
from verifolio.plugins.crown.propagate.program import Program, State
from verifolio.plugins.crown.propagate.region import Region
from verifolio.testing.reference import Lines, Reference


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Seen:
    """The set, the intervals and the lines of one box; the lines have the fast path's slopes, not its intercepts."""

    domain: Domain
    intervals: dict[int, tuple[Array, Array]]
    lines: dict[int, Lines]


See = Callable[..., Seen]


@pytest.fixture(scope="session")
def seen() -> See:
    return see


def see(reference: Reference, program: Program, state: State, box: int, row: int = 0) -> Seen:
    """Box `box`; where rows have lines of their own, those of row `row`."""
    intervals = {i: (numbers(low, box), numbers(high, box)) for i, (low, high) in state.interval.items()}
    lines = {}
    for i, own in state.lines.items():
        below, above = (
            [numbers(s if s.dim() == 2 else s[:, row], box) for s in slopes]
            for slopes in (own.lower_slope, own.upper_slope)
        )
        lines[i] = reference.lines(i, intervals, below, above)
    return Seen(as_domain(state.region, box), intervals, lines)


def as_domain(region: Region, box: int) -> Domain:
    """One set of a region, as it was cast."""
    ball = None
    if region.balls is not None:
        held = region.balls
        ball = Ball(numbers(held.centre, box), float(held.radius[min(box, len(held.radius) - 1)]), held.norm)
    return Domain(numbers(region.lower, box), numbers(region.upper, box), ball=ball)


def numbers(value: torch.Tensor, box: int) -> Array:
    return np.asarray(value[min(box, len(value) - 1)].detach().double().cpu().numpy())
