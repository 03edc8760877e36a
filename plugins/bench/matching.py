"""Which row of another tool's table is about which instance: by paths, and by names where they leave no doubt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .instances import Instance, file_stem, network_stem, parse_networks


@dataclass(frozen=True)
class Key:
    """What a row or an instance is about, in texts: the category and the paths of its files."""

    category: str
    onnx: str
    vnnlib: str

    @property
    def stems(self) -> tuple[str, str]:
        return network_stem(self.onnx), file_stem(self.vnnlib)

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The parts of every path, each network's name before its own."""
        networks = [(name, *parts(path)) for name, path in parse_networks(self.onnx)]
        return (*networks, ("", *parts(self.vnnlib)))


def key_of(instance: Instance) -> Key:
    """The key of an instance."""
    return Key(instance.category, instance.onnx, instance.vnnlib)


def row_label(key: Key) -> str:
    """The label of an instance without an id, from a row about it."""
    return Instance(key.category, key.onnx, key.vnnlib, (), Path(key.vnnlib), 0.0).label


def parts(path: str) -> tuple[str, ...]:
    """The folders and the name of a path, without what differs between copies of a benchmark."""
    return PurePosixPath(path.removesuffix(".gz").replace("\\", "/")).parts


def agree(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two paths (after the network's name) end in the same way, as far as the shorter one goes."""
    length = min(len(one), len(other)) - 1
    return one[0] == other[0] and one[len(one) - length :] == other[len(other) - length :]


def _all_agree(a: Key, b: Key) -> bool:
    one, other = a.paths, b.paths
    return len(one) == len(other) and all(agree(x, y) for x, y in zip(one, other, strict=True))


# From the surest to the weakest sign that a row is about an instance; names alone come last.
LEVELS: tuple[Callable[[Key, Key], bool], ...] = (
    lambda a, b: a.category == b.category and a.paths == b.paths,
    lambda a, b: a.category == b.category and _all_agree(a, b),
    lambda a, b: a.paths == b.paths,
    _all_agree,
    lambda a, b: a.category == b.category,
    lambda a, b: True,
)


@dataclass(frozen=True)
class Matching:
    """The row of every instance that has one, and the instances for which several could be meant."""

    rows: dict[Key, Key]
    doubtful: tuple[Key, ...]


def match(instances: Sequence[Key], rows: Sequence[Key]) -> Matching:
    """Pairs in which each is the only candidate of the other; anything else is left out and told."""
    groups: dict[tuple[str, str], tuple[list[Key], list[Key]]] = defaultdict(lambda: ([], []))
    for side, keys in enumerate((instances, rows)):
        for key in dict.fromkeys(keys):
            groups[key.stems][side].append(key)
    found: dict[Key, Key] = {}
    doubtful: list[Key] = []
    for wanted, given in groups.values():
        _match_group(wanted, given, found, doubtful)
    return Matching(found, tuple(doubtful))


def _match_group(wanted: list[Key], given: list[Key], found: dict[Key, Key], doubtful: list[Key]) -> None:
    """Keys whose names are the same; what a surer sign has settled is no candidate for a weaker one."""
    for fits in LEVELS:
        candidates = {i: [r for r in given if fits(i, r)] for i in wanted}
        claimed = [r for rows in candidates.values() for r in rows]
        unclear = [
            i for i, rows in candidates.items() if len(rows) > 1 or any(claimed.count(r) > 1 for r in rows)
        ]
        sure = {i: rows[0] for i, rows in candidates.items() if rows and i not in unclear}
        found.update(sure)
        doubtful += unclear
        gone = {r for i in unclear for r in candidates[i]} | set(sure.values())
        wanted = [i for i in wanted if i not in sure and i not in unclear]
        given = [r for r in given if r not in gone]
