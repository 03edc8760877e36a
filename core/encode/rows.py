"""A piecewise-linear graph as rows of a linear model: unstable ReLUs as big-M or triangle, others for free.

Every constant is rounded outward, so the model contains every exact behaviour of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy import sparse

from verifolio.encode.expression import (
    Expression,
    columns_expression,
    combine,
    constant_expression,
    down,
    longest_row,
    up,
)
from verifolio.encode.model import Array, Index, ModelBuilder, diagonal
from verifolio.errors import VerifolioError
from verifolio.graph import Constant, Elementwise, Graph, Input, Node, Product, Relu
from verifolio.graph.enclosure import UNIT, weight_slack
from verifolio.graph.matrix import linear_part, offset
from verifolio.model.problem import Domain, dense_rows
from verifolio.plugin.evidence import Bounds

ReluEncoding = Literal["bigm", "triangle"]
Refine = Callable[["Encoding", int, Expression, Array, Array], tuple[Array, Array]]
WIDEN = 1e-6  # relative; above the solvers' tolerance (HiGHS: 1e-7), so that no legal input is lost


class NotLinear(VerifolioError):
    """The graph or domain has no exact linear encoding."""


@dataclass(eq=False)
class Encoding:
    """The model of a network on a domain, and where to find things in it.

    `values[i]` is node i as an expression over the columns, `binaries[i]` are the columns that decide the
    unstable neurons `unstable[i]` of ReLU node i, `lower[i]`/`upper[i]` bound node i where a ReLU reads it,
    `distances` are the columns |x - centre| of an L1 ball.
    """

    graph: Graph
    builder: ModelBuilder
    inputs: Index
    values: dict[int, Expression] = field(default_factory=dict)
    binaries: dict[int, Index] = field(default_factory=dict)
    unstable: dict[int, Index] = field(default_factory=dict)
    lower: dict[int, Array] = field(default_factory=dict)
    upper: dict[int, Array] = field(default_factory=dict)
    distances: Index | None = None

    def fork(self) -> Encoding:
        """The same encoding with a builder of its own, so that rows can be added without harm."""
        return replace(self, builder=self.builder.fork())

    @property
    def unstable_count(self) -> int:
        return sum(len(u) for u in self.unstable.values())

    @property
    def big_m(self) -> float:
        """The sum of all big-M constants (u and -l of unstable neurons): smaller is tighter."""
        total = 0.0
        for i, neurons in self.unstable.items():
            read = self.graph.nodes[i].parents[0]
            total += float((self.upper[read][neurons] - self.lower[read][neurons]).sum())
        return total

    @property
    def output(self) -> Expression:
        return self.values[self.graph.output].widen(self.builder.columns)

    def interval(self, expression: Expression) -> tuple[Array, Array]:
        return expression.interval(self.builder.lower, self.builder.upper)

    def affine(self, over_inputs: Array, over_outputs: Array, constant: Array) -> Expression:
        """over_inputs @ x + over_outputs @ y + constant as an expression."""
        matrices = [sparse.csr_array(over_inputs), sparse.csr_array(over_outputs)]
        parts = [self.values[0], self.values[self.graph.output]]
        return combine(matrices, constant, parts, self.builder.magnitude)


def encode(
    graph: Graph,
    domain: Domain,
    bounds: Bounds | None = None,
    form: ReluEncoding = "bigm",
    refine: Refine | None = None,
) -> Encoding:
    """Encode the network on the domain; `refine` may tighten what an unstable ReLU reads.

    Linear input rows and an L1 ball are added, widened by 1e-6 of their size: far more than a solver's
    tolerance, and a larger domain only makes a proof harder.
    """
    lower, upper = box(domain)
    builder = ModelBuilder()
    encoding = Encoding(graph, builder, builder.add_columns(lower, upper))
    encoding.values[0] = columns_expression(encoding.inputs, builder.columns)
    _add_domain(encoding, domain)
    for i, node in enumerate(graph.nodes):
        if i == 0:
            continue
        if isinstance(node.op, Relu):
            low, high = _read_bounds(encoding, node.parents[0], bounds)
            if refine is not None:
                low, high = refine(encoding, node.parents[0], encoding.values[node.parents[0]], low, high)
            _add_relu(encoding, i, node, low, high, form)
        else:
            encoding.values[i] = _affine_value(encoding, node)
    return encoding


def box(domain: Domain) -> tuple[Array, Array]:
    """The bounding box of the domain, ball included, rounded outward."""
    lower, upper = domain.lower.copy(), domain.upper.copy()
    if domain.ball is not None:
        lower = np.maximum(lower, down(domain.ball.centre - domain.ball.radius))
        upper = np.minimum(upper, up(domain.ball.centre + domain.ball.radius))
    return lower, upper


def _add_domain(encoding: Encoding, domain: Domain) -> None:
    builder = encoding.builder
    if domain.rows is not None and domain.rows.count:
        matrix, _, rhs = dense_rows(domain.rows, domain.size, 0)
        scale = np.abs(matrix).max(axis=1, initial=0.0) + np.abs(rhs)
        upper = up(rhs + WIDEN * scale)
        builder.add_rows([(sparse.csr_array(matrix), encoding.inputs)], np.full(len(rhs), -np.inf), upper)
    if domain.ball is not None and domain.ball.norm == 1:
        distances = encoding.distances = add_distances(encoding, domain.ball.centre)
        total = sparse.csr_array(np.ones((1, len(distances))))
        limit = up(np.array([domain.ball.radius * (1 + WIDEN)]))
        builder.add_rows([(total, distances)], np.full(1, -np.inf), limit)
    elif domain.ball is not None and domain.ball.norm == 2:
        raise NotLinear(
            "an L2 ball has no exact linear encoding; enclose it in a box or use norm 1 or infinity"
        )


def add_distances(encoding: Encoding, centre: Array) -> Index:
    """Columns p with p >= |x - centre|, one per input."""
    builder = encoding.builder
    lower, upper = builder.lower[encoding.inputs], builder.upper[encoding.inputs]
    reach = up(np.maximum(np.abs(up(upper - centre)), np.abs(down(lower - centre))))
    columns = builder.add_columns(np.zeros(len(centre)), reach)
    one = diagonal(np.ones(len(centre)))
    none = np.full(len(centre), -np.inf)
    builder.add_rows([(one, encoding.inputs), (-one, columns)], none, centre)
    builder.add_rows([(-one, encoding.inputs), (-one, columns)], none, -centre)
    return columns


def _affine_value(encoding: Encoding, node: Node) -> Expression:
    """The node as an expression, keeping a parent as columns where composing would fill the matrix in."""
    op, builder = node.op, encoding.builder
    if isinstance(op, Constant):
        return constant_expression(op.value, op.error, builder.columns)
    if isinstance(op, Elementwise | Product | Input):
        raise NotLinear(f"{type(op).__name__} node {node.name!r} is not piecewise linear")
    parents = [encoding.values[p] for p in node.parents]
    matrices = linear_part(op, tuple(p.size for p in parents))
    if any(longest_row(p.matrix) > 1 for p in parents) and any(longest_row(m) > 1 for m in matrices):
        for p in node.parents:
            _keep_as_columns(encoding, p)
        parents = [encoding.values[p] for p in node.parents]
    value = combine(matrices, offset(op), parents, builder.magnitude)
    if not parents:
        return value
    low, high = encoding.interval(parents[0])
    slack = weight_slack(op, np.maximum(np.abs(low), np.abs(high)))
    return Expression(value.matrix, value.constant, value.error + slack) if slack.any() else value


def _keep_as_columns(encoding: Encoding, node: int) -> None:
    """Give the long rows of a node's expression columns of their own, tied by equations."""
    value = encoding.values[node].widen(encoding.builder.columns)
    heavy = np.flatnonzero(np.diff(value.matrix.indptr) > 1)
    if len(heavy) == 0:
        return
    low, high = (b[heavy] for b in encoding.interval(value))
    columns = _define(encoding, value.take(heavy), low, high)
    encoding.values[node] = _replaced(value, heavy, columns, encoding.builder.columns)


