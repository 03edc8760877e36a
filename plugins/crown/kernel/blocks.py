"""A small graph of ReLUs and products as blocks of dense rows over all earlier features, for the box kernel.

Feature vector: (x, g(z_1), ..., g(z_K)) with z_k = W_k f + b_k, where g is the ReLU, or multiplies the first half of
z by the second. Composing affine nodes rounds; the error is carried along and ends up in each block's `noise`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import NONLINEAR, Affine, Constant, Conv, Elementwise, Graph, Op, Product, Relu
from verifolio.graph.matrix import conv_matrix, linear_part, offset
from verifolio.model.problem import Problem
from verifolio.plugins.crown.propagate.arrays import all_rows, shrunk_box

Array = NDArray[np.float64]
Index = NDArray[np.int64]
UNIT = 2.0**-53  # the unit roundoff of float64
RELU, FACTOR, EQUAL_FACTOR = 0, 1, 2  # as in _boxes.c
MAX_FEATURES = 20_000  # a row that is pushed back is dense, so time per box grows with the square; a choice
# of the weights: 48 MB, all of which every box reads; beyond the caches each box waits for memory. A choice.
MAX_ENTRIES = 6_000_000
KEPT = 32  # conditions of a network: more than it has classes, most often
# a block with fewer than one entry in so many is kept by rows: on dense rows vector instructions gain about as much
SPARSE = 8


@dataclass(frozen=True, eq=False)
class FeatureForm:
    """An affine form over the features, with bounds on the error of its entries."""

    matrix: sparse.csr_array
    bias: Array
    matrix_error: sparse.csr_array
    bias_error: Array

    @cached_property
    def absolute(self) -> sparse.csr_array:
        return abs(self.matrix)

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The first feature that some row reads, and the one after the last."""
        columns = self.read
        return (int(columns.min()), int(columns.max()) + 1) if len(columns) else (0, 1)

    @cached_property
    def read(self) -> Index:
        """The feature of every weight that is not 0."""
        return np.asarray(self.matrix.indices[self.matrix.data != 0])

    @cached_property
    def dense(self) -> Array:
        """The weights between the ends, row by row."""
        return np.asarray(self.matrix[:, self.ends[0] : self.ends[1]].toarray().ravel())


@dataclass(frozen=True, eq=False)
class Blocks:
    """The forms of every hidden layer's pre-activations, and of the network's output.

    `conditions` are the forms of the last conditions by their numbers: queries on a network share few of them.
    """

    inputs: int
    hidden: tuple[FeatureForm, ...]
    kinds: tuple[NDArray[np.uint8], ...]
    output: FeatureForm
    conditions: dict[tuple[bytes, ...], FeatureForm] = field(default_factory=dict)

    @property
    def neurons(self) -> int:
        return sum(len(f.bias) for f in self.hidden)

    @property
    def entries(self) -> int:
        """Weights that are not 0."""
        return sum(f.matrix.nnz for f in self.hidden)


@lru_cache(maxsize=4)  # a search asks three times, and queries on one network share its graph
def make_blocks(graph: Graph) -> Blocks | None:
    """The blocks of a graph, or None where it holds other functions or is too large for dense rows."""
    used = graph.nodes[1 : graph.output + 1]
    nonlinear = [n.op for n in used if isinstance(n.op, NONLINEAR)]
    features = graph.input_size + sum(op.size for op in nonlinear)
    if features > MAX_FEATURES or not all(
        isinstance(op, Relu | Product) or is_square(op) for op in nonlinear
    ):
        return None
    forms: list[FeatureForm] = [_pick(0, graph.input_size, features)]
    hidden: list[FeatureForm] = []
    kinds: list[NDArray[np.uint8]] = []
    start = graph.input_size
    for node in used:
        parents = [forms[p] for p in node.parents]
        if isinstance(node.op, NONLINEAR):
            parents = parents * 2 if is_square(node.op) else parents
            hidden.append(_stack(parents))
            kinds.append(_kinds(node.op, parents, len(set(node.parents)) == 1))
            forms.append(_pick(start, node.op.size, features))
            start += node.op.size
        elif isinstance(node.op, Constant):
            forms.append(_constant(node.op, features))
        else:
            matrices = linear_part(node.op, tuple(len(f.bias) for f in parents))
            forms.append(_compose(node.op, list(matrices), parents, features))
        if sum(f.matrix.nnz for f in hidden) > MAX_ENTRIES or forms[-1].matrix.nnz > MAX_ENTRIES:
            return None
    return Blocks(graph.input_size, tuple(hidden), tuple(kinds), forms[graph.output])


def _stack(forms: list[FeatureForm]) -> FeatureForm:
    """Forms one below the other."""
    if len(forms) == 1:
        return forms[0]
    matrix, error = (
        sparse.csr_array(sparse.vstack([getattr(f, n) for f in forms])) for n in ("matrix", "matrix_error")
    )
    bias, bias_error = (np.concatenate([getattr(f, n) for f in forms]) for n in ("bias", "bias_error"))
    return FeatureForm(matrix, bias, error, bias_error)


