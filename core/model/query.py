"""Query: one or more networks and a VNN-LIB specification, and the problems it consists of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from verifolio.graph import Concat, Graph, GraphBuilder, Select
from verifolio.graph.monomials import with_monomials
from verifolio.model.binding import bind, check_sizes, files_by_name
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.onnx_import.network import Network
from verifolio.vnnlib import Case, Specification, load


@dataclass(frozen=True, eq=False)
class Query:
    """Is there an input of the specified set whose outputs satisfy the condition?

    With several networks the output is the concatenation of their outputs, in order, and the input of their
    inputs; or one input that all of them read (`shared_input`). `ball` narrows every case further (VNN-LIB
    has no form for an L2 ball). Where the specification declares networks, `networks` may leave out those that
    are equal to another; both are kept in the order of the networks' own tensors (see `binding`).
    """

    networks: tuple[Network, ...]
    specification: Specification
    ball: Ball | None = None
    shared_input: bool = False
    name: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = self.name or "specification"
        networks, specification = bind(self.networks, self.specification, where)
        object.__setattr__(self, "networks", networks)
        object.__setattr__(self, "specification", specification)

    @classmethod
    def from_files(
        cls, networks: Sequence[str | Path] | Mapping[str, Path], specification: str | Path
    ) -> Query:
        """Networks in the order of the property's declarations, or by their declared names."""
        where, loaded = str(specification), load(Path(specification))
        files = files_by_name(loaded, networks, where) if isinstance(networks, Mapping) else networks
        return cls(tuple(Network.load(n) for n in files), loaded, name=where)

    @cached_property
    def sha256(self) -> str:
        """Content hash: the networks' files, the specification's text, the ball."""
        digest = hashlib.sha256()
        for network in self.networks:
            digest.update(network.sha256.encode())
        digest.update(self.specification.sha256.encode())
        digest.update(b"shared" if self.shared_input else b"")
        if self.ball is not None:
            digest.update(self.ball.centre.tobytes() + repr((self.ball.radius, self.ball.norm)).encode())
        return digest.hexdigest()

    @cached_property
    def graph(self) -> Graph:
        """One graph: the network's own or the product of several, then the property's products of variables."""
        plain = product_graph([n.graph for n in self.networks], self.shared_input)
        return with_monomials(plain, self.specification.monomials)

    @property
    def plain(self) -> bool:
        """Whether the networks are evaluated without torch; they are lowered to see it, but not compared yet."""
        from verifolio.graph.evaluator import is_plain
        from verifolio.onnx_import.lower import lower_network

        return all(is_plain(lower_network(n).plain) for n in self.networks)

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """One problem per input region; empty regions are left out, they hold no counterexample."""
        check_sizes(self)
        self._check_import()
        return tuple(
            Problem(self._settled(c), _domain(c, self.ball), c.disjuncts)
            for c in self.specification.cases
            if not c.empty and c.disjuncts
        )

    def _settled(self, case: Case) -> Graph:
        """The graph whose steps have bounds on a region's box."""
        if not self.graph.steps:
            return self.graph
        from verifolio.graph.settle import settle
        from verifolio.graph.softmax import logits, only_compares

        lower, upper = case.lower, case.upper
        if self.ball is not None:
            reach = self.ball.radius * (1 + 2.0**-50)
            lower = np.maximum(lower, self.ball.centre - reach - 2.0**-50 * np.abs(self.ball.centre))
            upper = np.minimum(upper, self.ball.centre + reach + 2.0**-50 * np.abs(self.ball.centre))
        graph = self.graph
        if not self.specification.monomials and only_compares(case.disjuncts, graph.input_size):
            # after sums of +-1 a softmax is flat in floating point; its order is that of what it reads
            graph = logits(graph) or graph
        return settle(graph, lower, upper)

    def _check_import(self) -> None:
        """Compare the graph with ONNX Runtime where the first region asks; several networks as they are."""
        from verifolio.onnx_import.check import check_on_box

        regions = [c for c in self.specification.cases if not c.empty and c.disjuncts]
        if len(self.networks) == 1 and regions:
            check_on_box(self.networks[0], regions[0].lower, regions[0].upper)


def _domain(case: Case, ball: Ball | None) -> Domain:
    written = (case.exact_lower, case.exact_upper)
    return Domain(case.lower, case.upper, case.input_rows, ball, written)


def product_graph(graphs: list[Graph], shared_input: bool = False) -> Graph:
    """Several graphs side by side: outputs concatenated, inputs concatenated or shared."""
    if len(graphs) == 1:
        return graphs[0]
    sizes = [g.input_size for g in graphs]
    builder = GraphBuilder(sizes[0] if shared_input else sum(sizes))
    outputs, start = [], 0
    for graph in graphs:
        index = np.arange(start, start + graph.input_size, dtype=np.int64)
        outputs.append(builder.extend(graph, builder.add(Select(len(index), index), 0)))
        start += 0 if shared_input else graph.input_size
    return builder.finish(builder.add(Concat(sum(g.output_size for g in graphs)), *outputs))
