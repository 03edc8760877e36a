"""Products of inputs and outputs, appended to the outputs of a graph: a polynomial condition becomes a linear one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from verifolio.graph.graph import Graph, GraphBuilder
from verifolio.graph.ops import Concat, Elementwise, Product, Select

Factor = tuple[int, int]  # a column and its power


def with_monomials(graph: Graph, monomials: Sequence[tuple[int, ...]]) -> Graph:
    """The graph whose outputs are followed by monomials, each given by the columns (inputs, then outputs) in it."""
    if not monomials:
        return graph
    pool = _Pool(graph)
    factors = [tuple(sorted(Counter(one).items())) for one in monomials]
    pool.add_powers(sorted({f for one in factors for f in one if f[1] > 1}))
    for length in range(2, max(map(len, factors)) + 1):
        pool.add_products(sorted({one[:length] for one in factors if len(one) >= length}))
    return pool.finish(factors)


class _Pool:
    """A node that holds inputs, outputs and what has been multiplied so far, and where each thing is in it."""

    def __init__(self, graph: Graph) -> None:
        self.builder = GraphBuilder(graph.input_size)
        self.output = self.builder.extend(graph, 0)
        self.sizes = graph.input_size, graph.output_size
        self.node = self.builder.add(Concat(sum(self.sizes)), 0, self.output)
        self.places: dict[tuple[Factor, ...], int] = {((k, 1),): k for k in range(sum(self.sizes))}

    def add_powers(self, powers: Sequence[Factor]) -> None:
        for exponent in sorted({p for _, p in powers}):
            keys = [((k, p),) for k, p in powers if p == exponent]
            base = self._select([((k, 1),) for ((k, _),) in keys])
            self._append(keys, self.builder.add(Elementwise(len(keys), "pow", float(exponent)), base))

    def add_products(self, keys: Sequence[tuple[Factor, ...]]) -> None:
        left, right = self._select([k[:-1] for k in keys]), self._select([k[-1:] for k in keys])
        self._append(keys, self.builder.add(Product(len(keys)), left, right))

    def finish(self, keys: Sequence[tuple[Factor, ...]]) -> Graph:
        monomials = self._select(keys)
        return self.builder.finish(
            self.builder.add(Concat(self.sizes[1] + len(keys)), self.output, monomials)
        )

    def _select(self, keys: Sequence[tuple[Factor, ...]]) -> int:
        index = np.array([self.places[k] for k in keys], np.int64)
        return self.builder.add(Select(len(index), index), self.node)

    def _append(self, keys: Sequence[tuple[Factor, ...]], node: int) -> None:
        start = self.builder.nodes[self.node].op.size
        self.places.update((key, start + i) for i, key in enumerate(keys))
        self.node = self.builder.add(Concat(start + len(keys)), self.node, node)
