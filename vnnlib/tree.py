"""The syntax tree of both dialects; every node starts with its offset into the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from verifolio.vnnlib.source import Source

Version: TypeAlias = Literal["1.0", "2.0"]


class Atom(NamedTuple):
    """A number or a variable, as written."""

    offset: int
    text: str


class Apply(NamedTuple):
    """An operator and its arguments: arithmetic, a comparison, or a connective."""

    offset: int
    operator: str
    arguments: tuple[Atom | Apply, ...]


class Form(NamedTuple):
    """A parenthesised list that no parser has interpreted yet."""

    offset: int
    items: tuple[Item, ...]


class Constant(NamedTuple):
    """`(declare-const X_0 Real)` of version 1.0."""

    offset: int
    name: str
    sort: str


class Assertion(NamedTuple):
    """`(assert formula)`."""

    offset: int
    formula: Apply


class TensorDeclaration(NamedTuple):
    """`(declare-input X float32 [1, 5] "node")` of version 2.0, and its two siblings."""

    offset: int
    kind: Literal["input", "hidden", "output"]
    name: str
    dtype: str
    shape: tuple[int, ...]
    node: str | None

    @property
    def size(self) -> int:
        """Number of elements; a scalar has one."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


class Network(NamedTuple):
    """`(declare-network N ...)` of version 2.0."""

    offset: int
    name: str
    isomorphic_to: str | None
    equal_to: str | None
    tensors: tuple[TensorDeclaration, ...]


Expression: TypeAlias = Atom | Apply
Item: TypeAlias = Atom | Apply | Form | Constant | Assertion


@dataclass(frozen=True, eq=False)
class Document:
    """One parsed file: constants (1.0) or networks (2.0), then assertions."""

    source: Source
    version: Version
    constants: tuple[Constant, ...]
    networks: tuple[Network, ...]
    assertions: tuple[Assertion, ...]
    warnings: tuple[str, ...] = ()
