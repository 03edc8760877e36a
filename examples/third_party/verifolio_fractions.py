"""Two verifiers by a stranger: `dice` tries random points, `fractions` proves with exact intervals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from verifolio import Context, Outcome, Problem, Verifier, hookimpl
from verifolio.graph import Dense, Input, Relu
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verifolio import Registry
    from verifolio.vnnlib import Rows

Interval = tuple[Fraction, Fraction]
ZERO = Fraction(0)


@dataclass(frozen=True)
class DiceOptions:
    """Options of `dice`."""

    points: int = described(2000, "How many points to try.")


class Dice(Verifier):
    """Looks for counterexamples; proves nothing."""

    name = "dice"
    can_falsify = True
    Options = DiceOptions

    def refuses(self, problem: Problem) -> str | None:
        box = np.isfinite(problem.domain.lower).all() and np.isfinite(problem.domain.upper).all()
        return None if box else "an input has no finite bounds"

    def run(self, problem: Problem, context: Context) -> Outcome:
        rng = np.random.default_rng(context.seed)
        for _ in range(self.options.points):
            if context.budget.expired() or problem.domain.empty:
                break
            x = rng.uniform(problem.domain.lower, problem.domain.upper)
            if context.check(x):
                return Outcome.found(x)
        return Outcome.unknown("no counterexample among the points tried")


@dataclass(frozen=True)
class FractionsOptions:
    """Options of `fractions`."""

    weights: int = described(100_000, "The largest network to try, because exact numbers are slow.")


class Fractions(Verifier):
    """Proves by interval arithmetic in which nothing is rounded; finds no counterexamples."""

    name = "fractions"
    can_prove = True
    Options = FractionsOptions

    def refuses(self, problem: Problem) -> str | None:
        for node in problem.graph.nodes:
            if isinstance(node.op, Dense) and node.op.weight_error is None and node.op.bias_error is None:
                continue
            if not isinstance(node.op, Input | Relu):
                return f"no interval rule for {type(node.op).__name__}"
        if not (np.isfinite(problem.domain.lower).all() and np.isfinite(problem.domain.upper).all()):
            return "an input has no finite bounds"
        size = sum(node.op.weight.size for node in problem.graph.nodes if isinstance(node.op, Dense))
        return f"{size} weights are too many" if size > self.options.weights else None

    def run(self, problem: Problem, context: Context) -> Outcome:
        if problem.domain.empty:
            return Outcome.proved()
        box = [
            (Fraction(float(a)), Fraction(float(b)))
            for a, b in zip(problem.domain.lower, problem.domain.upper, strict=True)
        ]
        values: list[list[Interval]] = []
        for node in problem.graph.nodes:
            if context.budget.expired():
                return Outcome.unknown("out of time")
            if isinstance(node.op, Dense):
                values.append(through_dense(node.op, values[node.parents[0]]))
            elif isinstance(node.op, Relu):
                values.append([(max(a, ZERO), max(b, ZERO)) for a, b in values[node.parents[0]]])
            else:
                values.append(box)
        variables = [*box, *values[problem.graph.output]]
        if all(impossible(rows, variables) for rows in problem.disjuncts):
            return Outcome.proved()
        return Outcome.unknown("the intervals are too wide")


def through_dense(op: Dense, inputs: list[Interval]) -> list[Interval]:
    """W x + b for intervals x."""
    rows = (enumerate(map(Fraction, row.tolist())) for row in op.weight)
    return [weighted(row, inputs, Fraction(shift)) for row, shift in zip(rows, op.bias.tolist(), strict=True)]


def weighted(terms: Iterable[tuple[int, Fraction]], values: list[Interval], start: Fraction) -> Interval:
    """The interval of start + sum of coefficient * value."""
    low = high = start
    for k, c in terms:
        a, b = values[k]
        low, high = (low + c * a, high + c * b) if c > 0 else (low + c * b, high + c * a)
    return low, high


def impossible(rows: Rows, variables: list[Interval]) -> bool:
    """Whether some row of a conjunction holds nowhere in the intervals."""
    for row in rows.linear_rows():
        least = weighted(row.terms, variables, ZERO)[0]
        if least > row.rhs or (row.strict and least == row.rhs):
            return True
    return False


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    registry.add(Dice)
    registry.add(Fractions)
