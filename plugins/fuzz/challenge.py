"""A challenge: problems whose thresholds lie at what some point attains, so that `unsat` is always wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph
from verifolio.graph.monomials import with_monomials
from verifolio.graph.settle import settle
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.testing.attained import Intervals, Undefined, attained, double_above, row_value
from verifolio.testing.recipe import Recipe
from verifolio.testing.trial import evaluate
from verifolio.vnnlib import Rows, box_case, load, make_rows, specification_from_cases, write

from .points import certainly_inside, random_set, worst_points

Array = NDArray[np.float64]
LARGEST = 1e30  # beyond it float32 is near its end, and nobody is asked


@dataclass(frozen=True)
class Layout:
    """What is asked about a network: how many boxes, disjuncts and rows, on what kind of input set.

    `spread`: about how much a sum of all inputs with random weights varies; the radius is that over sqrt(inputs),
    so that some neurons are open and some are not, whatever the number of inputs.
    `place`: the threshold comes from the `worst` point found, a `corner` of the box or a `random` point.
    `beyond`: so many doubles above the attained value. `single`: bounds and point are float32 numbers.
    `products`: so many products of inputs and outputs that rows may have.
    """

    seed: int
    boxes: int = 1
    disjuncts: int = 1
    rows: int = 1
    mixed: bool = False
    norm: float = 0.0
    cuts: int = 0
    spread: float = 0.3
    place: str = "worst"
    beyond: int = 0
    single: bool = True
    products: int = 0


@dataclass(frozen=True, eq=False)
class Challenge:
    """Problems on one network; `points[k]` lie in the set of problem k, and the first of problem 0 satisfies it.

    `values` are the exact values of every node at that point.
    """

    network: Network
    problems: tuple[Problem, ...]
    points: tuple[Array, ...]
    values: tuple[Intervals, ...]
    monomials: tuple[tuple[int, ...], ...] = ()

    @property
    def graph(self) -> Graph:
        return self.problems[0].graph

    @property
    def point(self) -> Array:
        return np.asarray(self.points[0][0])

    def query(self, folder: Path) -> Query:
        """All problems as one query, through its text; the ball, which a file cannot hold, is added.

        The problem with the attained threshold stands in the middle: whoever mixes up a batch answers for another.
        """
        half = (len(self.problems) + 1) // 2
        ordered = [*self.problems[half:], *self.problems[:half]]
        cases = [box_case(p.domain.lower, p.domain.upper, p.disjuncts, p.domain.rows) for p in ordered]
        outputs = self.graph.output_size - len(self.monomials)
        specification = specification_from_cases(cases, output_size=outputs, monomials=self.monomials)
        path = folder / "property.vnnlib"
        path.write_text(write(specification, "2.0" if self.problems[0].mixes_inputs else "1.0"))
        return Query((self.network,), load(path), self.problems[0].domain.ball, name=path.name)


def random_layout(rng: np.random.Generator, many: bool = False) -> Layout:
    """Boxes narrow and wide, some batches, balls, cuts, disjunctions, mixed rows; mostly the worst point.

    With `many`, more boxes than verifiers look at one by one, and no ball.
    """
    if many:
        made = random_layout(rng)
        return replace(made, boxes=int(rng.integers(9, 25)), norm=0.0, spread=min(made.spread, 1.0))
    norm = float(rng.choice([1.0, 2.0, math.inf])) if rng.random() < 0.25 else 0.0
    return Layout(
        seed=int(rng.integers(1 << 31)),
        boxes=int(rng.choice([1, 2, 4])) if not norm else 1,
        disjuncts=int(rng.choice([1, 1, 1, 2, 3])),
        rows=int(rng.choice([1, 1, 2, 3])),
        mixed=bool(rng.random() < 0.15),
        norm=norm,
        cuts=int(rng.integers(1, 3)) if rng.random() < 0.15 else 0,
        spread=float(10.0 ** (rng.uniform(-1, 1) if rng.random() < 0.8 else rng.uniform(-4, 2))),
        place=str(rng.choice(["worst", "worst", "worst", "worst", "corner", "random"])),
        beyond=int(rng.choice([0, 0, 1])),
        single=bool(rng.random() < 0.6),
        products=int(rng.integers(1, 4)) if rng.random() < 0.2 else 0,
    )


def make_challenge(recipe: Recipe, layout: Layout, folder: Path) -> Challenge | None:
    """The network and its problems; None where values are undefined or far too large to say anything."""
    network = recipe.write(folder / "network.onnx")
    rng = np.random.default_rng(layout.seed)
    monomials = _monomials(network.graph, layout.products, layout.seed)
    whole = with_monomials(network.graph, monomials)
    problems, points, values = [], [], None
    for k in range(layout.boxes):
        # boxes of one batch leave different neurons open
        radius = layout.spread / math.sqrt(whole.input_size) * 10.0 ** (rng.uniform(-1.0, 0.5) * (k > 0))
        radius *= whole.input_size if layout.norm == 1 else 1.0
        domain = random_set(rng, whole.input_size, radius, layout.norm, layout.cuts, layout.single)
        graph = settle(whole, domain.lower, domain.upper)
        conditions = tuple(_condition(rng, graph, layout) for _ in range(layout.disjuncts))
        known = _known_points(graph, domain, conditions, layout, rng)
        if known is None:
            return None
        if k == 0:
            values = exact_values(graph, known[0])
            if values is None:
                return None
            made = [_at_value(rows, known[0], values[graph.output], layout.beyond) for rows in conditions[:1]]
            rest = conditions[1:]
        else:
            made, rest = [], conditions
        outputs = evaluate(graph, known[:1])[graph.output][0]
        if not (np.abs(outputs) <= LARGEST).all():  # nor where they are no numbers
            return None
        made += [_below(rows, np.concatenate([known[0], outputs])) for rows in rest]
        problems.append(Problem(graph, domain, tuple(made)))
        points.append(known)
    if values is None:
        return None
    return Challenge(network, tuple(problems), tuple(points), values, monomials)


def _monomials(graph: Graph, count: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Products of two or three inputs and outputs, squares among them."""
    rng = np.random.default_rng((seed, count))  # its own: questions without products stay what they were
    columns = graph.input_size + graph.output_size
    degrees = [int(rng.choice([2, 2, 2, 3])) for _ in range(count)]
    return tuple(sorted({tuple(sorted(rng.integers(0, columns, d).tolist())) for d in degrees}))


