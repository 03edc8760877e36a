"""Random small networks and properties whose distance to the decision boundary is known, or nearly so."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from verifolio.encode.heads import extreme
from verifolio.encode.onnx_writer import write_onnx
from verifolio.graph import Conv, Dense, Elementwise, Graph, GraphBuilder, Product, Relu, Sum
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.testing.regions import true_margin
from verifolio.vnnlib import Rows, box_case, load, make_rows, specification_from_cases, write

Array = NDArray[np.float64]
Kind = Literal["dense", "conv", "residual", "maxpool", "smooth"]
ALL_KINDS: tuple[Kind, ...] = get_args(Kind)
KINDS = ALL_KINDS[:4]  # piecewise linear: the least margin is found by enumeration
# of thresholds from the true margin: from what rounding decides to what anybody proves
DISTANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
GRID = 32.0  # multiples of 1/32 have few bits, so that sums of them are exact in float32


@dataclass(frozen=True)
class Shape:
    """How large a network is; `width` and `depth` count hidden neurons per layer and hidden layers."""

    kind: Kind = "dense"
    inputs: int = 2
    width: int = 3
    depth: int = 2
    outputs: int = 2


@dataclass(frozen=True, eq=False)
class Generated:
    """A problem with its truth: the least margin (<= 0 is SAT) or None where nobody knows it.

    Where it is not `exact`, it is the margin of a point: others may have less.
    """

    problem: Problem
    margin: float | None = None
    point: Array | None = None
    exact: bool = True

    @property
    def expected(self) -> Verdict:
        """What a complete verifier must say; UNKNOWN within 1e-8 of the boundary or without the truth."""
        if self.margin is None or abs(self.margin) < 1e-8:
            return Verdict.UNKNOWN
        if self.margin < 0:
            return Verdict.SAT
        return Verdict.UNSAT if self.exact else Verdict.UNKNOWN


def random_graph(rng: np.random.Generator, shape: Shape) -> Graph:
    """A network whose weights are small multiples of 1/32, which float32 holds and adds exactly."""
    builder = GraphBuilder(shape.inputs)
    if shape.kind == "conv":
        hidden = _conv(rng, builder, shape)
    else:
        hidden = 0
        for _ in range(shape.depth):
            hidden = _block(rng, builder, hidden, shape)
    return builder.finish(_dense(rng, builder, hidden, shape.outputs))


def _dense(rng: np.random.Generator, builder: GraphBuilder, node: int, size: int) -> int:
    inputs = builder.nodes[node].op.size
    weight = rounded(rng.normal(size=(size, inputs)) * math.sqrt(2.0 / inputs))
    return builder.add(Dense(size, rounded(rng.normal(size=size) * 0.5), weight), node)


def _block(rng: np.random.Generator, builder: GraphBuilder, node: int, shape: Shape) -> int:
    if shape.kind == "maxpool":
        pairs = _dense(rng, builder, node, 2 * shape.width)
        return extreme(builder, pairs, [[2 * k, 2 * k + 1] for k in range(shape.width)], 1.0)
    if shape.kind == "smooth":
        return _smooth(rng, builder, _dense(rng, builder, node, shape.width))
    relu = builder.add(Relu(shape.width), _dense(rng, builder, node, shape.width))
    if shape.kind == "residual":
        skip = _dense(rng, builder, node, shape.width)
        return builder.add(Sum(shape.width, (1.0, 1.0)), relu, skip)
    return relu


def _smooth(rng: np.random.Generator, builder: GraphBuilder, node: int) -> int:
    """A smooth function of a node, sometimes times a ReLU of it."""
    size = builder.nodes[node].op.size
    bent = builder.add(Elementwise(size, str(rng.choice(["sigmoid", "tanh", "erf", "softplus"]))), node)
    gate = builder.add(Relu(size), node) if rng.random() < 0.3 else None
    return bent if gate is None else builder.add(Product(size), bent, gate)


def _conv(rng: np.random.Generator, builder: GraphBuilder, shape: Shape) -> int:
    """One padded convolution over the input as the squarest image, then a ReLU."""
    height = max(h for h in range(1, math.isqrt(shape.inputs) + 1) if shape.inputs % h == 0)
    size = (height, shape.inputs // height)
    channels = max(1, math.ceil(shape.width * shape.depth / shape.inputs))
    weight, bias = (
        rounded(rng.normal(size=(channels, 1, 3, 3)) * 0.7),
        rounded(rng.normal(size=channels) * 0.5),
    )
    op = Conv(channels * shape.inputs, bias, weight, (1, *size), (channels, *size), pads=(1, 1, 1, 1))
    return builder.add(Relu(op.size), builder.add(op, 0))


def rounded(values: Array) -> Array:
    """The nearest multiples of 1/32."""
    return np.asarray(np.round(values * GRID) / GRID)


def random_domain(rng: np.random.Generator, size: int, rows: int = 0) -> Domain:
    """A box around a random point, cut by rows through its inside."""
    centre, radius = rounded(rng.uniform(-1, 1, size)), rounded(rng.uniform(0.1, 1, size))
    cuts = []
    for _ in range(rows):
        normal = rounded(rng.normal(size=size))
        cuts.append(({k: float(v) for k, v in enumerate(normal)}, float(normal @ centre) + 0.125))
    return Domain(centre - radius, centre + radius, make_rows(cuts) if cuts else None)


def random_condition(
    rng: np.random.Generator, graph: Graph, disjuncts: int = 1, rows: int = 1, mixed: bool = False
) -> tuple[Rows, ...]:
    """Random rows over the outputs (and inputs, where mixed), with right-hand sides near nought."""
    n, m = graph.input_size, graph.output_size
    columns = np.arange(0 if mixed else n, n + m)
    groups = []
    for _ in range(disjuncts):
        drawn = [rng.choice(columns, size=min(2, len(columns)), replace=False) for _ in range(rows)]
        groups.append(make_rows([(_terms(rng, c, n), float(rounded(rng.normal(size=1))[0])) for c in drawn]))
    return tuple(groups)


def _terms(rng: np.random.Generator, columns: Array, inputs: int) -> dict[int, float]:
    values = rounded(rng.normal(size=len(columns)))
    terms = {int(c): float(v) for c, v in zip(columns, values, strict=True)}
    if not any(v for c, v in terms.items() if c >= inputs):
        terms[inputs] = 1.0
    return terms


def shifted(problem: Problem, margin: float, distance: float) -> Problem:
    """The problem with all right-hand sides moved so that its least margin becomes -distance."""
    groups = []
    for rows in problem.disjuncts:
        moved = [(dict(r.terms), float(r.rhs) + margin + distance) for r in rows.linear_rows()]
        groups.append(make_rows(moved))
    return replace(problem, disjuncts=tuple(groups))


def generate(
    rng: np.random.Generator,
    shape: Shape,
    distance: float | None,
    disjuncts: int = 1,
    rows: int = 1,
    cuts: int = 0,
    mixed: bool = False,
) -> Generated:
    """A random problem at a signed distance from the boundary (positive: SAT); None leaves it."""
    graph = random_graph(rng, shape)
    domain = random_domain(rng, shape.inputs, cuts)
    problem = Problem(graph, domain, random_condition(rng, graph, disjuncts, rows, mixed))
    if distance is None:
        return Generated(problem)
    margin, point = true_margin(problem)
    if not np.isfinite(margin):
        return Generated(problem)
    moved = shifted(problem, margin, distance)
    return Generated(moved, -distance, point)


def write_problem(problem: Problem, folder: Path) -> Query:
    """Write `network.onnx` and `property.vnnlib`, and read them back as a query."""
    folder.mkdir(parents=True, exist_ok=True)
    write_onnx(problem.graph, folder / "network.onnx")
    case = box_case(problem.domain.lower, problem.domain.upper, problem.disjuncts, problem.domain.rows)
    specification = specification_from_cases([case], output_size=problem.graph.output_size)
    path = folder / "property.vnnlib"
    path.write_text(write(specification, "1.0" if not problem.mixes_inputs else None))
    return Query((Network.load(folder / "network.onnx"),), load(path), name=str(path))
