"""The import itself: every live node in order, each turned into values; all refusals reported at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from verifolio.errors import InputError, UnsupportedNetwork
from verifolio.graph.graph import Graph
from verifolio.graph.ops import Index
from verifolio.onnx_import.call import Call, decode_attributes
from verifolio.onnx_import.choice import variable_slice
from verifolio.onnx_import.inline import branch_of, reads
from verifolio.onnx_import.lowering import Lowering
from verifolio.onnx_import.network import Network, TensorSignature
from verifolio.onnx_import.ragged import Ragged
from verifolio.onnx_import.reader import EXPORT_AGAIN, Source, decode_tensor, live_nodes, read_source
from verifolio.onnx_import.simplify import simplify
from verifolio.onnx_import.table import FOREIGN, HANDLERS
from verifolio.onnx_import.types import check_types, typed
from verifolio.onnx_import.values import Known, Malformed, Refused, Value, View

SEE_TABLE = "docs/reference/operators.md lists what can be imported; rewrite the network without these"


MAX_NESTED = 20  # branches inside branches: exporters write two or three
MAX_TRACED = 2**17  # entries of all traced tensors together; larger tensors are sampled


@dataclass(frozen=True, eq=False)
class Traced:
    """A tensor of the file: `positions` of it are entries of a graph node, or known numbers."""

    label: str
    name: str
    positions: Index
    value: Value


@dataclass(frozen=True, eq=False)
class Lowered:
    """A graph and the signature of the file it came from.

    `plain` is the graph before its exact simplifications, and `trace` says where the file's tensors are in it.
    """

    graph: Graph
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    plain: Graph
    trace: tuple[Traced, ...]


@lru_cache(maxsize=16)
def lower_network(network: Network) -> Lowered:
    """Read and lower a file; nothing is run, and memory stays bounded whatever the file says."""
    source = read_source(network)
    state = _Import(source)
    with np.errstate(all="ignore"):  # overflows show up as weights that are not finite
        for node in source.nodes:
            state.lower(node)
        state.report()
        return state.result()


class _Import:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.low = Lowering(sum(t.size for t in source.inputs))
        self.values: dict[str, Value] = {}
        self.unavailable: set[str] = set()
        self.refusals: list[str] = []
        self.tensors = dict(source.tensors)
        self.uses: Counter[str] = Counter()
        self._expect(source.nodes, source.outputs)
        self.inner = 0  # how deep in branches: their tensors are none of the file's
        self.trace: list[Traced] = []
        self.ragged = Ragged()
        start = 0
        for tensor in source.inputs:
            index = np.arange(start, start + tensor.size, dtype=np.int64).reshape(tensor.shape)
            self.values[tensor.name] = View(0, index)
            start += tensor.size

    def lower(self, node: Any) -> None:
        """One node; a refusal is noted and its outputs become unavailable, so that later ones are found."""
        label = _label(node)
        plain = node.domain in ("", "ai.onnx")
        if plain and node.op_type == "If":
            self._if(node, label)
            return
        handler = HANDLERS.get(node.op_type) if plain else FOREIGN.get((node.domain, node.op_type))
        if handler is None:
            self._refuse(node, label)
            return
        if self.unavailable.intersection(node.input):
            self.unavailable.update(node.output)
            return
        try:
            call = Call(
                node.op_type,
                [self._value(name) for name in node.input],
                decode_attributes(node),
                self._asked(node),
                self.source.opset,
                len(node.output),
            )
            check_types(call)
            self.ragged.check(node, call)
            self.low.cut_by = self.ragged.behind(node)
            made = handler(self.low, call)
            self.ragged.pass_on(node, call, self.low.begun if variable_slice(call) else None)
            self._store(node, typed(call, list(made) if isinstance(made, Sequence) else [made]))
        except Refused as reason:
            self._refuse(node, f"{label}: {reason}")
        except Malformed as error:
            where = f"{self.source.where}: {label}"
            raise InputError(where, error.expected, error.got, EXPORT_AGAIN) from error
        except Exception as error:
            # a hostile file can make any numpy call fail; the user needs the node, not a traceback
            where = f"{self.source.where}: {label}"
            got = f"{type(error).__name__}: {error}"
            raise InputError(where, "a well-formed node", got, EXPORT_AGAIN) from error

    def _expect(self, nodes: Sequence[Any], outputs: Sequence[str]) -> None:
        """Count who will read what, subgraphs included: a value is dropped after its last use."""
        for node in nodes:
            self.uses.update(node.input)
            self.uses.update(reads(node) - set(node.input))
        self.uses.update(outputs)

    def _if(self, node: Any, label: str) -> None:
        """The branch that a constant condition chooses, node by node."""
        around = reads(node) - set(node.input)
        if self.unavailable & {*around, *node.input}:
            self.unavailable.update(node.output)
            return
        try:
            condition = self._value(node.input[0])
            if not isinstance(condition, Known) or condition.value.size != 1:
                raise Refused("a condition that depends on the input")
            self._inline(node, bool(condition.value.ravel()[0]))
            for name in around:
                self._value(name)
        except Refused as reason:
            self._refuse(node, f"{label}: {reason}")
        except Malformed as error:
            where = f"{self.source.where}: {label}"
            raise InputError(where, error.expected, error.got, EXPORT_AGAIN) from error

    def _inline(self, node: Any, chosen: bool) -> None:
        wanted = "then_branch" if chosen else "else_branch"
        graph = next((a.g for a in node.attribute if a.name == wanted and a.HasField("g")), None)
        if graph is None or len(graph.output) != len(node.output) or self.inner >= MAX_NESTED:
            raise Malformed(f"a {wanted} with {len(node.output)} outputs", "another, or branches too deep")
        branch = branch_of(graph, f"{node.output[0]}/{wanted}/")
        self.tensors |= branch.tensors
        nodes = live_nodes(branch.nodes, branch.outputs)
        self._expect(nodes, branch.outputs)
        self.inner += 1
        for inside in nodes:
            self.lower(inside)
        self.inner -= 1
        if self.unavailable.intersection(branch.outputs) or self.ragged.names.intersection(branch.outputs):
            self.unavailable.update(node.output)  # what is inside has said why
            return
        made = [self._value(name) for name in branch.outputs]
        self._store(node, [value for value in made if value is not None])

    def _asked(self, node: Any) -> int:
        """How many outputs of a node count: those after the last one that something reads do not."""
        read = [i for i, name in enumerate(node.output) if name and self.uses[name] > 0]
        return max(read, default=0) + 1

    def _refuse(self, node: Any, text: str) -> None:
        self.refusals.append(text)
        self.unavailable.update(node.output)

    def _value(self, name: str) -> Value | None:
        if not name:
            return None
        self.uses[name] -= 1
        if name not in self.values:
            if name not in self.tensors:
                raise Malformed("inputs that an earlier node computes", f"{name!r}")
            self.values[name] = decode_tensor(self.tensors[name])
        value = self.values[name]
        if self.uses[name] <= 0:
            del self.values[name]
        return value

    def _store(self, node: Any, made: list[Value]) -> None:
        if len(made) < self._asked(node):
            raise Refused(f"{len(node.output)} outputs")
        for name, value in zip(node.output, made, strict=False):
            self.low.charge(value.shape)
            if name:
                self.values[name] = value
                if name not in self.ragged.names and not self.inner:
                    self._record(_label(node), name, value)

    def _record(self, label: str, name: str, value: Value) -> None:
        """Remember where (a sample of) a tensor is, for the comparison with ONNX Runtime."""
        size, most = math.prod(value.shape), max(16, MAX_TRACED // len(self.source.nodes))
        positions = np.arange(size) if size <= most else np.linspace(0, size - 1, most).astype(np.int64)
        flat = value.reshaped((size,)).moved(lambda a: a[positions])
        self.trace.append(Traced(label, name, positions, flat))

    def _placed(self, place: dict[int, int]) -> tuple[Traced, ...]:
        """The trace with the nodes' final positions; what the graph does not hold is left out."""
        kept = []
        for t in self.trace:
            if isinstance(t.value, Known):
                kept.append(t)
            elif t.value.node in place:
                kept.append(replace(t, value=View(place[t.value.node], t.value.index)))
        return tuple(kept)

    def report(self) -> None:
        if self.refusals:
            raise UnsupportedNetwork(
                self.source.where, "supported operators", ", ".join(self.refusals), SEE_TABLE
            )

    def result(self) -> Lowered:
        where = self.source.where
        outputs = []
        for name in self.source.outputs:
            value = self.values.get(name)
            if value is None and name in self.tensors:
                value = decode_tensor(self.tensors[name])
            if name in self.ragged.names:
                got = f"output {name!r}, whose shape depends on the input"
                raise UnsupportedNetwork(where, "outputs of a fixed shape", got, SEE_TABLE)
            if value is None:
                raise InputError(where, f"a node that computes output {name!r}", "none", EXPORT_AGAIN)
            outputs.append(value)
        try:
            plain, place = self.low.build(outputs)
        except Malformed as error:
            raise InputError(where, error.expected, error.got, EXPORT_AGAIN) from error
        if plain.steps and self.low.cancelled:
            raise UnsupportedNetwork(
                where,
                "steps that single precision decides",
                "weights folded from numbers that cancel",
                SEE_TABLE,
            )
        signature = tuple(
            TensorSignature(n, v.shape) for n, v in zip(self.source.outputs, outputs, strict=True)
        )
        # where steps are, single precision must be followed operator by operator
        graph = plain if plain.steps else simplify(plain)
        return Lowered(graph, self.source.inputs, signature, plain, self._placed(place))


def _label(node: Any) -> str:
    name = node.name or (node.output[0] if node.output else "")
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
    return f"{domain}{node.op_type} (node {name!r})"
