"""The four readings of a graph agree: torch, matrices, the transposed convolution, rigorous enclosures."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import sparse

from verifolio.graph import (
    Concat,
    Constant,
    Conv,
    Dense,
    Elementwise,
    Graph,
    GraphBuilder,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Sum,
    exact,
)
from verifolio.graph.enclosure import enclose
from verifolio.graph.functions import FUNCTIONS
from verifolio.graph.matrix import conv_matrix, linear_part, offset
from verifolio.graph.module import GraphModule, convolve_adjoint, layer_of

DRAW = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    """Numbers with few bits, so that products of them are exact in float64."""
    return DRAW.standard_normal(shape).astype(np.float32).astype(np.float64)


def conv(
    transposed: bool = False,
    groups: int = 1,
    stride: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    extra: tuple[int, int] = (0, 0),
) -> Conv:
    channels, outputs, kernel, image = 4, 6, (3, 2), (6, 7)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if transposed:
        weight = normal(channels, outputs // groups, *kernel)
        size = [
            s * (n - 1) + r - pads[i] - pads[i + 2] + extra[i]
            for i, (n, s, r) in enumerate(zip(image, stride, reach, strict=True))
        ]
    else:
        weight = normal(outputs, channels // groups, *kernel)
        size = [
            (n + pads[i] + pads[i + 2] - r) // s + 1
            for i, (n, s, r) in enumerate(zip(image, stride, reach, strict=True))
        ]
    return Conv(
        outputs * size[0] * size[1],
        bias=normal(outputs),
        weight=weight,
        input_shape=(channels, *image),
        output_shape=(outputs, size[0], size[1]),
        stride=stride,
        pads=pads,
        dilation=dilation,
        groups=groups,
        transposed=transposed,
    )


CONVOLUTIONS = [
    conv(),
    conv(stride=(2, 3), pads=(1, 0, 2, 1)),
    conv(groups=2, dilation=(2, 1)),
    conv(stride=(4, 4)),
    conv(transposed=True),
    conv(transposed=True, stride=(2, 3), pads=(1, 0, 1, 1)),
    conv(transposed=True, groups=2, stride=(2, 2), extra=(1, 1)),
    conv(transposed=True, dilation=(1, 2), pads=(0, 1, 1, 0)),
    conv(transposed=True, stride=(3, 3), extra=(2, 2)),
]


def matrix(rows: int, columns: int) -> sparse.csr_array:
    return sparse.csr_array(normal(rows, columns) * (DRAW.random((rows, columns)) < 0.3))


AFFINE: list[tuple[Op, tuple[int, ...]]] = [
    (Dense(3, bias=normal(3), weight=normal(3, 5)), (5,)),
    (Sparse(6, bias=normal(6), weight=matrix(6, 8)), (8,)),
    (Sparse(4, bias=normal(4), weight=sparse.csr_array(np.kron(np.eye(4), np.ones((1, 2))))), (8,)),
    (Scale(5, bias=normal(5), weight=normal(5)), (5,)),
    (Select(6, np.array([3, -1, 0, 0, 4, -1])), (5,)),
    (Sum(5, (1.0, -1.0, 2.0)), (5, 5, 5)),
    (Concat(9), (5, 4)),
    *((c, (int(np.prod(c.input_shape)),)) for c in CONVOLUTIONS),
]


@pytest.mark.parametrize(("op", "sizes"), AFFINE, ids=lambda v: type(v).__name__)
def test_the_matrix_and_the_module_agree(op: Op, sizes: tuple[int, ...]) -> None:
    inputs = [normal(3, n) for n in sizes]
    expected = offset(op) + sum((m @ x.T).T for m, x in zip(linear_part(op, sizes), inputs, strict=True))
    module = layer_of(op).to(torch.float64)
    computed = module(*(torch.from_numpy(x) for x in inputs)).numpy()
    np.testing.assert_allclose(computed, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_the_adjoint_is_the_transpose(op: Conv) -> None:
    y = normal(3, op.size)
    computed = convolve_adjoint(op, torch.from_numpy(y), torch.from_numpy(op.weight)).numpy()
    np.testing.assert_allclose(computed, (conv_matrix(op).T @ y.T).T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_derivatives(name: str) -> None:
    f, parameter = FUNCTIONS[name], 3.0
    x = torch.linspace(0.1, 3.0, 50, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(f.value(x, parameter).sum(), x)
    torch.testing.assert_close(slope, f.derivative(x, parameter), rtol=1e-9, atol=1e-12)


def test_softplus_is_accurate_far_out() -> None:
    value = FUNCTIONS["softplus"].value(torch.tensor([25.0, -50.0], dtype=torch.float64), 0.0)
    np.testing.assert_allclose(value.numpy(), np.log1p(np.exp([25.0, -50.0])), rtol=1e-15)


def mixed_graph() -> Graph:
    """Dense, ReLU, convolution, select, product, power and a constant."""
    b = GraphBuilder(6)
    hidden = b.add(Relu(16), b.add(Dense(16, bias=normal(16), weight=normal(16, 6)), 0))
    op = Conv(18, bias=normal(2), weight=normal(2, 1, 2, 2), input_shape=(1, 4, 4), output_shape=(2, 3, 3))
    image = b.add(op, hidden)
    picked = b.add(Select(8, np.array([0, 3, -1, 7, 7, 17, 2, 1])), image)
    constant = b.add(Constant(8, normal(8)))
    joined = b.add(Sum(8, (1.0, -2.0)), picked, constant)
    product = b.add(Product(8), joined, b.add(Relu(8), picked))
    square = b.add(Elementwise(8, "pow", 2.0), joined)
    both = b.add(Concat(16), product, square)
    out = b.add(Sparse(5, bias=normal(5), weight=matrix(5, 16)), both)
    return b.finish(b.add(Scale(5, bias=normal(5), weight=normal(5)), out))


def exact_values(graph: Graph, x: np.ndarray) -> list[Fraction]:
    """The output in rational arithmetic, operator by operator."""
    known: list[list[Fraction]] = []
    for i, node in enumerate(graph.nodes):
        inputs = [known[p] for p in node.parents]
        op = node.op
        if i == 0:
            known.append([Fraction(float(v)) for v in x])
        elif isinstance(op, Constant):
            known.append([Fraction(float(v)) for v in op.value])
        elif isinstance(op, Relu):
            known.append([max(v, Fraction(0)) for v in inputs[0]])
        elif isinstance(op, Product):
            known.append([a * b for a, b in zip(*inputs, strict=True)])
        elif isinstance(op, Elementwise):
            known.append([v ** int(op.parameter) for v in inputs[0]])
        else:
            total = [Fraction(float(v)) for v in offset(op)]
            for m, values in zip(linear_part(op, tuple(map(len, inputs))), inputs, strict=True):
                entries = m.tocoo()
                for row, column, weight in zip(*entries.coords, entries.data, strict=True):
                    total[row] += Fraction(float(weight)) * values[column]
            known.append(total)
    return known[graph.output]


def test_enclosures_contain_the_exact_value() -> None:
    graph = mixed_graph()
    for _ in range(10):
        x = normal(6)
        value, radius = enclose(graph, x)
        assert (radius < 1e-9 * (1 + np.abs(value))).all()
        for v, r, e in zip(value, radius, exact_values(graph, x), strict=True):
            assert abs(e - Fraction(float(v))) <= Fraction(float(r))


def test_enclosures_cover_weight_errors() -> None:
    """Any weights within the stated errors give a value within the radius."""
    weight, error = normal(4, 5), np.full((4, 5), 1e-3)
    b = GraphBuilder(5)
    stated = Dense(4, bias=normal(4), weight=weight, weight_error=error, bias_error=np.full(4, 1e-4))
    graph = b.finish(b.add(stated, 0))
    x = normal(5)
    value, radius = enclose(graph, x)
    for _ in range(20):
        signs = DRAW.choice([-1.0, 1.0], size=(4, 5))
        other = (weight + signs * error) @ x + stated.bias + 1e-4
        assert (np.abs(other - value) <= radius + 1e-15).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_enclosures_cover_weight_errors_of_convolutions(transposed: bool) -> None:
    op = conv(transposed=transposed, pads=(1, 0, 1, 1))
    off = np.full(op.weight.shape, 1e-3), np.full(op.bias.shape, 1e-4)
    b = GraphBuilder(int(np.prod(op.input_shape)))
    graph = b.finish(b.add(replace(op, weight_error=off[0], bias_error=off[1]), 0))
    x = normal(int(np.prod(op.input_shape)))
    value, radius = enclose(graph, x)
    for _ in range(5):
        signs = DRAW.choice([-1.0, 1.0], size=op.weight.shape)
        other = replace(op, weight=op.weight + signs * off[0], bias=op.bias + 1e-4)
        moved = linear_part(other, (len(x),))[0] @ x + offset(other)
        assert (np.abs(moved - value) <= radius + 1e-12).all()


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "pow"])
def test_enclosures_of_functions_cover_an_input_error(name: str) -> None:
    b = GraphBuilder(5)
    inner = b.add(Scale(5, bias=np.zeros(5), weight=np.ones(5), weight_error=np.full(5, 1e-6)), 0)
    graph = b.finish(b.add(Elementwise(5, name), inner))
    x = np.linspace(0.3, 2.0, 5)
    value, radius = enclose(graph, x)
    for factor in (1 - 1e-6, 1.0, 1 + 1e-6):
        other = FUNCTIONS[name].value(torch.from_numpy(x * factor), 0.0).numpy()
        assert (np.abs(other - value) <= radius).all()


def test_enclosures_of_products_cover_every_rounding() -> None:
    """Factors off by what they may be, and the product's own rounding: in exact arithmetic, entry by entry."""
    rng = np.random.default_rng(1)
    count = 600
    a, b = (rng.uniform(1, 2, count) for _ in range(2))
    off = [rng.uniform(0, 1, count) * rng.choice([0.0, 1e-3, 1.0], count) for _ in range(2)]
    builder = GraphBuilder(1)
    parts = [builder.add(Constant(count, v, e)) for v, e in zip((a, b), off, strict=True)]
    value, radius = enclose(builder.finish(builder.add(Product(count), *parts)), np.zeros(1))
    for k in range(count):
        x, y, dx, dy = (Fraction(float(v[k])) for v in (a, b, *off))
        worst = abs(Fraction(float(value[k])) - x * y) + x * dy + y * dx + dx * dy
        assert worst <= Fraction(float(radius[k]))


