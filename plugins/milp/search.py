"""One target (a disjunct, or several in one model): relaxation, solver, tighter tolerances, certificate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from verifolio.encode.condition import MarginModel, margin_model
from verifolio.encode.model import Array
from verifolio.encode.rows import Encoding, box
from verifolio.problem import Problem
from verifolio.verifier import Context
from verifolio.vnnlib import Rows

from .choose import willing_solver
from .highs import Lp
from .options import MilpOptions
from .solver import Result, Settings, Status, Watch
from .tree import close, prove

POLL = 0.005
BRANCHES = 20_000
HINGES = "hinges on solver tolerance"
TREE = "tree"


@dataclass(eq=False)
class Tally:
    """What happened, for the answer's stats."""

    solver: str = ""
    nodes: int = 0
    replays: int = 0
    boxes: int = 0
    slack: float = 0.0
    proofs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Finding:
    """`bound` > 0: the target has no counterexample. `point`: one that replays. Otherwise `reason`.

    `final`: neither more time nor smaller boxes would help.
    """

    bound: float
    point: Array | None = None
    reason: str = ""
    final: bool = False


class Search:
    """Decides targets on one encoding."""

    def __init__(
        self, problem: Problem, encoding: Encoding, context: Context, options: MilpOptions, tally: Tally
    ) -> None:
        self.problem, self.encoding, self.context, self.options = problem, encoding, context, options
        self.tally = tally
        self._box = box(problem.domain)
        self._accepted: Array | None = None
        self._polled = 0.0

    def survey(self, live: Sequence[Rows]) -> tuple[list[Rows], Finding]:
        """The relaxation of every disjunct: those it leaves open, most promising first, and what it found.

        This costs one linear program each, and finds most easy counterexamples wherever they are.
        """
        open_rows: list[tuple[float, int]] = []
        floor = np.inf
        for k, rows in enumerate(live):
            if self.context.budget.expired():
                open_rows += [(np.inf, j) for j in range(k, len(live))]
                break
            root = self._root([rows])
            if root.point is not None:
                return [], root
            if root.bound > 0:
                floor = min(floor, root.bound)
            else:
                open_rows.append((root.bound, k))
        return [live[k] for _, k in sorted(open_rows)], Finding(floor)

    def decide(self, groups: Sequence[Rows], limit: float = np.inf) -> Finding:
        """Decide one target that the relaxation leaves open, by our tree or by the solver's."""
        if self.options.search == "tree":
            return self._prove(groups, limit)
        last = Finding(-np.inf, reason="out of time")
        claims = 0
        for tolerance in (self.options.tolerance, self.options.tight):
            last = self._solve(groups, tolerance)
            claims += last.bound > 0
            enough = claims > 0 and self.options.certify != "doubt"
            open_end = last.bound <= 0 and last.reason != HINGES
            if enough or last.point is not None or self.context.budget.expired() or open_end:
                break
        wanted = {"never": 1, "doubt": 2, "always": 3}[self.options.certify]
        if last.point is not None or claims >= wanted:
            self.tally.proofs += ["solver bound beyond tolerance"] if claims >= wanted else []
            return last
        doubted = last.bound > 0 or last.reason == HINGES
        return self._prove(groups, BRANCHES) if doubted and self.options.certify != "never" else last

    def _settings(self, tolerance: float) -> Settings:
        threads = self.options.threads or self.context.budget.cores
        return Settings(tolerance, threads, self.context.budget.remaining, self.context.seed)

    def _root(self, groups: Sequence[Rows]) -> Finding:
        """The relaxation alone: its duals often prove the target, and size the tolerance slack."""
        target = margin_model(self.encoding, self.problem.domain, groups, np.inf)
        lp = Lp(target.model, self._settings(self.options.tolerance), self.context.budget)
        result = lp.solve()
        duals = result.duals if result.duals is not None else np.zeros(0)
        self.tally.slack = max(self.tally.slack, unit_slack(target, duals))
        bound = close(lp, result)
        if bound > 0:
            self.tally.proofs.append("relaxation, certified")
            return Finding(bound)
        if result.point is None:
            return Finding(-np.inf, reason=f"the relaxation {result.status.value}")
        return Finding(min(result.objective, 0.0), self._accepted if self._accept(result.point) else None)

    def _solve(self, groups: Sequence[Rows], tolerance: float) -> Finding:
        slack = tolerance * self.tally.slack
        target = margin_model(self.encoding, self.problem.domain, groups, slack)
        solver, notes = willing_solver(self.options.solver, target.model)
        self.tally.notes += notes
        seen = [-np.inf]

        def tick(bound: float) -> bool:
            seen[0] = max(seen[0], bound)
            return bound > slack or self._expired()

        result = solver.solve(target.model, self._settings(tolerance), Watch(self._incumbent, tick))
        result = replace(result, bound=max(result.bound, seen[0]))
        self.tally.solver, self.tally.nodes = solver.name, self.tally.nodes + result.nodes
        return self._read(result, slack)

    def _read(self, result: Result, slack: float) -> Finding:
        if self._accepted is not None:
            return Finding(-np.inf, self._accepted)
        if result.status is Status.INFEASIBLE or result.bound > slack:
            return Finding(slack)
        if result.status is Status.STOPPED:
            return Finding(-np.inf, reason="out of time" if self.context.budget.expired() else HINGES)
        if result.status is Status.FAILED:
            return Finding(-np.inf, reason=f"the solver ended with: {result.message or 'no solution'}")
        return Finding(-np.inf, reason=HINGES)

    def _prove(self, groups: Sequence[Rows], limit: float) -> Finding:
        target = margin_model(self.encoding, self.problem.domain, groups, np.inf)
        settings = self._settings(self.options.tolerance)
        proof = prove(target, settings, self.context.budget, self._accept, limit)
        self.tally.nodes += proof.nodes
        self.tally.solver = self.tally.solver or TREE
        if proof.point is not None:
            return Finding(-np.inf, self._accepted)
        if proof.bound > 0:
            self.tally.proofs.append("branch and bound, certified")
            return Finding(proof.bound)
        reason = f"{HINGES} ({proof.reason})" if proof.doubtful else proof.reason
        return Finding(proof.bound, reason=reason, final=proof.doubtful)

    def _incumbent(self, point: Array, objective: float) -> bool:
        return self._accept(point)

    def _accept(self, point: Array) -> bool:
        """Replay the input part of a solution; the network's own rounding decides, not the solver's."""
        x = np.clip(point[self.encoding.inputs], *self._box)
        self.tally.replays += 1
        if not self.context.check(x):
            return False
        self._accepted = x
        return True

    def _expired(self) -> bool:
        now = time.monotonic()
        if now - self._polled < POLL:
            return False
        self._polled = now
        return self.context.budget.expired()


def unit_slack(target: MarginModel, duals: Array) -> float:
    """How far a claimed bound may lie from a true one, per unit of feasibility tolerance.

    A dual infeasibility of one unit in column j is worth its range, a primal one in row i is worth |dual_i|
    (both sides of the weak duality argument of `verifolio.encode.safe`). The factor 10 allows the duals of
    other branches to be larger than those at the root.
    """
    ranges = target.model.upper - target.model.lower
    return float(1.0 + ranges.sum() + 10.0 * np.abs(duals).sum())
