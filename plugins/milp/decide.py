"""From a problem to an outcome: bounds, relaxations, a short tree, then smaller boxes or tighter rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from verifolio.encode.condition import row_bounds
from verifolio.encode.known import chosen_bounder, known_bounds
from verifolio.encode.rows import Encoding, NotLinear, encode
from verifolio.model.answer import Outcome, Stats, Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Assumptions, Bounds
from verifolio.plugin.verifier import Context
from verifolio.vnnlib import Rows

from .margin_search import Finding, MarginSearch, SearchStats
from .options import MilpOptions
from .solver import SolverSettings
from .tighten import Tightener
from .trace import Trace

# Of the first tree: branches per disjunct, share of the time for all. It ends most problems that are easy at all;
# what it leaves open is worth tighter rows or smaller boxes. Choices.
FIRST_NODES, FIRST_SHARE = 256, 0.1
SMALL = 100  # neurons; the relaxations of smaller networks find points as quickly as a descent
ROUNDS = (2048.0, np.inf)  # branches per disjunct, so that a hard one does not hide an easy one
ENDLESS = 600.0  # seconds that a budget without an end is taken for, where shares of it are handed out
TIGHTEN_SHARE = 0.2  # of the time at most for programs that tighten: the tree needs the rest; a choice


def decide(problem: Problem, context: Context, options: MilpOptions) -> Outcome:
    """Prove the problem, find a point that replays, or say what is missing."""
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.proved(reason="no input or no condition to satisfy")
    decider = Decider(context, options)
    decider.trace = Trace(problem) if options.trace else None
    try:
        bounder = chosen_bounder(problem, context, "milp", options.bounder)
        finding = decider.whole(problem, known_bounds(problem, context, bounder))
    except NotLinear as error:
        return Outcome.unknown(str(error))
    stats = decider.stats()
    if finding.point is not None:
        return Outcome.found(finding.point, stats=stats)
    if finding.bound > 0:
        if decider.trace is not None:
            decider.trace.save(options.trace)
        return Outcome.proved(bound=finding.bound if np.isfinite(finding.bound) else None, stats=stats)
    return Outcome(undecided(context), reason=finding.reason or "not decided", stats=stats)


class Decider:
    """Decides a problem and, where that helps, the boxes it is cut into; keeps the books."""

    def __init__(self, context: Context, options: MilpOptions) -> None:
        self.context, self.options = context, options
        self.counts = SearchStats()
        self.trace: Trace | None = None  # of a proof that is to become a certificate
        self.encoding: Encoding | None = None
        self.domain: Domain | None = None

    def whole(self, problem: Problem, bounds: Bounds | None) -> Finding:
        """Everything there is, the cheap things first."""
        from .box_search import BoxSearch
        from .probe import Probe

        probe = Probe(problem)
        large = problem.graph.neurons > SMALL
        for x in probe.descend(problem.domain, self.context.seed, self.context.budget) if large else ():
            self.counts.replays += 1
            if self.context.check(x):
                return Finding(-np.inf, x)
        if self.options.search == "solver":
            encoding = encode_tightly(problem, self.context, bounds, self.options)
            return self._targets(problem, bounds, encoding, (np.inf,), self.context)
        first = replace(self.context, budget=self.context.budget.share(FIRST_SHARE * self._left()))
        finding = self.box(problem, bounds, FIRST_NODES, first)
        if finding.bound > 0 or finding.point is not None or finding.final or self.context.budget.expired():
            return finding
        boxes = BoxSearch.of(problem, self, probe)
        if boxes is not None and self.trace is None:
            return boxes.run()
        encoding = encode_tightly(problem, self.context, bounds, self.options)
        return self._targets(problem, bounds, encoding, ROUNDS, self.context)

    def box(self, problem: Problem, bounds: Bounds | None, limit: float, context: Context) -> Finding:
        """The relaxation of every disjunct, and a tree of limited size for those it leaves open."""
        encoding = encode(problem.graph, problem.domain, bounds, "bigm")
        return self._targets(problem, bounds, encoding, (limit,), context)

    def stats(self) -> Stats:
        counts, encoding = self.counts, self.encoding
        found: dict[str, float | int | str] = {}
        if encoding is not None:
            found |= {"unstable": encoding.unstable_count, "big_m": encoding.big_m}
        found |= {"solver": counts.solver or "relaxation only", "nodes": counts.nodes}
        found |= {"replays": counts.replays, "boxes": counts.boxes}
        found |= {"proof": "; ".join(sorted(set(counts.proofs)))} if counts.proofs else {}
        return found | ({"note": "; ".join(dict.fromkeys(counts.notes))} if counts.notes else {})

    def _left(self) -> float:
        left = self.context.budget.remaining
        return left if np.isfinite(left) else ENDLESS

    def _targets(
        self,
        problem: Problem,
        bounds: Bounds | None,
        encoding: Encoding,
        limits: Sequence[float],
        context: Context,
    ) -> Finding:
        """All disjuncts on one encoding, in rounds of growing trees."""
        if self.encoding is None or problem.domain is self.domain:
            self.encoding, self.domain = encoding, problem.domain
        live, floor = possible(problem, encoding, bounds)
        search = MarginSearch(problem, encoding, context, self.options, self.counts, self.trace)
        live, surveyed = search.survey(live)
        if surveyed.point is not None:
            return surveyed
        floor = min(floor, surveyed.bound)
        groups = targets(live, self.options)
        for limit in limits:
            findings = []
            for group in groups:
                findings.append(search.decide(group, limit))
                if findings[-1].point is not None:
                    return findings[-1]
            floor = min([floor, *(f.bound for f in findings if f.bound > 0)])
            groups = [g for g, f in zip(groups, findings, strict=True) if f.bound <= 0]
            failed = [f for f in findings if f.bound <= 0]
            if not groups:
                return Finding(floor)
            if context.budget.expired() or all(f.final for f in failed):
                break
        return replace(failed[0], final=all(f.final for f in failed))


def encode_tightly(
    problem: Problem, context: Context, bounds: Bounds | None, options: MilpOptions
) -> Encoding:
    """The encoding with big-M constants from bounds and from linear programs; both go to the evidence."""
    seconds = min(options.tighten, TIGHTEN_SHARE * context.budget.remaining)
    settings = SolverSettings(options.tight, options.threads or context.budget.cores)
    tightener = Tightener(context.budget, settings, seconds)
    encoding = encode(problem.graph, problem.domain, bounds, "bigm", tightener)
    if tightener.solved:
        context.evidence.add_bounds(tightened(problem, encoding, bounds))
    return encoding


def targets(live: Sequence[Rows], options: MilpOptions) -> list[list[Rows]]:
    """One target per disjunct, or all of them in one model."""
    if options.disjuncts == "joint" and len(live) > 1 and not options.trace:
        return [list(live)]
    return [[rows] for rows in live]


def tightened(problem: Problem, encoding: Encoding, began: Bounds | None) -> Bounds:
    """What the linear programs found; it takes for granted whatever the bounds they began with did."""
    assumed, foreign = (Assumptions(), False) if began is None else (began.assumptions, began.foreign)
    lower, upper = dict(encoding.lower), dict(encoding.upper)
    return Bounds(problem.graph.sha256, problem.domain, lower, upper, None, assumed, "milp", foreign)


def possible(problem: Problem, encoding: Encoding, bounds: Bounds | None) -> tuple[list[Rows], float]:
    """The disjuncts that bounds alone do not refute, and the least margin proved for the others."""
    live: list[Rows] = []
    floor = np.inf
    margins = bounds.margins_of(problem) if bounds is not None else [np.zeros(0)] * len(problem.disjuncts)
    for rows, known in zip(problem.disjuncts, margins, strict=True):
        least = float(np.fmax(row_bounds(encoding, rows)[0].max(initial=-np.inf), known.max(initial=-np.inf)))
        if least > 0:
            floor = min(floor, least)
        else:
            live.append(rows)
    return live, floor


def undecided(context: Context) -> Verdict:
    """UNKNOWN, unless the clock or the token stopped us."""
    if context.budget.remaining <= 0:
        return Verdict.TIMEOUT
    return Verdict.CANCELLED if context.budget.stop() else Verdict.UNKNOWN
