"""Variables to columns: inputs of all networks first, then their outputs, in declaration order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verifolio.vnnlib.errors import VnnlibError, shorten
from verifolio.vnnlib.parse2 import FLOATS, MAX_ELEMENTS, dimensions
from verifolio.vnnlib.tree import Atom, Document, Network, TensorDeclaration

_SCALAR = re.compile(r"([XY])_(0|[1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True)
class Tensor:
    """A declared tensor; `offset` is the place of its first element in the flat x (or y).

    `node` is the ONNX name of the network's tensor that it stands for, where one is given; `where` is the place of
    the declaration, file:line:column.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    node: str | None = None
    where: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """Number of elements; a scalar has one."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class NetworkDeclaration:
    """A network's signature; version 1.0 has one without a name and with flat tensors X and Y."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    isomorphic_to: str | None
    equal_to: str | None
    hidden: tuple[Tensor, ...] = ()

    @property
    def results(self) -> tuple[Tensor, ...]:
        """What the network computes: its outputs, then its hidden tensors."""
        return (*self.outputs, *self.hidden)


class Symbols:
    """The columns of one document's variables."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._columns: dict[str, int] = {}
        self._tensors: dict[str, tuple[TensorDeclaration, int]] = {}
        if document.version == "1.0":
            self.networks = self._read_constants()
        else:
            self.networks = self._read_networks()
        self.input_size = sum(t.size for network in self.networks for t in network.inputs)
        self.output_size = sum(t.size for network in self.networks for t in network.results)

    def column(self, atom: Atom) -> int:
        """The column of a variable; an error that says what is wrong with it otherwise."""
        column = self._columns.get(atom.text)
        if column is None:
            column = self._columns[atom.text] = self._resolve(atom)
        return column

    def get(self, text: str) -> int | None:
        """The column of a variable seen before; a shortcut for hot loops."""
        return self._columns.get(text)

    def name(self, column: int) -> str:
        """A column's variable, written in the document's dialect."""
        return element_name(self.networks, self.input_size, column, self._document.version)

    def declaration(self, column: int) -> int:
        """Offset of the declaration of a column's variable."""
        if self._document.version == "1.0":
            name = self.name(column)
            return next(constant.offset for constant in self._document.constants if constant.name == name)
        base = self.name(column).partition("[")[0]
        return self._tensors[base][0].offset

    def _read_constants(self) -> tuple[NetworkDeclaration, ...]:
        places: dict[str, dict[int, int]] = {"X": {}, "Y": {}}
        for constant in self._document.constants:
            match = _SCALAR.fullmatch(constant.name)
            if match is None:
                raise self._error(
                    constant.offset,
                    "X_<number> or Y_<number>",
                    constant.name,
                    "VNN-LIB 1.0 knows only these names",
                )
            kind, index = match.group(1), int(match.group(2))
            if index in places[kind]:
                raise self._error(constant.offset, "a new name", f"{constant.name} again", "declare it once")
            places[kind][index] = constant.offset
        for kind, indices in places.items():
            self._check_complete(kind, indices)
        inputs, outputs = len(places["X"]), len(places["Y"])
        self._columns = {f"X_{index}": index for index in range(inputs)}
        self._columns.update((f"Y_{index}", inputs + index) for index in range(outputs))
        return (flat_network(inputs, outputs),)

    def _check_complete(self, kind: str, indices: dict[int, int]) -> None:
        if not indices:
            what = "input" if kind == "X" else "output"
            raise self._error(0, f"at least one {what} {kind}_0", "none", f"declare {kind}_0")
        for index, offset in indices.items():
            if index >= len(indices):
                missing = next(i for i in range(len(indices)) if i not in indices)
                got = f"{kind}_{index} without {kind}_{missing}"
                raise self._error(
                    offset, f"{kind}_0 ... {kind}_{index} to be declared", got, "declare every index"
                )

    def _read_networks(self) -> tuple[NetworkDeclaration, ...]:
        sizes = {"input": 0, "result": 0}
        networks = []
        for network in self._document.networks:
            tensors: dict[str, list[Tensor]] = {"input": [], "output": [], "hidden": []}
            for tensor in sorted(network.tensors, key=lambda t: t.kind == "hidden"):
                side = "input" if tensor.kind == "input" else "result"
                offset = sizes[side]
                self._tensors[tensor.name] = (tensor, offset)
                line, column = self._document.source.locate(tensor.offset)
                where = f"{self._document.source.name}:{line}:{column}"
                made = Tensor(tensor.name, tensor.dtype, tensor.shape, offset, tensor.node, where)
                tensors[tensor.kind].append(made)
                sizes[side] += tensor.size
                if sizes[side] > MAX_ELEMENTS:
                    raise self._error(
                        tensor.offset, f"at most {MAX_ELEMENTS} elements", "more", "use smaller tensors"
                    )
            networks.append(_declare(network, tensors))
        return tuple(networks)

    def _resolve(self, atom: Atom) -> int:
        name, bracket, rest = atom.text.partition("[")
        declared = self._tensors.get(name.strip())
        if declared is None:
            raise self._unknown(atom)
        tensor, offset = declared
        self._check_usable(atom, tensor)
        indices = dimensions(bracket + rest) if bracket else ()
        if indices is None or len(indices) != len(tensor.shape):
            expected = f"{len(tensor.shape)} indices for {tensor.name} of shape {list(tensor.shape)}"
            raise self._error(
                atom.offset, expected, atom.text, "give one index per dimension, none for a scalar"
            )
        flat = 0
        for index, extent in zip(indices, tensor.shape, strict=True):
            if index >= extent:
                raise self._error(
                    atom.offset,
                    f"indices inside the shape {list(tensor.shape)}",
                    atom.text,
                    "indices start at 0",
                )
            flat = flat * extent + index
        return offset + flat + (0 if tensor.kind == "input" else self.input_size)

    def _check_usable(self, atom: Atom, tensor: TensorDeclaration) -> None:
        if tensor.dtype.lower() not in FLOATS:
            raise self._error(
                atom.offset,
                "a tensor of real or floating-point numbers",
                f"{tensor.name} of type {tensor.dtype}",
                "other element types have no normal form",
            )

    def _unknown(self, atom: Atom) -> VnnlibError:
        if atom.text[0] in "0123456789.+-":
            return self._error(
                atom.offset,
                "a number such as -1.5 or 2e-3, inside the range of doubles",
                atom.text,
                "correct the number",
            )
        return self._error(atom.offset, "a declared variable", atom.text, "declare it before the assertions")

    def _error(self, offset: int, expected: str, got: str, remedy: str) -> VnnlibError:
        got = got if len(got) <= 60 else shorten(got)
        return self._document.source.error(offset, expected=expected, got=got, remedy=remedy)


