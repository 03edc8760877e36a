"""What the kernel for quadratic conditions reads: the blocks of a graph, every row of its condition once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.plugins.crown.kernel.blocks import RELU, Blocks, Kernel

Array = NDArray[np.float64]
# inputs and ReLUs: the matrices of a row have as many rows and columns, and factors cost the cube. A choice.
MAX_SYMBOLS = 160
MAX_CONJUNCTION = 32  # rows that are combined: `_quadratics.c` charges rounding for sums of twice as many


@dataclass(frozen=True)
class Quadratics:
    """A kernel whose last block holds every row once.

    Disjunct d has the rows member[start[d]:start[d + 1]], each once; `uses`: in how many disjuncts each row is.
    """

    kernel: Kernel
    size: NDArray[np.int32]
    weight: Array
    bias: Array
    noise: Array
    start: NDArray[np.int32]
    member: NDArray[np.int32]
    uses: NDArray[np.int32]
    strict: NDArray[np.uint8]


def quadratic(blocks: Blocks) -> bool:
    """Whether a small network multiplies, and nothing but its output reads products."""
    products, features, relus = [], blocks.inputs, 0
    for kinds in blocks.kinds:
        multiplies = bool(kinds[0] != RELU) if len(kinds) else False
        count = len(kinds) // 2 if multiplies else len(kinds)
        products += list(range(features, features + count)) if multiplies else []
        features, relus = features + count, relus + (0 if multiplies else count)
    if not products or blocks.inputs + relus > MAX_SYMBOLS:
        return False
    return not any(
        form.matrix[:, products].nnz or form.matrix_error[:, products].nnz for form in blocks.hidden
    )


def make_quadratics(kernel: Kernel) -> Quadratics:
    """The kernel with the condition's rows as a table without repetitions, those of most disjuncts first."""
    n, count = kernel.neurons, int(kernel.size[-1])
    cut = int(kernel.offset[-1])
    rows = np.c_[kernel.weight[cut:].reshape(count, -1), kernel.bias[n:], kernel.noise[n:], kernel.strict]
    table, which = np.unique(rows, axis=0, return_inverse=True)
    # a disjunct may say a row twice, but has it once
    pairs = np.unique(np.c_[kernel.disjunct, which.ravel()], axis=0)
    uses = np.bincount(pairs[:, 1], minlength=len(table))
    order = np.argsort(-uses, kind="stable")
    place, table = np.argsort(order), table[order]
    return Quadratics(
        kernel,
        np.r_[kernel.size[:-1], len(table)].astype(np.int32),
        np.concatenate([kernel.weight[:cut], table[:, :-3].ravel()]),
        np.concatenate([kernel.bias[:n], table[:, -3]]),
        np.concatenate([kernel.noise[:n], table[:, -2]]),
        np.searchsorted(pairs[:, 0], np.arange(kernel.disjuncts + 1)).astype(np.int32),
        place[pairs[:, 1]].astype(np.int32),
        uses[order].astype(np.int32),
        np.ascontiguousarray(table[:, -1]).astype(np.uint8),
    )
