"""Syntax trees back to text, in either dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.exact import decimal_text, read_number
from verifolio.vnnlib.parse2 import FLOATS
from verifolio.vnnlib.symbols import NetworkDeclaration, Symbols, element_name
from verifolio.vnnlib.tree import Apply, Atom, Document, Expression, Network, Version

# The standard's numbers: no exponent, no plus sign, and a point between digits unless tensors hold integers.
_REAL_NUMBER = re.compile(r"-?\d+\.\d+", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)


def rewrite(document: Document, version: Version) -> str:
    """The text of a document in the given version."""
    writer = _DocumentWriter(document, version)
    lines = [*writer.header(), *(f"(assert {writer.formula(a.formula)})" for a in document.assertions)]
    return "\n".join(lines) + "\n"


def declarations(
    networks: tuple[NetworkDeclaration, ...], inputs: int, outputs: int, version: Version
) -> Iterator[str]:
    """The lines before the assertions."""
    if version == "1.0":
        yield from (f"(declare-const X_{index} Real)" for index in range(inputs))
        yield from (f"(declare-const Y_{index} Real)" for index in range(outputs))
        return
    yield "(vnnlib-version <2.0>)"
    for network in networks:
        kinds = (("input", network.inputs), ("hidden", network.hidden), ("output", network.outputs))
        tensors = [_tensor(kind, t.name, t.dtype, t.shape, t.node) for kind, group in kinds for t in group]
        yield from _network(network, tensors)


def _tensor(kind: str, name: str, dtype: str, shape: tuple[int, ...], node: str | None = None) -> str:
    suffix = f' "{node}"' if node is not None else ""
    spelled = "real" if dtype == "Real" else dtype  # the standard's parser takes "Real" for an unknown type
    return f"    (declare-{kind} {name} {spelled} {list(shape)}{suffix})"


def _network(network: NetworkDeclaration | Network, tensors: list[str]) -> Iterator[str]:
    yield f"(declare-network {network.name}"
    if network.isomorphic_to:
        yield f"    (isomorphic-to {network.isomorphic_to})"
    if network.equal_to:
        yield f"    (equal-to {network.equal_to})"
    yield from tensors
    yield ")"


def flat_signature(networks: tuple[NetworkDeclaration, ...], name: str) -> None:
    """Refuse signatures whose meaning version 1.0 cannot express."""
    single = len(networks) == 1 and len(networks[0].inputs) == len(networks[0].results) == 1
    tensors = [tensor for network in networks for tensor in (*network.inputs, *network.results)]
    if single and all(tensor.dtype.lower() in FLOATS for tensor in tensors):
        return
    got = f"{len(networks)} networks with {len(tensors)} tensors" if not single else "another element type"
    remedy = "write version 2.0"
    raise VnnlibError(name, 0, 0, "one network with one real input and one real output tensor", got, remedy)


class _DocumentWriter:
    def __init__(self, document: Document, version: Version) -> None:
        self._document = document
        self._version = version
        self._symbols = Symbols(document) if version != document.version else None
        declared = [tensor.dtype.lower() for network in document.networks for tensor in network.tensors]
        self._has_integers = not FLOATS.issuperset(declared)
        networks = self._symbols.networks if self._symbols else ()
        self._signature = tuple(_named(network) for network in networks)
        if version == "1.0" and self._symbols:
            flat_signature(self._symbols.networks, document.source.name)

    def header(self) -> Iterator[str]:
        """The declarations: as they were, or those of the other dialect."""
        if self._symbols is not None:
            networks = self._signature
            sizes = self._symbols.input_size, self._symbols.output_size
            yield from declarations(networks, *sizes, self._version)
        elif self._version == "1.0":
            yield from (f"(declare-const {c.name} {c.sort})" for c in self._document.constants)
        else:
            yield "(vnnlib-version <2.0>)"
            for network in self._document.networks:
                tensors = [_tensor(t.kind, t.name, t.dtype, t.shape, t.node) for t in network.tensors]
                yield from _network(network, tensors)

    def formula(self, node: Expression) -> str:
        """A formula or term."""
        if isinstance(node, Atom):
            return self._atom(node)
        parts = [self.formula(argument) for argument in node.arguments]
        return self._applied(node, parts) if self._symbols else f"({node.operator} {' '.join(parts)})"

    def _applied(self, node: Apply, parts: list[str]) -> str:
        """The same meaning in the other dialect, which spells equality and chains differently."""
        if node.operator == "==":
            return f"(and (<= {parts[0]} {parts[1]}) (>= {parts[0]} {parts[1]}))"
        if node.operator == "!=":
            return f"(or (< {parts[0]} {parts[1]}) (> {parts[0]} {parts[1]}))"
        operator = "==" if node.operator == "=" else node.operator
        if operator[0] in "<>=" and len(parts) > 2:
            pairs = [f"({operator} {left} {right})" for left, right in pairwise(parts)]
            return f"(and {' '.join(pairs)})"
        return f"({operator} {' '.join(parts)})"

    def _atom(self, atom: Atom) -> str:
        number = read_number(atom.text)
        if number is not None:
            return self._number(atom.text, number)
        if self._symbols is None:
            return "".join(atom.text.split())
        column = self._symbols.column(atom)
        return element_name(self._signature, self._symbols.input_size, column, self._version)

    def _number(self, text: str, value: Decimal) -> str:
        if self._version == "1.0" or _REAL_NUMBER.fullmatch(text):
            return text
        if self._has_integers and _INTEGER.fullmatch(text):
            return text
        return decimal_text(value) or text


def _named(network: NetworkDeclaration) -> NetworkDeclaration:
    if network.name:
        return network
    return replace(network, name="N")
