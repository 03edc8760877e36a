"""A second look at proofs: attacks that must fail if the proofs are right.

Every claimed proof gets a short one (`refuting_candidates`): from the corner of the input set where the condition
seems closest, a few steps in doubles, within a fiftieth of the proof's own time. Proofs of other tools get a whole
attack (`audited`). A point that refutes a proof contradicts it like any other witness.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Domain, Problem, finite
from verifolio.plugin.verifier import Context
from verifolio.vnnlib import Rows, make_rows

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Trust = Literal["trusted", "untrusted"]
SHARE = 0.02  # of a proof's time, for the second look at it
NO_ROWS = make_rows([({0: 0.0}, 1.0)])  # 0 <= 1, in place of a disjunct without rows
STEPS = 16  # at most; most of what a second look can find, the first ones find


def audited(claim: Outcome, unsat: Trust, problem: Problem, context: Context, seconds: float) -> Outcome:
    """What another tool's claim counts for: untrusted proofs are only reported, trusted ones attacked first.

    A proof that the attack refutes keeps its verdict and gets the point: core raises the alarm.
    """
    if claim.verdict is not Verdict.UNSAT:
        return claim
    if unsat != "trusted":
        return replace(claim, verdict=Verdict.UNKNOWN, reason="says unsat, which is not trusted")
    if seconds <= 0:
        context.warn("unsat is another tool's claim, which nothing has attacked; set audit_seconds above 0")
    point = _refute(problem, context, seconds) if seconds > 0 else None
    return claim if point is None else replace(claim, point=point)


def _refute(problem: Problem, context: Context, seconds: float) -> Array | None:
    from verifolio.attacks import attack_many

    results = attack_many(
        [problem],
        lambda _, x: context.check(x),
        context.budget.share(seconds),
        seed=context.seed,
        candidates=context.evidence.candidates,
        first=True,
        device=context.device,
    )
    return results[0].point


def refuting_candidates(
    problems: Sequence[Problem], seconds: float = 0.0, starts: Mapping[int, Array] | None = None
) -> dict[int, Array]:
    """By position the points that refute, in doubles, what was claimed to be proved; most often there are none.

    One corner is tried for every problem, more for `seconds`. `starts` are points to begin with instead of the
    middle, such as the worst corner of the relaxation that was the proof.
    """
    ends = time.monotonic() + seconds
    groups: dict[str, list[int]] = defaultdict(list)
    for k, problem in enumerate(problems):
        if problem.disjuncts and not problem.domain.empty and finite(problem.domain):
            groups[problem.graph.sha256].append(k)
    found: dict[int, Array] = {}
    for members in groups.values():
        batch = _Batch([problems[k] for k in members])
        middle = [_middle(p.domain) for p in batch.problems]
        x = np.stack([(starts or {}).get(k, m) for k, m in zip(members, middle, strict=True)])
        points, miss = batch.descend(x, ends)
        found |= {k: points[i] for i, k in enumerate(members) if miss[i] <= 0}
    return found


def refutes_exactly(problem: Problem, x: Array) -> bool:
    """Whether a point of the domain's box certainly satisfies the condition in exact arithmetic.

    The box was rounded outward, so the point is first moved inward by as much.
    """
    from verifolio.graph.enclosure import enclose
    from verifolio.trust.referee import rows_hold

    domain = problem.domain
    if not inside(domain, x) or not domain.is_box:
        return False
    lower, upper = np.nextafter(domain.lower, np.inf), np.nextafter(domain.upper, -np.inf)
    x = np.where(lower <= upper, np.clip(x, lower, np.maximum(lower, upper)), x)
    value, radius = enclose(problem.graph, x)
    point, error = np.concatenate([x, value]), np.concatenate([np.zeros(len(x)), radius])
    return any(rows_hold(rows, point, error) is True for rows in problem.disjuncts)


def print_margins(verifier: str, networks: Sequence[str], prop: str) -> None:
    """The least margin that a verifier's bounds claim for every input region of a property; positive is a proof."""
    from verifolio.model.query import Query
    from verifolio.plugin.batch import BatchContext
    from verifolio.plugin.choice import Choice

    problems = Query.from_files([*networks], prop).problems
    claimed = Choice(verifier).build().bound_many(problems, BatchContext())
    for problem, bounds in zip(problems, claimed, strict=True):
        sys.stdout.write(f"{bounds.least_margin(problem)}\n")


