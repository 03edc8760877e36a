"""Queries with known answers: every boundary case that a verifier can get wrong, in very small networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np

from verifolio.graph import Graph
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Problem
from verifolio.model.query import Query
from verifolio.testing.networks import affine, bells, nought, plus_minus, saved, zigzag
from verifolio.vnnlib import Case, Rows, box_case, make_rows, specification_from_cases

SAT, UNSAT = Verdict.SAT, Verdict.UNSAT
Bounds = Sequence[float] | Sequence[Decimal]


@dataclass(frozen=True)
class Example:
    """A query with its truth.

    `easy`: whoever can falsify (or prove) at all must decide it unless it refuses. `sharp`: undecided is a
    fair answer even of a complete verifier, because the truth hinges on equality, or on a round ball.
    """

    name: str
    expected: Verdict
    build: Callable[[Path], Query]
    easy: bool = False
    sharp: bool = False

    def query(self, folder: Path) -> Query:
        return self.build(folder)


@dataclass(frozen=True)
class _Asked:
    """How a query is written down: a graph, regions, perhaps a ball."""

    graph: Callable[[], Graph]
    cases: tuple[Case, ...]
    ball: Ball | None = None
    copies: int = 1

    def __call__(self, folder: Path) -> Query:
        network = saved(self.graph, folder / f"{self.graph.__name__}.onnx")
        specification = specification_from_cases(self.cases, output_size=network.output_size * self.copies)
        return Query((network,) * self.copies, specification, self.ball, shared_input=self.copies > 1)


def at_least(column: int, threshold: float, strict: bool = False) -> Rows:
    """The row: variable >= threshold."""
    return make_rows([({column: -1.0}, -threshold)], strict=strict)


def at_most(column: int, threshold: float) -> Rows:
    """The row: variable <= threshold."""
    return make_rows([({column: 1.0}, threshold)])


def square(
    *disjuncts: Rows, lower: Bounds = (0.0, 0.0), upper: Bounds = (1.0, 1.0), rows: Rows | None = None
) -> Case:
    """A case on a rectangle, the unit square unless told otherwise."""
    return box_case(lower, upper, disjuncts, rows)


def wide(*disjuncts: Rows) -> Case:
    """A case on the square from -1 to 1."""
    return square(*disjuncts, lower=(-1.0, -1.0), upper=(1.0, 1.0))


def tenth(*disjuncts: Rows) -> Case:
    """A case on the point (0.1, 0.1), which no float32 is equal to."""
    point = (Decimal("0.1"), Decimal("0.1"))
    return square(*disjuncts, lower=point, upper=point)


def line(*disjuncts: Rows, lower: float = 0.0, upper: float = 1.0) -> Case:
    """A case on an interval."""
    return box_case([lower], [upper], disjuncts)


def _ask(name: str, expected: Verdict, graph: Callable[[], Graph], *cases: Case, **more: bool) -> Example:
    return Example(name, expected, _Asked(graph, cases), **more)


Y0, Y1 = 2, 3  # columns of the outputs where there are two inputs

PLAIN = (
    _ask("everywhere", SAT, plus_minus, square(at_least(Y0, -1.0)), easy=True),
    _ask("nowhere", UNSAT, plus_minus, square(at_least(Y0, 10.0)), easy=True),
    _ask("affine-sat", SAT, affine, square(at_least(Y0, 0.5)), easy=True),
    _ask("affine-unsat", UNSAT, affine, square(at_least(Y0, 2.5)), easy=True),
    _ask("corner", SAT, plus_minus, wide(at_least(Y0, 1.875))),
    _ask("beyond-the-corner", UNSAT, plus_minus, wide(at_least(Y0, 2.125))),
    _ask("peaks", SAT, zigzag, line(at_least(1, 0.9375))),
    _ask("above-the-peaks", UNSAT, zigzag, line(at_least(1, 1.0625))),
    _ask("cancelling-terms", UNSAT, nought, line(at_least(1, 0.125), lower=-1.0)),
    _ask("smooth-sat", SAT, bells, square(at_least(Y0, 1.9))),
    _ask("smooth-unsat", UNSAT, bells, square(at_least(Y0, 2.0))),
)
EQUALITY = (
    _ask("tie", SAT, plus_minus, square(make_rows([({Y0: 1.0, Y1: -1.0}, 0.0)])), sharp=True),
    _ask(
        "tie-of-strict-row",
        UNSAT,
        plus_minus,
        square(make_rows([({Y0: 1.0, Y1: -1.0}, 0.0)], strict=True)),
        sharp=True,
    ),
    _ask("touched-corner", SAT, plus_minus, square(at_least(Y0, 2.0)), sharp=True),
    _ask("untouched-corner", UNSAT, plus_minus, square(at_least(Y0, 2.0, strict=True)), sharp=True),
    _ask("strict-sat", SAT, plus_minus, square(at_least(Y0, 1.0, strict=True))),
    _ask("always-nought", SAT, nought, line(at_most(1, 0.0), lower=-1.0)),
    _ask("never-below-nought", UNSAT, plus_minus, square(at_most(Y0, -1e-30)), sharp=True),
)
SETS = (
    _ask("point-sat", SAT, plus_minus, square(at_least(Y0, 0.75), lower=(0.5, 0.5), upper=(0.5, 0.5))),
    _ask("point-unsat", UNSAT, plus_minus, square(at_least(Y0, 1.25), lower=(0.5, 0.5), upper=(0.5, 0.5))),
    _ask("flat-side", SAT, plus_minus, square(at_least(Y0, 0.9), lower=(0.0, 0.0), upper=(1.0, 0.0))),
    _ask("no-float32-sat", SAT, plus_minus, tenth(at_least(Y0, 0.125))),
    _ask("no-float32-unsat", UNSAT, plus_minus, tenth(at_least(Y0, 0.25))),
    _ask("cut-sat", SAT, plus_minus, square(at_least(Y0, 0.25), rows=make_rows([({0: 1.0, 1: 1.0}, 0.5)]))),
    _ask(
        "cut-unsat", UNSAT, plus_minus, square(at_least(Y0, 1.0), rows=make_rows([({0: 1.0, 1: 1.0}, 0.5)]))
    ),
    _ask("cut-to-nothing", UNSAT, plus_minus, square(at_least(Y0, 0.0), rows=make_rows([({0: 1.0}, -0.5)]))),
    _ask(
        "second-region",
        SAT,
        plus_minus,
        square(at_least(Y0, 1.5), upper=(0.5, 0.5)),
        square(at_least(Y0, 1.5), lower=(0.5, 0.5)),
    ),
    _ask(
        "no-region",
        UNSAT,
        plus_minus,
        square(at_least(Y0, 1.5), upper=(0.5, 0.5)),
        square(at_most(Y0, 0.5), lower=(0.5, 0.5)),
    ),
    _ask(
        "empty-box",
        UNSAT,
        plus_minus,
        square(at_least(Y0, -1.0), lower=(1.0, 0.0), upper=(0.0, 1.0)),
        easy=True,
    ),
)
CONDITIONS = (
    _ask("true", SAT, plus_minus, square(make_rows([]))),
    _ask("false", UNSAT, plus_minus, square(), easy=True),
    _ask("contradiction", UNSAT, plus_minus, square(make_rows([({Y0: -1.0}, -1.0), ({Y0: 1.0}, 0.5)]))),
    _ask("either-sat", SAT, plus_minus, square(at_least(Y0, 10.0), at_most(Y1, -0.5))),
    _ask("either-unsat", UNSAT, plus_minus, square(at_least(Y0, 10.0), at_most(Y1, -10.0)), easy=True),
    _ask("both-sat", SAT, plus_minus, square(make_rows([({Y0: -1.0}, -1.0), ({Y1: 1.0}, -0.25)]))),
    _ask("both-unsat", UNSAT, plus_minus, square(make_rows([({Y0: -1.0}, -1.5), ({Y1: 1.0}, -0.75)]))),
    _ask(
        "conjunctions-sat",
        SAT,
        plus_minus,
        square(
            make_rows([({Y0: -1.0}, -1.5), ({Y1: 1.0}, -0.75)]),
            make_rows([({Y0: 1.0}, 0.5), ({Y1: -1.0}, 0.0)]),
        ),
    ),
    _ask("mixed-sat", SAT, plus_minus, square(make_rows([({0: 1.0, Y0: -1.0}, -0.5)]))),
    _ask("mixed-unsat", UNSAT, plus_minus, square(make_rows([({0: -1.0, Y0: 1.0}, -0.125)]))),
    _ask("inputs-only", SAT, plus_minus, square(make_rows([({0: -1.0}, -0.5)]))),
    _ask("many-disjuncts", UNSAT, plus_minus, square(*(at_least(Y0, 3.0 + k) for k in range(20)))),
)


def _ball(norm: float) -> Ball:
    return Ball(np.zeros(2), 1.0, norm)


BALLS = tuple(
    Example(
        name,
        expected,
        _Asked(plus_minus, (wide(at_least(Y0, threshold)),), _ball(norm)),
        sharp=norm == 2,
    )
    for name, expected, threshold, norm in (
        ("l1-sat", SAT, 0.875, 1.0),
        ("l1-unsat", UNSAT, 1.125, 1.0),
        ("l2-sat", SAT, 1.375, 2.0),
        ("l2-unsat", UNSAT, 1.5, 2.0),
        ("linf-sat", SAT, 1.875, np.inf),
        ("linf-unsat", UNSAT, 2.125, np.inf),
    )
)
# two networks that read one input: the columns of the second one's outputs follow those of the first
PAIRS = (
    Example(
        "two-networks-sat",
        SAT,
        _Asked(plus_minus, (square(make_rows([({Y0: -1.0}, -1.0), ({Y1 + 2: 1.0}, -0.25)])),), copies=2),
    ),
    Example(
        "two-networks-unsat",
        UNSAT,
        _Asked(plus_minus, (square(make_rows([({Y0: -1.0, Y0 + 2: 1.0}, -0.5)])),), copies=2),
    ),
)
EXAMPLES: tuple[Example, ...] = (*PLAIN, *EQUALITY, *SETS, *CONDITIONS, *BALLS, *PAIRS)


def random_examples(count: int = 12, seed: int = 0) -> tuple[Example, ...]:
    """Small random networks with an enumerated truth, at distances from 1 down to 1e-4 of the boundary."""
    return tuple(_random(seed * 1000 + k) for k in range(count))


@cache
def _random(seed: int) -> Example:
    from verifolio.testing.generate import KINDS, Shape, generate

    rng = np.random.default_rng(seed)
    distance = float((1.0, 0.1, 1e-2, 1e-4)[seed % 4] * (1 if seed % 2 else -1))
    shape = Shape(KINDS[seed // 2 % len(KINDS)], inputs=int(rng.integers(1, 4)))
    made = generate(rng, shape, distance, int(rng.integers(1, 3)), int(rng.integers(1, 3)), seed % 3 % 2)
    return Example(f"random-{seed}", made.expected, _Written(made.problem, f"random-{seed}"))


@dataclass(frozen=True)
class _Written:
    """A generated problem that becomes files where it is asked for."""

    problem: Problem
    name: str

    def __call__(self, folder: Path) -> Query:
        from verifolio.testing.generate import write_problem

        return write_problem(self.problem, folder / self.name)