def _known_points(
    graph: Graph, domain: Domain, conditions: tuple[Rows, ...], layout: Layout, rng: np.random.Generator
) -> Array | None:
    """Points that are exactly inside, that of the threshold first."""
    worst = worst_points(graph, domain, conditions, rng)
    first = worst[0]
    if layout.place != "worst":
        first = rng.uniform(domain.lower, domain.upper)
    if layout.place == "corner":
        first = np.where(rng.random(domain.size) < 0.5, domain.lower, domain.upper)
    start = certainly_inside(domain, first, layout.single)
    if start is None:
        return None
    others = [certainly_inside(domain, w) for w in worst]
    return np.stack([start, *(o for o in others if o is not None)])


def _condition(rng: np.random.Generator, graph: Graph, layout: Layout) -> Rows:
    """Rows over the outputs: one of them, a difference, or all; and over some inputs where mixed."""
    n, m = graph.input_size, graph.output_size
    made = []
    for _ in range(layout.rows):
        weights = np.round(rng.normal(size=m) * 16) / 16
        style = int(rng.integers(3))
        if style < 2 or not weights.any():
            weights = np.zeros(m)
            weights[rng.integers(m)] = rng.choice([-1.0, 1.0])
            weights[rng.integers(m)] -= 1.0 * (style == 1 and m > 1)
            weights[0] += 1.0 * (not weights.any())
        terms = {n + k: float(w) for k, w in enumerate(weights) if w}
        if layout.mixed:
            terms |= {int(k): float(rng.integers(1, 9)) / 8 for k in rng.integers(0, n, 2)}
        made.append((terms, 0.0))
    return make_rows(made)


def exact_values(graph: Graph, x: Array) -> tuple[Intervals, ...] | None:
    """Every node at a point; None where a function is undefined or a number near the end of float32."""
    try:
        values = attained(graph, x)
    except Undefined:
        return None
    return None if max(float(np.abs(v.nearest).max(initial=0.0)) for v in values) > LARGEST else tuple(values)


def _at_value(rows: Rows, x: Array, outputs: Intervals, beyond: int) -> Rows:
    """Rows with right-hand sides at what x attains, or a few doubles above."""
    made = []
    for row in rows.linear_rows():
        at = double_above(row_value(row, x, outputs)[1])
        for _ in range(beyond):
            at = math.nextafter(at, math.inf)
        made.append((dict(row.terms), at))
    return make_rows(made)


def _below(rows: Rows, point: Array) -> Rows:
    """Rows that are clearly not satisfied at a point."""
    made = []
    for row in rows.linear_rows():
        value = float(sum(float(c) * point[k] for k, c in row.terms))
        made.append((dict(row.terms), value - 0.5 * (1.0 + abs(value))))
    return make_rows(made)


def simpler(layout: Layout) -> list[Layout]:
    """The same question on a plainer set, with fewer boxes, disjuncts and rows."""
    changes: list[dict[str, object]] = [
        {"boxes": 1},
        {"disjuncts": 1},
        {"rows": 1},
        {"mixed": False},
        {"norm": 0.0},
        {"cuts": 0},
        {"products": 0},
        {"products": max(0, layout.products - 1)},
        {"beyond": 0},
        {"boxes": max(1, layout.boxes - 1)},
    ]
    made = [replace(layout, **change) for change in changes]  # type: ignore[arg-type]
    return [m for m in made if m != layout]
