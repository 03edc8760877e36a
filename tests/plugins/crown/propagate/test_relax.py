"""Lines and intervals of every relaxation enclose the function: any interval, any parameter, either precision."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from verifolio.graph import Elementwise, Product, Relu, Step
from verifolio.graph.functions import FUNCTIONS
from verifolio.plugins.crown.propagate.relax import Lines, Relaxation, relaxation
from verifolio.plugins.crown.propagate.relax.smooth import SmoothRelaxation
from verifolio.plugins.crown.propagate.relax.step import StepRelaxation

FUNCTION_CASES = [(name, 0.0) for name in sorted(FUNCTIONS) if name != "pow"]
FUNCTION_CASES += [("pow", p) for p in (2.0, 3.0, 4.0, 7.0, 0.5, 1.5, -1.0, -2.0, 1.0)]
POSITIVE = {("log", 0.0), ("sqrt", 0.0), ("reciprocal", 0.0), *(("pow", p) for p in (0.5, 1.5, -1.0, -2.0))}
MOST = {"exp": 300.0, "pow": 1e6}
DTYPES = [torch.float32, torch.float64]
quick = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@st.composite
def intervals(draw: st.DrawFn, least: float, most: float) -> tuple[float, float]:
    """Ordinary, tiny, huge and degenerate intervals within [least, most]."""
    size = draw(st.sampled_from([1e-30, 1e-6, 1e-2, 1.0, 4.0, 30.0, 1e3, 1e6, 1e10]))
    centre = draw(st.floats(-1, 1)) * size
    width = draw(st.sampled_from([0.0, 1e-15, 1e-9, 1e-4, 0.1, 1.0, 8.0])) * size
    low = min(max(centre - width, least), most)
    return low, min(max(centre + width, low), most)


def cast(low: float, high: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    a, b = (torch.tensor([[v]], dtype=torch.float64).to(dtype) for v in (low, high))
    return torch.minimum(a, b), torch.maximum(a, b)


def points(low: Tensor, high: Tensor) -> Tensor:
    """Points of the interval in float64, its ends among them: (points, 1)."""
    a, b = low.double(), high.double()
    share = torch.linspace(0, 1, 257, dtype=torch.float64)[:, None]
    return torch.cat([a + (b - a) * share, a, b, torch.zeros_like(a).clamp(min=a, max=b)]).clamp(min=a, max=b)


def gap(lines: Lines, xs: list[Tensor], value: Tensor) -> tuple[float, float]:
    """The least of value - lower line and of upper line - value, each relative to the numbers involved."""
    found = []
    for slopes, bias, sign in (
        (lines.lower_slope, lines.lower_bias, 1),
        (lines.upper_slope, lines.upper_bias, -1),
    ):
        line = torch.zeros_like(value) if bias is None else bias.double().reshape(1, -1).expand_as(value)
        size = value.abs() + line.abs() + 1e-300
        for slope, x in zip(slopes, xs, strict=True):
            line = line + slope.double().reshape(1, -1) * x
            size = size + (slope.double().reshape(1, -1) * x).abs()
        found.append(float((sign * (value - line) / size).min()))
    return found[0], found[1]


def check(
    rule: Relaxation, ends: list[tuple[Tensor, Tensor]], xs: list[Tensor], value: Tensor, shares: list[float]
) -> None:
    """Lines for several parameters, and the interval, against values that are right to a few ulps of float64."""
    below, above = rule.interval(*ends)
    slack = 1e-15 * value.abs()
    assert not bool((below.double() > value + slack).any()), "interval too high"
    assert not bool((above.double() < value - slack).any()), "interval too low"
    size = 2 if isinstance(rule, SmoothRelaxation) else 1
    for share in (None, *shares):
        parameter = None if share is None else torch.full((1, size), share, dtype=ends[0][0].dtype)
        shapes = (
            (parameter, parameter[:, None]) if parameter is not None and share == shares[-1] else (parameter,)
        )
        for shaped in shapes:
            # NaN makes no comparison true: lines that are undefined claim nothing
            assert not any(g < -1e-14 for g in gap(rule.lines(shaped, *ends), xs, value))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "exponent"), FUNCTION_CASES)
@quick
@given(data=st.data())
def test_smooth(name: str, exponent: float, dtype: torch.dtype, data: st.DataObject) -> None:
    least = 1e-12 if (name, exponent) in POSITIVE else -MOST.get(name, 1e12)
    low, high = cast(*data.draw(intervals(least, MOST.get(name, 1e12))), dtype)
    rule = relaxation(Elementwise(1, name, exponent))
    assert rule is not None
    x = points(low, high)
    check(
        rule, [(low, high)], [x], FUNCTIONS[name].value(x, exponent), [0.0, 1.0, data.draw(st.floats(0, 1))]
    )


@pytest.mark.parametrize(("name", "exponent"), FUNCTION_CASES)
def test_lines_of_any_slope_hold(name: str, exponent: float) -> None:
    """Slopes of tangents and others on 300 intervals; those of waves have up to four periods and begin anywhere."""
    rng, count = np.random.default_rng(4), 300
    positive, wave = (name, exponent) in POSITIVE, name in ("sin", "cos")
    low = 10.0 ** rng.uniform(-2, 1, count) if positive else rng.uniform(-9, 9, count)
    width = rng.uniform(7.5, 7.99, count) * math.pi if wave else rng.uniform(0, 6, count)
    ends = torch.as_tensor(low)[None], torch.as_tensor(low + width)[None]
    x = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None] * (ends[1] - ends[0]) + ends[0]
    rule = SmoothRelaxation(name, exponent)
    value = rule.function.value(x, exponent)
    for _ in range(4):
        at = (x.gather(0, torch.as_tensor(rng.integers(0, 2001, (1, count)))) for _ in range(2))
        slopes = torch.cat([rule.function.derivative(v, exponent) for v in at], 1)
        assert not any(g < -1e-14 for g in gap(rule.lines_of(slopes, ends), [x], value))


@pytest.mark.parametrize("dtype", DTYPES)
@given(ends=intervals(-1e30, 1e30), share=st.floats(0, 1))
@quick
def test_relu(dtype: torch.dtype, ends: tuple[float, float], share: float) -> None:
    low, high = cast(*ends, dtype)
    x = points(low, high)
    rule = relaxation(Relu(1))
    assert rule is not None
    check(rule, [(low, high)], [x], x.clamp(min=0), [0.0, 1.0, share])


@pytest.mark.parametrize("dtype", DTYPES)
@given(first=intervals(-1e12, 1e12), second=intervals(-1e12, 1e12), share=st.floats(0, 1))
@quick
def test_product(
    dtype: torch.dtype, first: tuple[float, float], second: tuple[float, float], share: float
) -> None:
    ends = [cast(*first, dtype), cast(*second, dtype)]
    grid = torch.cartesian_prod(*(points(*e)[::16, 0] for e in ends))
    xs = [grid[:, :1], grid[:, 1:]]
    rule = relaxation(Product(1))
    assert rule is not None
    check(rule, ends, xs, xs[0] * xs[1], [0.0, 1.0, share])


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_outside_the_domain_nothing_is_claimed(name: str) -> None:
    """log below nought, 1 / x through nought: no finite lines."""
    rule = relaxation(Elementwise(1, name, -1.0 if name == "pow" else 0.0))
    assert rule is not None
    low, high = torch.full((1, 1), -1.0), torch.full((1, 1), 2.0)
    lines = rule.lines(None, (low, high))
    assert lines.lower_bias is not None and lines.upper_bias is not None
    if name in ("log", "sqrt", "reciprocal", "pow"):
        assert not math.isfinite(float(lines.lower_bias)) and not math.isfinite(float(lines.upper_bias))
    else:
        assert math.isfinite(float(lines.lower_bias)) and math.isfinite(float(lines.upper_bias))


@pytest.mark.parametrize("rule", [relaxation(Relu(1)), relaxation(Elementwise(1, "tanh"))])
@pytest.mark.parametrize("ends", [(-np.inf, 1.0), (-1.0, np.inf), (-np.inf, np.inf), (np.nan, np.nan)])
def test_unbounded_inputs_claim_nothing_wrong(rule: Relaxation, ends: tuple[float, float]) -> None:
    low, high = (torch.tensor([[e]], dtype=torch.float64) for e in ends)
    lines = rule.lines(None, (low, high))
    x = torch.linspace(-3, 1, 41, dtype=torch.float64)[:, None]
    value = x.clamp(min=0) if rule.homogeneous else torch.tanh(x)
    inside = (x[:, 0] >= ends[0]) & (x[:, 0] <= ends[1])
    assert not any(g < -1e-14 for g in gap(lines, [x[inside]], value[inside])) if bool(inside.any()) else True


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "exp", "sin"])
def test_default_lines_are_tight(name: str) -> None:
    """On a short interval the gap is of second order, so that splitting inputs converges."""
    rule = relaxation(Elementwise(1, name))
    assert rule is not None
    gaps = []
    for width in (0.1, 0.01):
        low, high = (torch.tensor([[v]], dtype=torch.float64) for v in (0.5, 0.5 + width))
        lines = rule.lines(None, (low, high))
        assert lines.lower_bias is not None and lines.upper_bias is not None
        middle = (low + high) / 2
        over, under = (s[0] * middle for s in (lines.upper_slope, lines.lower_slope))
        gaps.append(float(over + lines.upper_bias - under - lines.lower_bias))
    assert gaps[1] < gaps[0] / 50


@pytest.mark.parametrize("ends", [(-math.inf, 1.0), (-1.0, math.inf), (-math.inf, math.inf)])
def test_a_slope_on_an_endless_interval_claims_nothing(ends: tuple[float, float]) -> None:
    """A level line lies below and above all levels; no other line does."""
    rule = StepRelaxation(Step(1, np.array([0.0]), np.array([-1.0, 1.0]), np.array([0.0])))
    interval = torch.full((1, 1), ends[0]), torch.full((1, 1), ends[1])
    for slope, below, above in ((0.0, -1.0, 1.0), (0.5, -math.inf, math.inf), (4.0, -math.inf, math.inf)):
        lines = rule.lines_of(torch.full((1, 2), slope), interval)
        assert lines.lower_bias is not None and lines.upper_bias is not None
        assert float(lines.lower_bias) <= below and float(lines.upper_bias) >= above
        assert math.isfinite(float(lines.lower_bias)) is (slope == 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_levels_and_lines_of_steps_are_cast_outward(dtype: torch.dtype) -> None:
    """Thirds of large numbers, which float32 has to round."""
    levels = np.array([-1e4, 1e-3, 1e4, 7e6]) / 3
    rule = StepRelaxation(Step(1, np.array([-1.0, 0.0, 2.0]), levels, levels[:3]))
    for low, high in ((-2.0, 3.0), (-2.0, -1.5), (0.5, 1.0), (-0.5, 3.0)):
        ends = cast(low, high, dtype)
        inside = [
            v for v, a, b in zip(levels, (-9, -1, 0, 2), (-1, 0, 2, 9), strict=True) if a < high and b > low
        ]
        least, most = rule.interval(ends)
        assert float(least) <= min(inside) and float(most) >= max(inside)
        lines = rule.lines_of(torch.zeros(1, 2), ends)
        assert lines.lower_bias is not None and lines.upper_bias is not None
        assert float(lines.lower_bias) <= min(inside) and float(lines.upper_bias) >= max(inside)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_of_products_hold_at_corners_in_exact_arithmetic(dtype: torch.dtype) -> None:
    """Intervals whose ends differ in size and sign, and any parameter."""
    rng, size = np.random.default_rng(2), 300
    sides = [
        np.sort(rng.normal(size=(2, size)) * 10.0 ** rng.uniform(-3, 3, (2, size)), axis=0) for _ in "xy"
    ]
    x, y = (
        (torch.from_numpy(low)[None].to(dtype), torch.from_numpy(high)[None].to(dtype)) for low, high in sides
    )
    rule = relaxation(Product(size))
    assert rule is not None
    lines = rule.lines(torch.from_numpy(rng.random((1, size))).to(dtype), x, y)
    for side, slopes, bias in (
        (1, lines.lower_slope, lines.lower_bias),
        (-1, lines.upper_slope, lines.upper_bias),
    ):
        assert bias is not None
        for k in range(size):
            a, b, c = (Fraction(float(t[0, k])) for t in (*slopes, bias))
            for u, v in itertools.product(x, y):
                p, q = Fraction(float(u[0, k])), Fraction(float(v[0, k]))
                assert side * (p * q - a * p - b * q - c) >= 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_bands_of_products_are_their_corners(dtype: torch.dtype) -> None:
    """How far x y may lie from a plane of any slopes: the exact ends, and hardly more."""
    rng = np.random.default_rng(0)
    rule = relaxation(Product(40))
    assert rule is not None
    inputs = []
    for _ in range(2):
        low, high = torch.as_tensor(np.sort(rng.normal(size=(2, 40)) * 3, axis=0)).to(dtype)[:, None].unbind()
        inputs.append((low, high))
    slopes = tuple(torch.as_tensor(rng.normal(size=(1, 40))).to(dtype) for _ in range(2))
    below, above = (end[0].tolist() for end in rule.band(slopes, *inputs))
    for j in range(40):
        (left, right), (xs, ys) = (
            [Fraction(float(k[0, j])) for k in slopes],
            [[Fraction(float(e[0, j])) for e in pair] for pair in inputs],
        )
        corners = [x * y - left * x - right * y for x in xs for y in ys]
        room = (
            100 * torch.finfo(dtype).eps * (1 + max(abs(x) for x in xs)) * (1 + max(abs(y) for y in ys)) * 10
        )
        assert min(corners) - Fraction(room) <= Fraction(below[j]) <= min(corners)
        assert max(corners) <= Fraction(above[j]) <= max(corners) + Fraction(room)


def test_bands_of_functions_enclose_and_touch() -> None:
    rng = np.random.default_rng(1)
    for name in ("sigmoid", "tanh", "exp", "sin"):
        low, high = torch.as_tensor(np.sort(rng.uniform(-3, 3, size=(2, 30)), axis=0))[:, None].unbind()
        slope = torch.as_tensor(rng.uniform(-1, 1, size=(1, 30)))
        below, above = SmoothRelaxation(name, 0.0).band((slope,), (low, high))
        x = low + (high - low) * torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
        left = FUNCTIONS[name].value(x, 0.0) - slope * x
        assert bool((below <= left.amin(0)).all() and (above >= left.amax(0)).all())
        assert bool((below >= left.amin(0) - 1e-4).all() and (above <= left.amax(0) + 1e-4).all())
