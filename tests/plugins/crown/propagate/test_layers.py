"""Layers hold the matrices that they were made of."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

from verifolio.graph import Sparse
from verifolio.plugins.crown.propagate.layers import Space, SparseLayer


def test_a_matrix_whose_columns_are_in_no_order() -> None:
    """scipy sorts such a matrix in place where its absolute value is taken."""
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(30, 40))
    order = np.concatenate([rng.permutation(40) for _ in range(30)])
    values = np.take_along_axis(plain, order.reshape(30, 40), 1).ravel()
    matrix = sparse.csr_array((values, order, np.arange(0, 1201, 40)), shape=(30, 40))
    layer = SparseLayer(Sparse(30, np.zeros(30), matrix), Space(torch.float64))
    x, rows = rng.normal(size=(2, 40)), rng.normal(size=(1, 3, 30))
    np.testing.assert_allclose(layer.forward(torch.as_tensor(x)).numpy(), x @ plain.T, atol=1e-12)
    np.testing.assert_allclose(
        layer.spread(torch.as_tensor(abs(x))).numpy(), abs(x) @ abs(plain.T), atol=1e-12
    )
    np.testing.assert_allclose(layer.backward(torch.as_tensor(rows))[0][0].numpy(), rows @ plain, atol=1e-12)