def is_square(op: Op) -> bool:
    """Whether an operator is a product of its only parent with itself."""
    return isinstance(op, Elementwise) and op.function == "pow" and op.parameter == 2


def _kinds(op: Op, parents: list[FeatureForm], one_parent: bool) -> NDArray[np.uint8]:
    """What the rows of a block feed: a ReLU, a product, or a product of two equal factors."""
    if isinstance(op, Relu):
        return np.full(op.size, RELU, np.uint8)
    first, second = parents
    # equal forms that carry an error may stand for different numbers, unless they are one node's
    exact = not (
        first.matrix_error.nnz or second.matrix_error.nnz or (first.bias_error + second.bias_error).any()
    )
    same = (abs(first.matrix - second.matrix).sum(1) == 0) & (first.bias == second.bias) & exact
    return np.tile(np.where(same | one_parent, EQUAL_FACTOR, FACTOR).astype(np.uint8), 2)


def _pick(start: int, count: int, features: int) -> FeatureForm:
    place = np.arange(count)
    matrix = sparse.csr_array((np.ones(count), (place, start + place)), shape=(count, features))
    return FeatureForm(matrix, np.zeros(count), sparse.csr_array((count, features)), np.zeros(count))


def _constant(op: Constant, features: int) -> FeatureForm:
    empty = sparse.csr_array((op.size, features))
    return FeatureForm(empty, op.value, empty, np.zeros(op.size) if op.error is None else op.error)


def _compose(
    op: object, matrices: list[sparse.csr_array], parents: list[FeatureForm], features: int
) -> FeatureForm:
    """sum_k M_k form_k + b, and how far rounding and stored errors may take it from the exact form."""
    size = matrices[0].shape[0]
    bias = np.array(offset(op), np.float64)  # type: ignore[arg-type]
    matrix, matrix_error = sparse.csr_array((size, features)), sparse.csr_array((size, features))
    bias_error = np.zeros(size) + (0.0 if getattr(op, "bias_error", None) is None else _bias_error(op))
    exact = len(parents) == 1 and _is_choice(parents[0])
    weight_errors = _weight_error(op)
    for part, form in zip(matrices, parents, strict=True):
        absolute = abs(part)
        matrix = matrix + part @ form.matrix
        bias = bias + part @ form.bias
        matrix_error = matrix_error + absolute @ form.matrix_error
        bias_error = bias_error + absolute @ form.bias_error
        if weight_errors is not None:
            matrix_error = matrix_error + weight_errors @ (abs(form.matrix) + form.matrix_error)
            bias_error = bias_error + weight_errors @ (np.abs(form.bias) + form.bias_error)
        if not exact:
            rounding = 4 * (part.shape[1] + len(parents) + 4) * UNIT
            matrix_error = matrix_error + rounding * (absolute @ abs(form.matrix))
            bias_error = bias_error + rounding * (absolute @ np.abs(form.bias) + np.abs(bias))
    return FeatureForm(sparse.csr_array(matrix), bias, sparse.csr_array(matrix_error), bias_error)


def _is_choice(form: FeatureForm) -> bool:
    """Whether the form picks features, each at most once, so that composing with it adds nothing up."""
    single = bool((np.diff(form.matrix.indptr) <= 1).all()) and bool((form.matrix.data == 1).all())
    return single and len(np.unique(form.matrix.indices)) == form.matrix.nnz and not form.bias.any()


def _bias_error(op: object) -> Array:
    error: Array = op.bias_error  # type: ignore[attr-defined]
    return np.repeat(error, op.output_shape[1] * op.output_shape[2]) if isinstance(op, Conv) else error


def _weight_error(op: object) -> sparse.csr_array | None:
    error = getattr(op, "weight_error", None)
    if error is None or not isinstance(op, Affine):
        return None
    if isinstance(op, Conv):
        return conv_matrix(op, error)
    return sparse.csr_array(sparse.diags_array(error)) if error.ndim == 1 else sparse.csr_array(error)


@dataclass(frozen=True)
class Kernel:
    """The arrays `_boxes.bound` reads, for one problem; `noise` holds on every box inside the problem's."""

    size: NDArray[np.int32]
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    offset: NDArray[np.int64]
    weight: Array
    begin: NDArray[np.int64]
    column: NDArray[np.int32]
    entry: Array
    bias: Array
    noise: Array
    kind: NDArray[np.uint8]
    disjunct: NDArray[np.int32]
    strict: NDArray[np.uint8]
    disjuncts: int
    neurons: int


