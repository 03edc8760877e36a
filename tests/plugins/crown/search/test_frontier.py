"""Nothing that waits is lost or taken twice, however many threads share it and however few they may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest

from verifolio.plugins.crown.search.frontier import Frontier


@dataclass(frozen=True)
class Numbers:
    held: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.held)

    def pick(self, index: slice) -> Self:
        return type(self)(self.held[index])

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        return cls(sum((p.held for p in parts), ()))


@pytest.mark.parametrize("least", [1, 16])
@pytest.mark.parametrize("among", [1, 2, 3])
def test_everything_is_taken_once(among: int, least: int) -> None:
    rng, room = np.random.default_rng(among), 64
    for _ in range(50):
        frontier: Frontier[Numbers] = Frontier()
        sizes = rng.integers(0, 90, 4).tolist()
        for start, size in zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False):
            frontier.add(Numbers(tuple(range(start, start + size))))
        taken: list[int] = []
        while waiting := len(frontier):
            part = frontier.take(room, among, least)
            assert part is not None and min(least, waiting) <= len(part) <= room
            assert len(part) >= min(room, waiting // among)
            taken += part.held
        assert sorted(taken) == list(range(sum(sizes)))
        assert frontier.take(room, among, least) is None