def flat_network(inputs: int, outputs: int) -> NetworkDeclaration:
    """The unnamed network of version 1.0."""
    return NetworkDeclaration(
        "", (Tensor("X", "Real", (inputs,), 0),), (Tensor("Y", "Real", (outputs,), 0),), None, None
    )


def element_name(networks: tuple[NetworkDeclaration, ...], input_size: int, column: int, version: str) -> str:
    """The variable of a column: X_3 in version 1.0, X[0,3] in version 2.0."""
    is_output = column >= input_size
    place = column - input_size if is_output else column
    if version == "1.0":
        return f"{'Y' if is_output else 'X'}_{place}"
    tensors = [
        tensor for network in networks for tensor in (network.results if is_output else network.inputs)
    ]
    tensor = max((tensor for tensor in tensors if tensor.offset <= place), key=lambda tensor: tensor.offset)
    flat, indices = place - tensor.offset, []
    for extent in reversed(tensor.shape):
        flat, index = divmod(flat, extent)
        indices.append(str(index))
    return f"{tensor.name}[{','.join(reversed(indices))}]" if indices else tensor.name


def column_name(
    networks: tuple[NetworkDeclaration, ...],
    input_size: int,
    output_size: int,
    monomials: Sequence[tuple[int, ...]],
    column: int,
    version: str,
) -> str:
    """The variable of a column, or the product that it stands for."""
    factors = (
        monomials[column - input_size - output_size] if column >= input_size + output_size else (column,)
    )
    names = [element_name(networks, input_size, k, version) for k in factors]
    return names[0] if len(names) == 1 else f"(* {' '.join(names)})"


def _declare(network: Network, tensors: Mapping[str, list[Tensor]]) -> NetworkDeclaration:
    inputs, outputs, hidden = (tuple(tensors[kind]) for kind in ("input", "output", "hidden"))
    return NetworkDeclaration(network.name, inputs, outputs, network.isomorphic_to, network.equal_to, hidden)
