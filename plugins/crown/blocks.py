"""A small piecewise-linear graph as blocks of dense rows over all earlier features, for the box kernel.

Feature vector: (x, relu(z_1), ..., relu(z_K)) with z_k = W_k f + b_k. Composing affine nodes rounds; the error is
carried along and ends up in each block's `noise`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph import Affine, Constant, Conv, Graph, Relu
from verifolio.graph.matrix import conv_matrix, linear_part, offset
from verifolio.model.problem import Problem, dense_rows
from verifolio.plugins.crown.region import shrunk_box

Array = NDArray[np.float64]
UNIT = 2.0**-53
MAX_FEATURES = 8000
MAX_ENTRIES = 6_000_000


@dataclass(frozen=True)
class Form:
    """An affine form over the features, with bounds on the error of its entries."""

    matrix: sparse.csr_array
    bias: Array
    matrix_error: sparse.csr_array
    bias_error: Array


@dataclass(frozen=True)
class Blocks:
    """The forms of every hidden layer's pre-activations, and of the network's output."""

    inputs: int
    hidden: tuple[Form, ...]
    output: Form

    @property
    def neurons(self) -> int:
        return sum(len(f.bias) for f in self.hidden)


def make_blocks(graph: Graph) -> Blocks | None:
    """The blocks of a graph, or None where it is not piecewise linear or too large for dense rows."""
    features = graph.input_size + graph.neurons
    if not graph.piecewise_linear or features > MAX_FEATURES:
        return None
    forms: list[Form] = [_pick(0, graph.input_size, features)]
    hidden: list[Form] = []
    start = graph.input_size
    for node in graph.nodes[1 : graph.output + 1]:
        parents = [forms[p] for p in node.parents]
        if isinstance(node.op, Relu):
            hidden.append(parents[0])
            forms.append(_pick(start, node.op.size, features))
            start += node.op.size
        elif isinstance(node.op, Constant):
            forms.append(_constant(node.op, features))
        else:
            matrices = linear_part(node.op, tuple(len(f.bias) for f in parents))
            forms.append(_compose(node.op, list(matrices), parents, features))
        if sum(f.matrix.nnz for f in hidden) > MAX_ENTRIES or forms[-1].matrix.nnz > MAX_ENTRIES:
            return None
    return Blocks(graph.input_size, tuple(hidden), forms[graph.output])


def _pick(start: int, count: int, features: int) -> Form:
    place = np.arange(count)
    matrix = sparse.csr_array((np.ones(count), (place, start + place)), shape=(count, features))
    return Form(matrix, np.zeros(count), sparse.csr_array((count, features)), np.zeros(count))


def _constant(op: Constant, features: int) -> Form:
    empty = sparse.csr_array((op.size, features))
    return Form(empty, op.value, empty, np.zeros(op.size) if op.error is None else op.error)


def _compose(op: object, matrices: list[sparse.csr_array], parents: list[Form], features: int) -> Form:
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
    return Form(sparse.csr_array(matrix), bias, sparse.csr_array(matrix_error), bias_error)


def _is_choice(form: Form) -> bool:
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
    bias: Array
    noise: Array
    disjunct: NDArray[np.int32]
    strict: NDArray[np.uint8]
    disjuncts: int
    neurons: int


def make_kernel(blocks: Blocks, problem: Problem) -> Kernel:
    """Compile blocks and an output condition, on the problem's box."""
    forms = [*blocks.hidden, _rows_form(blocks, problem)]
    noises = _noises(forms, problem, blocks.inputs)
    firsts, lasts, weights = [], [], []
    for form in forms:
        columns = form.matrix.indices[form.matrix.data != 0]
        first, last = (int(columns.min()), int(columns.max()) + 1) if len(columns) else (0, 1)
        firsts.append(first)
        lasts.append(last)
        weights.append(np.ascontiguousarray(form.matrix[:, first:last].toarray()).ravel())
    offsets = np.cumsum([0, *(len(w) for w in weights[:-1])])
    return Kernel(
        np.array([len(f.bias) for f in forms], np.int32),
        np.array(firsts, np.int32),
        np.array(lasts, np.int32),
        offsets.astype(np.int64),
        np.concatenate(weights),
        np.concatenate([f.bias for f in forms]),
        np.concatenate(noises),
        np.concatenate([np.full(r.count, d, np.int32) for d, r in enumerate(problem.disjuncts)]),
        np.concatenate([r.strict for r in problem.disjuncts]).astype(np.uint8),
        len(problem.disjuncts),
        blocks.neurons,
    )


def _rows_form(blocks: Blocks, problem: Problem) -> Form:
    """The output condition's rows minus right-hand sides, over the features."""
    n, m = blocks.inputs, problem.graph.output_size
    parts = [dense_rows(rows, n, m) for rows in problem.disjuncts]
    on_inputs, on_outputs, rhs = (np.concatenate([p[i] for p in parts]) for i in range(3))
    output = blocks.output
    features = output.matrix.shape[1]
    direct = sparse.csr_array(np.pad(on_inputs, ((0, 0), (0, features - n))))
    weight = sparse.csr_array(on_outputs)
    absolute, rounding = abs(weight), 4 * (m + 8) * UNIT
    return Form(
        sparse.csr_array(weight @ output.matrix + direct),
        on_outputs @ output.bias - rhs,
        sparse.csr_array(
            absolute @ output.matrix_error + rounding * (absolute @ abs(output.matrix) + abs(direct))
        ),
        absolute @ output.bias_error + rounding * (absolute @ np.abs(output.bias) + np.abs(rhs)),
    )


def _noises(forms: list[Form], problem: Problem, inputs: int) -> list[Array]:
    """Per block: rounding error of one entry, from magnitudes that hold on the problem's whole box."""
    features = forms[0].matrix.shape[1]
    low, high = np.zeros(features), np.zeros(features)
    low[:inputs], high[:inputs] = shrunk_box(problem.domain)
    gamma = 1.05 * (features + 64) * UNIT
    start, noises = inputs, []
    for form in forms:
        magnitude = np.maximum(np.abs(low), np.abs(high))
        size = abs(form.matrix) @ magnitude + np.abs(form.bias)
        noise = gamma * size + 1.05 * (form.matrix_error @ magnitude + form.bias_error) + 1e-300
        noises.append(noise)
        centre, radius = (low + high) / 2, (high - low) / 2
        middle, reach = form.matrix @ centre + form.bias, abs(form.matrix) @ radius + 2 * noise
        stop = start + len(noise)
        if stop <= features:
            low[start:stop] = np.maximum(middle - reach, 0)
            high[start:stop] = np.maximum(middle + reach, 0)
        start = stop
    return noises