def _define(encoding: Encoding, value: Expression, low: Array, high: Array) -> Index:
    """New columns equal to an expression within its rounding error."""
    builder = encoding.builder
    before = np.arange(value.matrix.shape[1], dtype=np.int64)
    columns = builder.add_columns(low, high)
    one = diagonal(np.ones(value.size))
    lower = np.where(value.error > 0, down(value.constant - value.error), value.constant)
    upper = np.where(value.error > 0, up(value.constant + value.error), value.constant)
    builder.add_rows([(one, columns), (-value.matrix, before)], lower, upper)
    return columns


def _replaced(value: Expression, rows: Index, columns: Index, width: int) -> Expression:
    """The expression with some rows replaced by columns."""
    keep = np.ones(value.size)
    keep[rows] = 0
    matrix = diagonal(keep) @ value.widen(width).matrix
    picks = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(value.size, width))
    total = sparse.csr_array(matrix + picks)
    total.eliminate_zeros()
    return Expression(total, value.constant * keep, value.error * keep)


def _read_bounds(encoding: Encoding, node: int, bounds: Bounds | None) -> tuple[Array, Array]:
    low, high = encoding.interval(encoding.values[node])
    if bounds is not None and node in bounds.lower and node in bounds.upper:
        low, high = np.maximum(low, bounds.lower[node]), np.minimum(high, bounds.upper[node])
    return low, high


