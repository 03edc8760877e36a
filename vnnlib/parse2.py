"""The commands of VNN-LIB 2.0: a version, networks with typed tensors, then assertions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from verifolio.vnnlib.errors import VnnlibError, shorten
from verifolio.vnnlib.formula import FormulaReader
from verifolio.vnnlib.source import Source
from verifolio.vnnlib.tree import (
    Apply,
    Assertion,
    Atom,
    Constant,
    Document,
    Form,
    Item,
    Network,
    TensorDeclaration,
)

_FLOAT8 = {"float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "float4e2m1"}
FLOATS = frozenset({"real", "float16", "float32", "float64", "bfloat16"} | _FLOAT8)
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)}
_DTYPES = FLOATS | _INTEGERS | {"complex64", "complex128", "bool", "string"}
_KINDS: dict[str, Literal["input", "hidden", "output"]] = {
    "declare-input": "input",
    "declare-hidden": "hidden",
    "declare-output": "output",
}
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_DIMENSIONS = re.compile(r"\[\s*(?:\d+\s*(?:,\s*\d+\s*)*)?\]", re.ASCII)
_VERSION = re.compile(r"<2\.\d{1,9}>", re.ASCII)
MAX_ELEMENTS = 10_000_000


def parse_second_dialect(source: Source, items: list[Item]) -> Document:
    """Interpret top-level items as VNN-LIB 2.0; the first of them is the version."""
    _check_version(source, items[0])
    reader = FormulaReader(source, "2.0")
    networks: list[Network] = []
    assertions: list[Assertion] = []
    for item in items[1:]:
        head = head_of(item)
        if isinstance(item, Assertion) or (isinstance(item, Form) and head == "assert"):
            if not networks:
                raise _no_command(source, item, "declare-network before the first assertion")
            assertions.append(reader.assertion(item))
        elif isinstance(item, Form) and head == "declare-network" and not assertions:
            networks.append(_Declarations(source, networks).network(item))
        else:
            raise _no_command(source, item, "assert" if assertions else "declare-network or assert")
    if not networks:
        raise _no_command(source, items[0], "declare-network after the version")
    return Document(source, "2.0", (), tuple(networks), tuple(assertions), tuple(reader.warnings))


def head_of(item: Item) -> str:
    """The word after the parenthesis, or nothing."""
    if isinstance(item, Form) and item.items and isinstance(item.items[0], Atom):
        return item.items[0].text
    return ""


def dimensions(text: str) -> tuple[int, ...] | None:
    """The integers of `[1, 5]`; None where the text is something else."""
    if not _DIMENSIONS.fullmatch(text) or len(text) > 1000:
        return None
    inside = text[1:-1].strip()
    return tuple(int(part) for part in inside.split(",")) if inside else ()


def _check_version(source: Source, item: Item) -> None:
    match item:
        case Form(items=(Atom(), Atom(text=version))) if _VERSION.fullmatch(version):
            return
    raise source.error(
        item.offset,
        expected="(vnnlib-version <2.0>)",
        got="another version",
        remedy="only versions 1.0 (no version line) and 2.x are supported",
    )


def _no_command(source: Source, item: Item, expected: str) -> VnnlibError:
    got, remedy = shorten(head_of(item) or "a formula"), "declare all networks first, then assert"
    if isinstance(item, Atom):
        got = shorten(item.text)
    elif isinstance(item, Constant):
        got, remedy = "declare-const", "declare tensors inside (declare-network ...)"
    elif isinstance(item, Assertion):
        got = "assert"
    elif isinstance(item, Apply):
        remedy = "wrap it in (assert ...)"
    return source.error(item.offset, expected=expected, got=got, remedy=remedy)


class _Declarations:
    """Reads one network and checks it against those before it."""

    def __init__(self, source: Source, earlier: Sequence[Network]) -> None:
        self._source = source
        self._networks = {network.name: network for network in earlier}
        self._names = {tensor.name for network in earlier for tensor in network.tensors} | set(self._networks)

    def network(self, form: Form) -> Network:
        """`(declare-network N [(equal-to M)] inputs hidden outputs)`."""
        name = self._new_name(form, form.items[1] if len(form.items) > 1 else form)
        relations: dict[str, Atom] = {}
        tensors: list[TensorDeclaration] = []
        for item in form.items[2:]:
            head = head_of(item)
            if isinstance(item, Form) and head in ("isomorphic-to", "equal-to") and not relations:
                relations[head] = self._reference(item)
            elif isinstance(item, Form) and head in _KINDS:
                tensors.append(self._tensor(item, _KINDS[head]))
            else:
                raise self._bad(
                    item, "declare-input, declare-hidden, declare-output or one relation", head or "else"
                )
        for kind in ("input", "output"):
            if not any(tensor.kind == kind for tensor in tensors):
                raise self._bad(form, f"(declare-{kind} ...) in network {name}", "none")
        texts = {head: atom.text for head, atom in relations.items()}
        network = Network(
            form.offset, name, texts.get("isomorphic-to"), texts.get("equal-to"), tuple(tensors)
        )
        for atom in relations.values():
            self._check_twin(network, atom)
        return network

    def _tensor(self, form: Form, kind: Literal["input", "hidden", "output"]) -> TensorDeclaration:
        match form.items[1:]:
            case (Atom() as name, Atom(text=dtype), Atom(text=shape), *rest) if len(rest) <= 1:
                extents = dimensions(shape)
                if extents is not None:
                    node = self._node(form, kind, rest)
                    tensor = TensorDeclaration(
                        form.offset, kind, self._new_name(form, name), dtype, extents, node
                    )
                    return self._checked(tensor)
        raise self._bad(form, f"(declare-{kind} name type [shape])", "another form")

    def _node(self, form: Form, kind: str, rest: Sequence[Item]) -> str | None:
        last = rest[0] if rest else None
        if isinstance(last, Atom) and last.text.startswith('"'):
            return last.text[1:-1]
        if last is not None or kind == "hidden":
            raise self._bad(form, "the ONNX node's name in double quotes", "none" if last is None else "else")
        return None

    def _checked(self, tensor: TensorDeclaration) -> TensorDeclaration:
        if (tensor.dtype.lower() if tensor.dtype in ("Real", "real") else tensor.dtype) not in _DTYPES:
            types = "Real or an ONNX element type such as float32"
            raise self._source.error(
                tensor.offset,
                expected=types,
                got=shorten(tensor.dtype),
                remedy="name the tensor's element type",
            )
        if len(tensor.shape) > 32 or not 0 < tensor.size <= MAX_ELEMENTS:
            raise self._source.error(
                tensor.offset,
                expected=f"positive extents, at most {MAX_ELEMENTS} elements",
                got=shorten(str(list(tensor.shape))),
                remedy="correct the shape",
            )
        return tensor

    def _new_name(self, form: Form, item: Item) -> str:
        if not isinstance(item, Atom) or not _NAME.fullmatch(item.text):
            raise self._bad(item, "a name (a letter, then letters, digits or _)", "something else")
        if item.text in self._names:
            raise self._source.error(
                item.offset,
                expected="a new name",
                got=f"{item.text} again",
                remedy="names are unique in a file",
            )
        self._names.add(item.text)
        return item.text

    def _reference(self, form: Form) -> Atom:
        match form.items[1:]:
            case (Atom(text=name) as atom,) if name in self._networks:
                return atom
        raise self._bad(form, "the name of a network declared before", "another")

    def _check_twin(self, network: Network, atom: Atom) -> None:
        twin = self._networks[atom.text]
        ours = [(t.kind, t.dtype.lower(), t.shape) for t in network.tensors if t.kind != "hidden"]
        theirs = [(t.kind, t.dtype.lower(), t.shape) for t in twin.tensors if t.kind != "hidden"]
        if ours != theirs:
            raise self._source.error(
                atom.offset,
                expected=f"the tensor types and shapes of {twin.name}",
                got=f"others in {network.name}",
                remedy="isomorphic or equal networks have the same signature",
            )

    def _bad(self, item: Item, expected: str, got: str) -> VnnlibError:
        return self._source.error(
            item.offset, expected=expected, got=got, remedy="see the VNN-LIB 2.0 standard"
        )
