"""Portfolios from YAML, with errors that name the file and the line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from verifolio.errors import InputError
from verifolio.files.bounded import read_text
from verifolio.files.yaml_file import compose_yaml, place, plain_value
from verifolio.plugin.choice import Choice
from verifolio.portfolio.features import FEATURES
from verifolio.portfolio.tree import Member, Portfolio, Race, Series, Stage

KEYS = ("verifier", "options", "seconds", "share", "optional", "at_most", "early")
BATCHES = ("attack", "bounder")  # keys beside the tree: who works on many questions at once
SHAPES: Mapping[str, type[Series] | type[Race]] = {"sequence": Series, "race": Race}
MAX_BYTES = 1_000_000  # a thousand times the largest portfolio so far
MAX_DEPTH = 16  # of sequences and races; people write two or three
MAX_STAGES = 1000  # YAML aliases could otherwise blow a short file up


def read_portfolio(path: str | Path) -> Portfolio:
    """The portfolio a file describes."""
    text = read_text(Path(path), "a portfolio file", MAX_BYTES)
    return parse_portfolio(text, str(path))


def parse_portfolio(text: str, name: str = "<portfolio>") -> Portfolio:
    """The portfolio a text describes; `name` is what errors show."""
    node = compose_yaml(text, name)
    if node is None:
        raise InputError(name, "a stage: sequence, race or verifier", "an empty file")
    return _Reader(name).portfolio(node)


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._stages = 0

    def where(self, node: yaml.Node) -> str:
        return place(node, self._name)

    def portfolio(self, node: yaml.Node) -> Portfolio:
        """The tree, and beside it who works on batches."""
        if not isinstance(node, yaml.MappingNode):
            return Portfolio(self.stage(node, 0), self._title)
        entries = self._entries(node)
        named = {key: self._batch(entries[key]) for key in BATCHES if key in entries}
        rest = [(k, v) for k, v in node.value if k.value not in BATCHES]
        tree = yaml.MappingNode(node.tag, rest, node.start_mark, node.end_mark)
        return Portfolio(
            self.stage(tree, 0), self._title, attack=named.get("attack"), bounder=named.get("bounder")
        )

    def _batch(self, node: yaml.Node) -> Member:
        member = self.stage(node, 1)
        if not isinstance(member, Member) or member.limit(1.0) is not None or member.at_most:
            raise InputError(self.where(node), "a verifier, perhaps with options, without limits", "a stage")
        return member

    @property
    def _title(self) -> str:
        return Path(self._name).stem

    def stage(self, node: yaml.Node, depth: int) -> Stage:
        expected = "a stage: a mapping with `sequence`, `race` or `verifier`"
        self._stages += 1
        if depth > MAX_DEPTH or self._stages > MAX_STAGES:
            raise InputError(self.where(node), f"at most {MAX_STAGES} stages, {MAX_DEPTH} deep", "more")
        if isinstance(node, yaml.ScalarNode) and node.value and node.tag.endswith(":str"):
            return Member(Choice(node.value, where=self.where(node)))
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise InputError(self.where(node), expected, _shown(node))
        entries = self._entries(node)
        for key, shape in SHAPES.items():
            if key in entries:
                return self._group(node, entries, key, shape, depth)
        if "verifier" not in entries:
            raise InputError(self.where(node), expected, ", ".join(entries))
        return self._member(node, entries)

    def _entries(self, node: yaml.MappingNode) -> dict[str, yaml.Node]:
        entries: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in entries:
                raise InputError(self.where(key), "every key once", _shown(key))
            entries[key.value] = value
        return entries

    def _group(
        self,
        node: yaml.Node,
        entries: dict[str, yaml.Node],
        key: str,
        shape: type[Series] | type[Race],
        depth: int,
    ) -> Stage:
        if len(entries) > 1:
            others = ", ".join(k for k in entries if k != key)
            raise InputError(self.where(node), f"`{key}` alone", f"also {others}", "limits belong to members")
        stages = entries[key]
        if not isinstance(stages, yaml.SequenceNode) or not stages.value:
            raise InputError(self.where(stages), f"a list of stages under `{key}`", _shown(stages))
        return shape(tuple(self.stage(s, depth + 1) for s in stages.value))

    def _member(self, node: yaml.Node, entries: dict[str, yaml.Node]) -> Member:
        for key, value in entries.items():
            if key not in KEYS:
                raise InputError(self.where(value), f"one of {', '.join(KEYS)}", key)
        name = self._value(entries["verifier"])
        if not isinstance(name, str):
            raise InputError(self.where(entries["verifier"]), "the name of a verifier", repr(name))
        options = self._value(entries["options"]) if "options" in entries else {}
        if not isinstance(options, dict) or not all(isinstance(k, str) for k in options):
            raise InputError(self.where(entries["options"]), "a mapping of options", repr(options))
        where = self.where(entries.get("options", node))
        seconds = self._positive(entries, "seconds", math.inf)
        share = self._positive(entries, "share", 1.0)
        optional, early, limits = (
            self._flag(entries, "optional"),
            self._flag(entries, "early"),
            self._limits(entries),
        )
        if early and limits:
            raise InputError(self.where(entries["at_most"]), "`early` or `at_most`", "both")
        return Member(Choice(name, options, where), seconds, share, optional, limits, early)

    def _flag(self, entries: dict[str, yaml.Node], key: str) -> bool:
        value = self._value(entries[key]) if key in entries else False
        if not isinstance(value, bool):
            raise InputError(self.where(entries[key]), "true or false", repr(value))
        return value

    def _limits(self, entries: dict[str, yaml.Node]) -> dict[str, int]:
        """What `at_most` says: features and whole numbers."""
        if "at_most" not in entries:
            return {}
        node = entries["at_most"]
        limits = self._value(node)
        known = ", ".join(FEATURES)
        if not isinstance(limits, dict) or not all(name in FEATURES for name in limits):
            raise InputError(
                self.where(node), f"a mapping of features ({known}) under `at_most`", repr(limits)
            )
        for name, most in limits.items():
            if isinstance(most, bool) or not isinstance(most, int) or most < 0:
                raise InputError(self.where(node), f"a whole number for `{name}`", repr(most))
        return limits

    def _positive(self, entries: dict[str, yaml.Node], key: str, most: float) -> float | None:
        if key not in entries:
            return None
        value = self._value(entries[key])
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            what = "a positive number" + ("" if math.isinf(most) else f" up to {most:g}")
            raise InputError(self.where(entries[key]), f"{what} for `{key}`", repr(value))
        return float(value)

    def _value(self, node: yaml.Node) -> Any:
        return plain_value(node, self._name)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value[:40])
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