def _add_relu(encoding: Encoding, i: int, node: Node, low: Array, high: Array, form: ReluEncoding) -> None:
    builder = encoding.builder
    parent = node.parents[0]
    encoding.lower[parent], encoding.upper[parent] = low, high
    pre = encoding.values[parent].widen(builder.columns)
    active = np.flatnonzero((low >= 0) & (np.diff(pre.matrix.indptr) > 1))
    short = (low >= 0) & (np.diff(pre.matrix.indptr) <= 1)
    unstable = np.flatnonzero((low < 0) & (high > 0))
    if not (np.isfinite(low[unstable]).all() and np.isfinite(high[unstable]).all()):
        raise NotLinear("an unstable neuron is unbounded; bound every input")
    kept = short.astype(np.float64)
    start = Expression(diagonal(kept) @ pre.matrix, pre.constant * kept, pre.error * kept)
    defined = _define(encoding, pre.take(active), low[active], np.maximum(high[active], low[active]))
    columns = builder.add_columns(np.zeros(len(unstable)), high[unstable])
    rows = pre.take(unstable)
    if form == "bigm":
        encoding.binaries[i] = _big_m(builder, rows, columns, low[unstable], high[unstable])
    else:
        _triangle(builder, rows, columns, low[unstable], high[unstable])
    encoding.unstable[i] = unstable
    value = _replaced(start, active, defined, builder.columns)
    encoding.values[i] = _replaced(value, unstable, columns, builder.columns)


def _big_m(builder: ModelBuilder, pre: Expression, columns: Index, low: Array, high: Array) -> Index:
    """y >= 0, y >= a, y <= a - l (1 - z), y <= u z."""
    count = len(columns)
    phase = builder.add_columns(np.zeros(count), np.ones(count), integer=True)
    _above_pre(builder, pre, columns)
    one, none = diagonal(np.ones(count)), np.full(count, -np.inf)
    before = np.arange(pre.matrix.shape[1], dtype=np.int64)
    top = up(up(pre.constant + pre.error) - low)
    builder.add_rows([(one, columns), (-pre.matrix, before), (diagonal(-low), phase)], none, top)
    builder.add_rows([(one, columns), (diagonal(-high), phase)], none, np.zeros(count))
    return phase


def _above_pre(builder: ModelBuilder, pre: Expression, columns: Index) -> None:
    before = np.arange(pre.matrix.shape[1], dtype=np.int64)
    one = diagonal(np.ones(pre.size))
    bottom = np.where(pre.error > 0, down(pre.constant - pre.error), pre.constant)
    builder.add_rows([(one, columns), (-pre.matrix, before)], bottom, np.full(pre.size, np.inf))


def _triangle(builder: ModelBuilder, pre: Expression, columns: Index, low: Array, high: Array) -> None:
    """y >= 0, y >= a, y <= s a + t with the line above ReLU at both ends."""
    _above_pre(builder, pre, columns)
    slope = high / (high - low)
    shift = up(np.maximum(up(-slope * low), up(high - down(slope * high))))
    scaled = sparse.csr_array(diagonal(slope) @ pre.matrix)
    rounding = 4 * UNIT * slope * (abs(pre.matrix) @ builder.magnitude[: pre.matrix.shape[1]])
    size = np.abs(slope * pre.constant) + slope * pre.error + np.abs(shift)
    top = up(slope * pre.constant + slope * pre.error + shift + rounding + 8 * UNIT * size)
    before = np.arange(pre.matrix.shape[1], dtype=np.int64)
    one = diagonal(np.ones(pre.size))
    builder.add_rows([(one, columns), (-scaled, before)], np.full(pre.size, -np.inf), top)
