"""The intermediate form that every backend reads: a list of nodes in topological order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from verifolio.graph.ops import NONLINEAR, STEPS, Affine, Input, Op, Relu, Select, Sum


@dataclass(frozen=True, eq=False)
class Node:
    """An operator and the positions of the nodes it reads, all smaller than its own."""

    op: Op
    parents: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True, eq=False)
class Graph:
    """Node 0 is the input; `output` is the position of the node that is the network's flat output."""

    nodes: tuple[Node, ...]
    output: int

    @property
    def input_size(self) -> int:
        return self.nodes[0].op.size

    @property
    def output_size(self) -> int:
        return self.nodes[self.output].op.size

    @cached_property
    def nonlinear(self) -> tuple[int, ...]:
        """Positions of the nonlinear nodes, in order."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, NONLINEAR))

    @cached_property
    def relus(self) -> tuple[int, ...]:
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Relu))

    @property
    def piecewise_linear(self) -> bool:
        """Affine maps and ReLU only."""
        return len(self.relus) == len(self.nonlinear)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Positions of the nodes that jump."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, STEPS))

    @cached_property
    def operators(self) -> frozenset[str]:
        """Names of the operators, with the function's name for elementwise ones."""
        return frozenset(getattr(n.op, "function", type(n.op).__name__) for n in self.nodes)

    @cached_property
    def neurons(self) -> int:
        """How many scalar nonlinearities there are."""
        return sum(self.nodes[i].op.size for i in self.nonlinear)

    @cached_property
    def sha256(self) -> str:
        """A hash of the content: equal graphs have equal hashes, wherever they came from."""
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(f"{type(node.op).__name__}{node.parents}".encode())
            for part in _parts(node.op):
                digest.update(part)
        digest.update(str(self.output).encode())
        return digest.hexdigest()

    def __reduce__(self) -> tuple[type[Graph], tuple[tuple[Node, ...], int]]:
        return Graph, (self.nodes, self.output)


def _parts(op: Op) -> Iterator[bytes | memoryview]:
    from scipy import sparse

    for field in fields(op):
        value = getattr(op, field.name)
        if isinstance(value, np.ndarray):
            yield f"{field.name}{value.shape}{value.dtype}".encode()
            yield np.ascontiguousarray(value).data.cast("B") if value.size else b""
        elif isinstance(value, sparse.csr_array):
            yield f"{field.name}{value.shape}".encode()
            yield value.indptr.tobytes() + value.indices.tobytes() + value.data.tobytes()
        else:
            yield f"{field.name}{value!r}".encode()


class GraphBuilder:
    """Adds nodes one by one; `finish` drops what the output does not need."""

    def __init__(self, input_size: int) -> None:
        self.nodes: list[Node] = [Node(Input(input_size), (), "input")]

    def add(self, op: Op, *parents: int, name: str = "") -> int:
        """Append a node and return its position; identity operators return their parent."""
        if isinstance(op, Select) and self._is_identity(op, parents[0]):
            return parents[0]
        if isinstance(op, Sum) and op.coefficients == (1.0,):
            return parents[0]
        self.nodes.append(Node(op, parents, name))
        return len(self.nodes) - 1

    def _is_identity(self, op: Select, parent: int) -> bool:
        size = self.nodes[parent].op.size
        return op.size == size and bool(np.array_equal(op.index, np.arange(size)))

    def extend(self, graph: Graph, feed: int) -> int:
        """Copy a whole graph, reading its input from node `feed`; returns the position of its output."""
        place = {0: feed}
        for i, node in enumerate(graph.nodes[1:], start=1):
            place[i] = self.add(node.op, *(place[p] for p in node.parents), name=node.name)
        return place[graph.output]

    def finish(self, output: int) -> Graph:
        """The graph that computes node `output`, without dead nodes."""
        place = self.places(output)
        nodes = [
            replace(self.nodes[old], parents=tuple(place[p] for p in self.nodes[old].parents))
            for old in sorted(place)
        ]
        return Graph(tuple(nodes), place[output])

    def places(self, output: int) -> dict[int, int]:
        """Where the nodes that `output` needs stand in the finished graph."""
        needed = {0, output}
        for i in range(output, 0, -1):
            if i in needed:
                needed.update(self.nodes[i].parents)
        return {old: new for new, old in enumerate(sorted(needed))}


def is_exact(op: Op) -> bool:
    """Whether the stored numbers of an operator are the exact ones."""
    errors = (getattr(op, f, None) for f in ("error", "weight_error", "bias_error"))
    return all(e is None for e in errors)


def affine_nodes(graph: Graph) -> Sequence[int]:
    return [i for i, node in enumerate(graph.nodes) if isinstance(node.op, Affine)]
