"""What is known about the sets of networks that can be fooled together at one point.

Sets are bit masks over the networks. A witness covers every subset of the set it fools, a proof every
superset of the set that cannot be fooled; what is neither is open, or was asked without an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError

MAX_NETWORKS = 14  # sets are enumerated: 2^14 of them
Float32 = NDArray[np.float32]


class SetStatus(Enum):
    """What is known about one set."""

    SAT = "sat"
    UNSAT = "unsat"
    UNKNOWN = "unknown"
    OPEN = "open"


@dataclass(eq=False)
class Lattice:
    """The sets at one point; `fooled` holds the maximal known ones, each with its replayed input."""

    networks: int
    fooled: dict[int, Float32] = field(default_factory=dict)
    safe: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not 1 <= self.networks <= MAX_NETWORKS:
            raise InputError("ensemble", f"1 to {MAX_NETWORKS} networks", str(self.networks))

    @property
    def everyone(self) -> int:
        return (1 << self.networks) - 1

    def status(self, mask: int) -> SetStatus:
        if any(mask & ~known == 0 for known in self.fooled) or mask == 0:
            return SetStatus.SAT
        if any(known & ~mask == 0 for known in self.safe):
            return SetStatus.UNSAT
        return SetStatus.UNKNOWN if mask in self.unknown else SetStatus.OPEN

    def add_witness(self, pattern: int, x: Float32) -> bool:
        """An input that fools exactly `pattern`; says whether that is news. Drops proofs it contradicts."""
        if pattern == 0 or any(pattern & ~known == 0 for known in self.fooled):
            return False
        self.fooled = {known: p for known, p in self.fooled.items() if known & ~pattern}
        self.fooled[pattern] = x
        self.safe = {s for s in self.safe if s & ~pattern}
        self.unknown = {u for u in self.unknown if u & ~pattern}
        return True

    def add_proof(self, mask: int) -> None:
        """The set cannot be fooled together."""
        if self.status(mask) is SetStatus.SAT or any(known & ~mask == 0 for known in self.safe):
            return
        self.safe = {s for s in self.safe if mask & ~s} | {mask}
        self.unknown = {u for u in self.unknown if mask & ~u}

    def add_unknown(self, mask: int) -> None:
        """The set was asked about, without an answer."""
        if self.status(mask) is SetStatus.OPEN:
            self.unknown.add(mask)

    def lower_family(self) -> frozenset[int]:
        """The maximal sets known to be fooled; the empty set where there is none."""
        return frozenset(self.fooled) or frozenset({0})

    def upper_family(self) -> frozenset[int]:
        """The maximal sets not known to be safe."""
        return maximal_avoiding(self.networks, frozenset(self.safe))

    def hopeful_family(self) -> frozenset[int]:
        """The maximal sets neither safe nor asked in vain: what is still worth asking, or fooled."""
        blocked = frozenset(self.safe | self.unknown)
        family = set(maximal_avoiding(self.networks, blocked)) | set(self.fooled)
        return frozenset(maximal(family))

    def witness(self, mask: int) -> tuple[int, Float32]:
        """A known input that fools at least `mask`, and all it fools."""
        return next((known, x) for known, x in self.fooled.items() if mask & ~known == 0)


def maximal(family: Iterable[int]) -> list[int]:
    """The sets that no other contains."""
    sets = set(family)
    return sorted(s for s in sets if not any(s != t and s & ~t == 0 for t in sets))


@lru_cache(maxsize=4096)
def maximal_avoiding(networks: int, forbidden: frozenset[int]) -> frozenset[int]:
    """The maximal sets that contain none of the forbidden ones: shrink the whole one conflict at a time."""
    family = {(1 << networks) - 1}
    for bad in sorted(forbidden):
        hit = [s for s in family if bad & ~s == 0]
        family -= set(hit)
        family |= {s & ~bit for s in hit for bit in bits(bad)}
        family = set(maximal(family))
    return frozenset(family)


def bits(mask: int) -> Iterator[int]:
    """The single-network masks of a set."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


def members(mask: int) -> list[int]:
    """The positions of a set's networks."""
    return [bit.bit_length() - 1 for bit in bits(mask)]
