"""YAML from strangers: plain values only, and never more of them than the text suggests."""

from __future__ import annotations

from typing import Any

import yaml

from verifolio.errors import InputError

MAX_SIZE = 1_000_000  # characters and values of a file once every alias is replaced by what it stands for
MAX_DEPTH = 64  # far more than any of our files needs, far less than the interpreter's recursion limit


def load_yaml(text: str, name: str) -> Any:
    """The plain values in a text; `name` is what errors show."""
    node = compose_yaml(text, name)
    return None if node is None else plain_value(node, name)


def compose_yaml(text: str, name: str) -> yaml.Node | None:
    """The nodes of a text, whose size is bounded even where aliases repeat parts of it."""
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        got = getattr(error, "problem", None) or str(error)
        raise InputError(where, "YAML", " ".join(str(got).split())[:200]) from None
    except RecursionError:
        raise InputError(name, f"YAML at most {MAX_DEPTH} levels deep", "more") from None
    if node is not None:
        _Meter(name).size(node, 0)
    return node


def plain_value(node: yaml.Node, name: str) -> Any:
    """What a node stands for: texts, numbers, truth values, lists and mappings."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise InputError(
            place(node, name), "a plain value (YAML)", " ".join(str(error).split())[:200]
        ) from None
    except (ValueError, OverflowError) as error:  # a date or a number that Python cannot hold
        raise InputError(place(node, name), "a plain value (YAML)", str(error)[:200]) from None
    finally:
        loader.dispose()


def place(node: yaml.Node, name: str) -> str:
    """Where a node begins."""
    return f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


class _Meter:
    """Measures nodes as if every alias were written out; each is visited once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[int, int] = {}
        self._open: set[int] = set()

    def size(self, node: yaml.Node, depth: int) -> int:
        """Characters and values below a node."""
        if id(node) in self._known:
            return self._known[id(node)]
        if id(node) in self._open:
            raise InputError(place(node, self._name), "values", "a value that contains itself")
        if depth > MAX_DEPTH:
            raise InputError(place(node, self._name), f"YAML at most {MAX_DEPTH} levels deep", "more")
        self._open.add(id(node))
        total = 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else self._below(node, depth))
        self._open.discard(id(node))
        if total > MAX_SIZE:
            remedy = "write fewer aliases"
            raise InputError(place(node, self._name), f"at most {MAX_SIZE} characters", "more", remedy)
        self._known[id(node)] = total
        return total

    def _below(self, node: yaml.Node, depth: int) -> int:
        parts = (
            node.value if isinstance(node, yaml.SequenceNode) else [n for pair in node.value for n in pair]
        )
        return sum(self.size(part, depth + 1) for part in parts)