@dataclass(frozen=True, eq=False)
class _Condition:
    """All rows of many problems, flat: entries (row, column, coefficient), and the rows of every disjunct.

    `owner` is the problem of a row, `first` the first row of a disjunct, `side` the problem of a disjunct.
    """

    row: Index
    column: Index
    coefficient: Array
    rhs: Array
    owner: Index
    first: Index
    side: Index

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> _Condition:
        blocks: list[Rows] = []
        owner: list[int] = []
        counts: list[int] = []  # rows of every disjunct
        side = [k for k, p in enumerate(problems) for _ in p.disjuncts]
        for k, problem in enumerate(problems):
            inputs = problem.domain.rows
            extra = [inputs] if inputs is not None and inputs.count else []
            for rows in problem.disjuncts:
                mine = [r for r in (rows, *extra) if r.count] or [NO_ROWS]
                blocks += mine
                owner += [k] * len(mine)
                counts.append(sum(r.count for r in mine))
        sizes = [r.count for r in blocks]
        starts = np.cumsum([0, *sizes[:-1]])
        return cls(
            np.concatenate([r.row + s for r, s in zip(blocks, starts, strict=True)]).astype(np.int64),
            np.concatenate([r.column for r in blocks]).astype(np.int64),
            np.concatenate([r.coefficient for r in blocks]),
            np.concatenate([r.rhs for r in blocks]),
            np.repeat(np.array(owner, np.int64), sizes),
            np.cumsum([0, *counts[:-1]]),
            np.array(side, np.int64),
        )

    def worst(self, point: Array) -> tuple[Array, Array, Array]:
        """Per problem how far its closest disjunct is from holding; the same of all disjuncts, and of all rows."""
        products = self.coefficient * point[self.owner[self.row], self.column]
        value = np.bincount(self.row, products, len(self.rhs)) - self.rhs
        value[np.isnan(value)] = np.inf
        top = np.maximum.reduceat(value, self.first)
        miss = np.full(len(point), np.inf)
        np.minimum.at(miss, self.side, top)
        return miss, top, value

    def deciding(self, miss: Array, top: Array, value: Array) -> Index:
        """The row of each problem by which its closest disjunct fails."""
        closest, decides = np.zeros(len(miss), np.int64), np.zeros(len(miss), np.int64)
        chosen = np.flatnonzero(top == miss[self.side])[::-1]
        closest[self.side[chosen]] = chosen  # the first of equals
        each = np.repeat(np.arange(len(top)), np.diff(self.first, append=len(value)))
        rows = np.flatnonzero((each == closest[self.owner]) & (value == miss[self.owner]))[::-1]
        decides[self.owner[rows]] = rows
        return decides

    def slope(self, decides: Index, width: int) -> Array:
        """The coefficients of the deciding rows over inputs and outputs."""
        chosen = np.zeros((len(decides), width))
        entries = np.flatnonzero(decides[self.owner[self.row]] == self.row)
        where = (self.owner[self.row[entries]], self.column[entries])
        np.add.at(chosen, where, self.coefficient[entries])
        return chosen


class _Batch:
    """Problems on one graph, descended together: every step heads for a corner (Frank and Wolfe 1956)."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        from verifolio.graph.evaluator import evaluator

        self.problems = problems
        self.evaluator = evaluator(problems[0].graph)
        self.condition = _Condition.of(problems)

    def descend(self, x: Array, ends: float) -> tuple[Array, Array]:
        """The best points met and how far each is from refuting; at least one corner is tried."""
        least, slope = self._look(x)
        length = np.ones((len(x), 1))
        for step in range(STEPS):
            corners = np.stack([_corner(p.domain, s) for p, s in zip(self.problems, slope, strict=True)])
            tried = x + length * (corners - x)  # the whole way first
            last = step == STEPS - 1 or time.monotonic() >= ends
            miss, new = self._look(tried, not last)
            better = (miss < least)[:, None]
            x, slope = np.where(better, tried, x), np.where(better, new, slope)
            least, length = np.minimum(miss, least), np.where(better, length, length / 2)
            if last or bool((least <= 0).all()):
                break
        return x, least

    def _look(self, x: Array, steep: bool = True) -> tuple[Array, Array]:
        """How far each point is from refuting, and, where asked, in which direction that grows."""
        if not steep:
            miss = self.condition.worst(np.concatenate([x, self.evaluator(x)], axis=1))[0]
            return miss, np.zeros_like(x)
        outputs, pull = self.evaluator.linearise(x)
        point = np.concatenate([x, outputs], axis=1)
        worst = self.condition.worst(point)
        rows = self.condition.slope(self.condition.deciding(*worst), point.shape[1])
        over_inputs, over_outputs = rows[:, : x.shape[1]], rows[:, x.shape[1] :]
        return worst[0], pull(over_outputs) + over_inputs


def inside(domain: Domain, x: Array) -> bool:
    """Whether a point has the domain's size and lies in its box."""
    return x.shape == domain.lower.shape and bool(((domain.lower <= x) & (x <= domain.upper)).all())


def _middle(domain: Domain) -> Array:
    if domain.ball is not None:
        return np.clip(domain.ball.centre, domain.lower, domain.upper)
    return domain.lower / 2 + domain.upper / 2


def _corner(domain: Domain, slope: Array) -> Array:
    """The point of the box, or of the ball moved into the box, where slope . x is least."""
    ball = domain.ball
    if ball is None or np.isinf(ball.norm):
        reach = np.inf if ball is None else ball.radius
        centre = 0.0 if ball is None else ball.centre
        lower, upper = np.maximum(domain.lower, centre - reach), np.minimum(domain.upper, centre + reach)
        return np.where(slope > 0, lower, np.where(slope < 0, upper, lower / 2 + upper / 2))
    if ball.norm == 2:
        move = slope / max(float(np.linalg.norm(slope)), 1e-300)
    else:
        move = np.where(np.arange(len(slope)) == np.abs(slope).argmax(), np.sign(slope), 0.0)
    return np.clip(ball.centre - ball.radius * move, domain.lower, domain.upper)
