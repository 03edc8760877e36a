"""The least margin of one target (a disjunct, or several in one model): relaxation, a solver's point, our tree."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from verifolio.encode.condition import margin_model
from verifolio.encode.model import Array
from verifolio.encode.rows import Encoding, box
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.run.budget import Budget
from verifolio.vnnlib import Rows

from .choose import willing_solver
from .highs import Lp
from .options import MilpOptions
from .solver import SolverSettings, SolveStatus, Watch
from .trace import Trace
from .tree import close, prove

# seconds between two looks at the clock inside a solver's callback, which is called far more often
POLL = 0.005
# of the time for the solver's own tree; what it does not find, ours has to refute in the rest
SOLVER_SHARE = 0.5
HINGES = "hinges on solver tolerance"
TREE = "tree"


@dataclass(eq=False)
class SearchStats:
    """What happened, for the answer's stats."""

    solver: str = ""
    nodes: int = 0
    replays: int = 0
    boxes: int = 0
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


class MarginSearch:
    """Decides targets on one encoding."""

    def __init__(
        self,
        problem: Problem,
        encoding: Encoding,
        context: Context,
        options: MilpOptions,
        counts: SearchStats,
        trace: Trace | None = None,
    ) -> None:
        self.problem, self.encoding, self.context, self.options = problem, encoding, context, options
        self.counts, self.trace = counts, trace
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
        """Decide one target that the relaxation leaves open: by our tree, after the solver's where asked for.

        The solver may find a point. That it finds none is its word alone, so our tree has to prove it.
        """
        claimed = self._ask_solver(groups) if self.options.search == "solver" else ""
        if self._accepted is not None:
            return Finding(-np.inf, self._accepted)
        proof = self._prove(groups, limit)
        if proof.bound > 0 or proof.point is not None or not claimed:
            return proof
        return replace(proof, reason=f"{claimed}, but bounds do not prove it: {proof.reason}")

    def _settings(self, tolerance: float) -> SolverSettings:
        threads = self.options.threads or self.context.budget.cores
        return SolverSettings(tolerance, threads, self.context.budget.remaining, self.context.seed)

    def _root(self, groups: Sequence[Rows]) -> Finding:
        """The relaxation alone: its duals often prove the target."""
        target = margin_model(self.encoding, self.problem.domain, groups, np.inf)
        lp = Lp(target.model, self._settings(self.options.tolerance), self.context.budget)
        result = lp.solve()
        bound = close(lp, result)
        if bound > 0:
            self.counts.proofs.append("relaxation, certified")
            return Finding(bound)
        if result.point is None:
            return Finding(-np.inf, reason=f"the relaxation {result.status.value}")
        return Finding(min(result.objective, 0.0), self._accepted if self._accept(result.point) else None)

    def _ask_solver(self, groups: Sequence[Rows]) -> str:
        """Let the solver's own tree look for a point; in words what it says where it claims that there is none."""
        target = margin_model(self.encoding, self.problem.domain, groups, np.inf)
        solver, notes = willing_solver(self.options.solver, target.model)
        self.counts.notes += notes
        share = self.context.budget.share(SOLVER_SHARE * self.context.budget.remaining)
        watch = Watch(self._incumbent, lambda bound: bound > 0 or self._expired(share))
        settings = replace(self._settings(self.options.tolerance), seconds=share.remaining)
        result = solver.solve(target.model, settings, watch)
        self.counts.solver, self.counts.nodes = solver.name, self.counts.nodes + result.nodes
        none = result.status is SolveStatus.INFEASIBLE or result.bound > 0
        return f"{solver.name} finds no counterexample" if none else ""

    def _prove(self, groups: Sequence[Rows], limit: float) -> Finding:
        target = margin_model(self.encoding, self.problem.domain, groups, np.inf)
        settings = self._settings(self.options.tolerance)
        proof = prove(target, settings, self.context.budget, self._accept, limit)
        self.counts.nodes += proof.nodes
        self.counts.solver = self.counts.solver or TREE
        if proof.point is not None:
            return Finding(-np.inf, self._accepted)
        if proof.bound > 0:
            self.counts.proofs.append("branch and bound, certified")
            if self.trace is not None and len(groups) == 1:
                self.trace.add(groups[0], self.encoding, target.binaries, proof.closed)
            return Finding(proof.bound)
        reason = f"{HINGES} ({proof.reason})" if proof.doubtful else proof.reason
        return Finding(proof.bound, reason=reason, final=proof.doubtful)

    def _incumbent(self, point: Array, objective: float) -> bool:
        return self._accept(point)

    def _accept(self, point: Array) -> bool:
        """Replay the input part of a solution; the network's own rounding decides, not the solver's."""
        x = np.clip(point[self.encoding.inputs], *self._box)
        self.counts.replays += 1
        if not self.context.check(x):
            return False
        self._accepted = x
        return True

    def _expired(self, budget: Budget) -> bool:
        now = time.monotonic()
        if now - self._polled < POLL:
            return False
        self._polled = now
        return budget.expired()