def make_kernel(blocks: Blocks, problem: Problem, dense: bool = False) -> Kernel:
    """Compile blocks and an output condition, on the problem's box; `dense`: no block as sparse rows."""
    forms = [*blocks.hidden, rows_form(blocks, problem)]
    noises = _noises(forms, blocks.kinds, problem, blocks.inputs)
    ends, offsets, counts = [form.ends for form in forms], [], []
    weights: list[Array] = []
    entries: list[sparse.csr_array] = []
    for form in forms:
        width = form.ends[1] - form.ends[0]
        few = not dense and len(form.read) * SPARSE < len(form.bias) * width
        offsets.append(-1 if few else sum(map(len, weights)))
        weights.append(np.zeros(0) if few else form.dense)
        entries += [form.matrix] if few else []
        counts.append(np.diff(form.matrix.indptr) if few else np.zeros(len(form.bias), np.int64))
    return Kernel(
        np.array([len(f.bias) for f in forms], np.int32),
        np.array([e[0] for e in ends], np.int32),
        np.array([e[1] for e in ends], np.int32),
        np.array(offsets, np.int64),
        np.concatenate(weights),
        np.cumsum(np.concatenate([[0], *counts]), dtype=np.int64),
        np.concatenate([np.zeros(0, np.int32), *(e.indices for e in entries)]).astype(np.int32),
        np.concatenate([np.zeros(0), *(e.data for e in entries)]).astype(np.float64),
        np.concatenate([f.bias for f in forms]),
        np.concatenate(noises),
        np.concatenate([np.zeros(0, np.uint8), *blocks.kinds]),
        np.concatenate([np.full(r.count, d, np.int32) for d, r in enumerate(problem.disjuncts)]),
        np.concatenate([r.strict for r in problem.disjuncts]).astype(np.uint8),
        len(problem.disjuncts),
        blocks.neurons,
    )


def unread(blocks: Blocks, rows: FeatureForm) -> NDArray[np.bool_]:
    """Neurons whose ReLU no later row reads: what is left of opposite neurons that cancel."""
    read = np.zeros(rows.matrix.shape[1], bool)
    for form in (*blocks.hidden, rows):
        read[form.read] = True
    found, start = [np.zeros(0, bool)], blocks.inputs
    for kinds in blocks.kinds:
        relu = not kinds.any()
        count = len(kinds) if relu else len(kinds) // 2
        found.append(~read[start : start + count] if relu else np.zeros(len(kinds), bool))
        start += count
    return np.concatenate(found)


def rows_form(blocks: Blocks, problem: Problem) -> FeatureForm:
    """The output condition's rows minus right-hand sides, over the features; the last ones are kept."""
    key = tuple(part.tobytes() for part in all_rows(problem))
    if key not in blocks.conditions:
        while len(blocks.conditions) >= KEPT:
            blocks.conditions.pop(next(iter(blocks.conditions)), None)
        blocks.conditions[key] = _rows_form(blocks, problem)
    return blocks.conditions[key]


def _rows_form(blocks: Blocks, problem: Problem) -> FeatureForm:
    n, m = blocks.inputs, problem.graph.output_size
    on_inputs, on_outputs, rhs = all_rows(problem)
    output = blocks.output
    features = output.matrix.shape[1]
    direct = sparse.csr_array(np.pad(on_inputs, ((0, 0), (0, features - n))))
    weight = sparse.csr_array(on_outputs)
    absolute, rounding = abs(weight), 4 * (m + 8) * UNIT
    return FeatureForm(
        sparse.csr_array(weight @ output.matrix + direct),
        on_outputs @ output.bias - rhs,
        sparse.csr_array(
            absolute @ output.matrix_error + rounding * (absolute @ output.absolute + abs(direct))
        ),
        absolute @ output.bias_error + rounding * (absolute @ np.abs(output.bias) + np.abs(rhs)),
    )


@np.errstate(over="ignore", invalid="ignore")  # what overflows becomes NaN, and leaves every box open
def _noises(
    forms: list[FeatureForm], kinds: tuple[NDArray[np.uint8], ...], problem: Problem, inputs: int
) -> list[Array]:
    """Per block: rounding error of one entry, from magnitudes that hold on the problem's whole box."""
    features = forms[0].matrix.shape[1]
    low, high = np.zeros(features), np.zeros(features)
    low[:inputs], high[:inputs] = shrunk_box(problem.domain)
    # a row that goes back adds the bias and the lift of every neuron to one constant
    gamma = 1.05 * (features + 2 * sum(map(len, kinds)) + 64) * UNIT
    start, noises = inputs, []
    for k, form in enumerate(forms):
        magnitude = np.maximum(np.abs(low), np.abs(high))
        size = form.absolute @ magnitude + np.abs(form.bias)
        noise = gamma * size + 1.05 * (form.matrix_error @ magnitude + form.bias_error) + 1e-300
        noises.append(noise)
        centre, radius = (low + high) / 2, (high - low) / 2
        middle, reach = form.matrix @ centre + form.bias, form.absolute @ radius + 2 * noise
        if k < len(kinds):
            ends = _features(middle - reach, middle + reach, kinds[k])
            stop = start + len(ends[0])
            low[start:stop], high[start:stop] = ends
            start = stop
    return noises


def _features(low: Array, high: Array, kinds: NDArray[np.uint8]) -> tuple[Array, Array]:
    """Intervals of a block's features from those of its rows."""
    if not kinds.any():
        return np.maximum(low, 0), np.maximum(high, 0)
    half = len(low) // 2
    corners = np.stack([a[:half] * b[half:] for a in (low, high) for b in (low, high)])
    slack = 4 * UNIT * np.abs(corners).max(0)  # each product rounds once
    return corners.min(0) - slack, corners.max(0) + slack
