"""How much work a network is, so that batches fit time and memory without measuring either."""

from __future__ import annotations

from dataclasses import dataclass

from verifolio.graph import Conv, Dense, Graph, Op, Sparse

STEP_PRODUCTS = 3e8  # multiplications of one gradient step over a batch
BATCH_NUMBERS = 6e7  # numbers held by one forward pass over a batch


@dataclass(frozen=True)
class Cost:
    """Multiplications and stored numbers of evaluating a graph at one point."""

    products: float
    numbers: float

    @property
    def lanes(self) -> int:
        """How many points one gradient step should carry."""
        return int(max(2, min(512, STEP_PRODUCTS / self.products, BATCH_NUMBERS / self.numbers)))

    @property
    def batch(self) -> int:
        """How many points one forward pass should carry."""
        return int(max(2, min(16384, 3 * STEP_PRODUCTS / self.products, BATCH_NUMBERS / self.numbers)))


def cost_of(graph: Graph) -> Cost:
    products = sum(_products(node.op) for node in graph.nodes)
    return Cost(float(products), float(sum(node.op.size for node in graph.nodes)))


def _products(op: Op) -> int:
    if isinstance(op, Dense):
        return op.weight.size
    if isinstance(op, Sparse):
        return 8 * int(op.weight.nnz)  # gather and scatter are slow
    if isinstance(op, Conv):
        shape = op.input_shape if op.transposed else op.output_shape
        return op.weight.size * shape[1] * shape[2]
    return op.size