def test_errors_of_scalings_are_added_up_without_losing_a_bit() -> None:
    rng, count = np.random.default_rng(4), 400
    weight_error, bias_error, x = rng.uniform(0.5, 1, (3, count))
    b = GraphBuilder(count)
    graph = b.finish(b.add(Scale(count, np.zeros(count), np.zeros(count), weight_error, bias_error), 0))
    _, radius = enclose(graph, x)
    for r, w, e, v in zip(*(a.tolist() for a in (radius, weight_error, bias_error, x)), strict=True):
        assert Fraction(r) >= Fraction(w) * Fraction(v) + Fraction(e)


@pytest.mark.parametrize("off", [1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_enclosures_hold_where_a_slope_is_nought_at_one_end(name: str, off: float) -> None:
    """Beside a turning point, on either side of it."""
    turns = np.arange(-3, 4) * np.pi / 2
    x = np.concatenate([turns + off, turns - off])
    builder = GraphBuilder(1)
    node = builder.add(Elementwise(len(x), name), builder.add(Constant(len(x), x, np.full(len(x), off))))
    value, radius = enclose(builder.finish(node), np.zeros(1))
    for end in np.linspace(-1, 1, 9):
        other = FUNCTIONS[name].value(torch.from_numpy(x + end * off), 0.0).numpy()
        assert (np.abs(other - value) <= radius + 1e-15).all()


@pytest.mark.parametrize("where", [0, 1, 2])
def test_one_number_with_an_error_is_enough_not_to_be_evaluated_exactly(where: int) -> None:
    error = np.full(3, 1e-9)
    errors = [error if k == where else None for k in range(3)]
    builder = GraphBuilder(3)
    node = builder.add(Scale(3, np.zeros(3), np.ones(3), weight_error=errors[0]), 0)
    node = builder.add(Dense(3, np.ones(3), np.eye(3), bias_error=errors[1]), builder.add(Relu(3), node))
    other = builder.add(Constant(3, np.ones(3), errors[2]))
    graph = builder.finish(builder.add(Sum(3, (1.0, 1.0)), node, other))
    assert not exact.evaluable(graph)
    plain = GraphBuilder(3)
    assert exact.evaluable(plain.finish(plain.add(Relu(3), 0)))


def test_constants_join_a_batch() -> None:
    b = GraphBuilder(2)
    graph = b.finish(b.add(Concat(5), b.add(Constant(3, np.arange(3.0))), 0))
    out = GraphModule(graph, torch.float64)(torch.ones(4, 2, dtype=torch.float64))
    assert out.shape == (4, 5)
    assert out[3].tolist() == [0.0, 1.0, 2.0, 1.0, 1.0]


def test_gradients_flow_through_every_operator() -> None:
    x = torch.from_numpy(normal(3, 6)).requires_grad_()
    module = GraphModule(mixed_graph(), torch.float64)
    assert torch.autograd.gradcheck(module, (x,), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("function", ["log", "sqrt", "reciprocal"])
def test_nothing_is_known_where_a_function_may_be_left_undefined(function: str) -> None:
    """The stored bias may be off by 1/2, so its input reaches from -1/4 to 3/4."""
    builder = GraphBuilder(1)
    off = builder.add(Dense(1, np.zeros(1), np.ones((1, 1)), None, np.full(1, 0.5)), 0)
    graph = builder.finish(builder.add(Elementwise(1, function), off))
    _, radius = enclose(graph, np.array([0.25]))
    assert radius[0] == np.inf
    _, inside = enclose(graph, np.array([2.0]))
    assert np.isfinite(inside[0])
