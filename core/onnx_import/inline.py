"""Local functions and branches of If as plain nodes of the graph around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verifolio.onnx_import.values import Malformed

MAX_NODES = 200_000  # after expansion: functions that call functions twice each grow without end


@dataclass(frozen=True, eq=False)
class Branch:
    """The nodes of a subgraph with names of their own, its stored tensors by name, and its outputs."""

    nodes: tuple[Any, ...]
    tensors: dict[str, Any]
    outputs: tuple[str, ...]


def without_functions(model: Any) -> Any:
    """The model whose local functions are written out; the same model where it has none."""
    if not model.functions:
        return model
    _check_growth(model)
    from onnx import inliner

    return inliner.inline_local_functions(model)


def _check_growth(model: Any) -> None:
    """Refuse functions that call themselves or grow beyond bounds, before anything is written out."""
    bodies = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    open_ones: set[tuple[str, str, str]] = set()

    def size_of(nodes: Any, depth: int) -> int:
        if depth > 50:  # exporters nest modules; deeper is hostile and would exhaust the stack
            raise Malformed("local functions at most 50 deep", "more")
        total = 0
        for node in _all_nodes(nodes):
            key = (node.domain, node.op_type, node.overload)
            if key in open_ones:
                raise Malformed("local functions that do not call themselves", repr(node.op_type))
            if key in bodies and key not in sizes:
                open_ones.add(key)
                sizes[key] = size_of(bodies[key], depth + 1)
                open_ones.discard(key)
            total += sizes.get(key, 1)
            if total > MAX_NODES:
                raise Malformed(f"at most {MAX_NODES} nodes after local functions are written out", "more")
        return total

    size_of(model.graph.node, 0)


def _all_nodes(nodes: Any) -> Iterator[Any]:
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        for graph in subgraphs(node):
            stack.extend(graph.node)


def subgraphs(node: Any) -> list[Any]:
    """The graphs among a node's attributes."""
    found = [a.g for a in node.attribute if a.HasField("g")]
    return [*found, *(g for a in node.attribute for g in a.graphs)]


def reads(node: Any) -> set[str]:
    """All tensors that a node needs: its inputs, and what its subgraphs take from the graph around them."""
    return set(node.input).union(*(_free(graph) for graph in subgraphs(node)))


def _free(graph: Any) -> set[str]:
    """The names that a graph reads and does not define."""
    known = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    needed: set[str] = set()
    for node in graph.node:
        needed |= reads(node) - known
        known.update(node.output)
    return (needed | {o.name for o in graph.output}) - known - {""}


def branch_of(graph: Any, prefix: str) -> Branch:
    """A subgraph whose own names begin with a prefix, so that they meet no others."""
    own = {t.name for t in graph.initializer} | {name for node in graph.node for name in node.output if name}
    names = {name: prefix + name for name in own}
    tensors = {names[t.name]: t for t in graph.initializer}
    nodes = tuple(_renamed(node, names) for node in graph.node)
    return Branch(nodes, tensors, tuple(names.get(o.name, o.name) for o in graph.output))


def _renamed(node: Any, names: dict[str, str]) -> Any:
    made = type(node)()
    made.CopyFrom(node)
    for field in (made.input, made.output):
        field[:] = [names.get(name, name) for name in field]
    for graph in subgraphs(made):
        inner = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        inner |= {name for n in graph.node for name in n.output}
        outer = {name: new for name, new in names.items() if name not in inner}
        for k, child in enumerate(graph.node):
            graph.node[k].CopyFrom(_renamed(child, outer))
        for output in graph.output:
            output.name = outer.get(output.name, output.name)
    return made
