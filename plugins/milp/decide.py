"""From a problem to an outcome: bounds, encoding, one target after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verifolio.answer import Outcome, Stats, Verdict
from verifolio.encode.condition import row_bounds
from verifolio.encode.rows import Encoding, NotLinear, encode
from verifolio.errors import InputError
from verifolio.evidence import Assumptions, Bounds
from verifolio.problem import Problem
from verifolio.verifier import Context
from verifolio.vnnlib import Rows

from .choose import choose_solver
from .options import MilpOptions
from .search import Search
from .solver import Settings
from .tighten import Tightener


def decide(problem: Problem, context: Context, options: MilpOptions) -> Outcome:
    """Prove the problem, find a point that replays, or say what is missing."""
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.proved(reason="no input or no condition to satisfy")
    bounds = known_bounds(problem, context, options.bounder)
    try:
        encoding = encode_tightly(problem, context, bounds, options)
    except NotLinear as error:
        return Outcome.unknown(str(error))
    live, floor = possible(problem, encoding, bounds)
    solver, note = choose_solver(options.solver)
    search = Search(problem, encoding, context, options, solver)
    search.tally.notes += [note] if note else []
    live, surveyed = search.survey(live)
    if surveyed.point is not None:
        return Outcome.found(surveyed.point, stats=_stats(search, encoding))
    reason, floor = "", min(floor, surveyed.bound)
    for groups in targets(live, options):
        finding = search.decide(groups)
        if finding.point is not None:
            return Outcome.found(finding.point, stats=_stats(search, encoding))
        if finding.bound <= 0:
            reason = reason or finding.reason or "not decided"
        floor = min(floor, finding.bound)
        if reason and context.budget.expired():
            break
    stats = _stats(search, encoding)
    if not reason:
        return Outcome.proved(bound=floor if np.isfinite(floor) else None, stats=stats)
    return Outcome(undecided(context), reason=reason, stats=stats)


def encode_tightly(
    problem: Problem, context: Context, bounds: Bounds | None, options: MilpOptions
) -> Encoding:
    """The encoding with big-M constants from bounds and from linear programs; both go to the evidence."""
    seconds = min(options.tighten, 0.2 * context.budget.remaining)
    settings = Settings(options.tight, options.threads or context.budget.cores)
    tightener = Tightener(context.budget, settings, seconds)
    encoding = encode(problem.graph, problem.domain, bounds, "bigm", tightener)
    if tightener.solved:
        share_bounds(problem, encoding, context)
    return encoding


def targets(live: list[Rows], options: MilpOptions) -> list[list[Rows]]:
    """One target per disjunct, or all of them in one model."""
    if options.disjuncts == "joint" and len(live) > 1:
        return [live]
    return [[rows] for rows in live]


def known_bounds(problem: Problem, context: Context, name: str) -> Bounds | None:
    """The evidence's bounds intersected with those of a bounder, which are added to the evidence."""
    known = context.evidence.bounds_for(problem)
    if name and name not in context.bounders:
        offered = ", ".join(context.bounders) or "none"
        raise InputError("milp option bounder", f"one of {offered}", name, "see `verifolio plugins`")
    bounder = context.bounders[name] if name else context.bounders.best(problem)
    if bounder is None:
        return known
    found = bounder.bound([problem], context.budget, known)[0]
    context.evidence.add_bounds(found)
    return found if known is None else found.intersect(known)


def share_bounds(problem: Problem, encoding: Encoding, context: Context) -> None:
    """Add what the linear programs found to the evidence; it assumes whatever the bounds used assumed."""
    assumed = any(b.assumptions.condition for b in context.evidence.bounds if b.applies_to(problem))
    assumptions = Assumptions(problem.condition_sha256 if assumed else "")
    lower, upper = dict(encoding.lower), dict(encoding.upper)
    context.evidence.add_bounds(
        Bounds(problem.graph.sha256, problem.domain, lower, upper, (), assumptions, "milp")
    )


def possible(problem: Problem, encoding: Encoding, bounds: Bounds | None) -> tuple[list[Rows], float]:
    """The disjuncts that bounds alone do not refute, and the least margin proved for the others."""
    live: list[Rows] = []
    floor = np.inf
    margins: tuple[NDArray[np.float64], ...] = bounds.margins if bounds is not None else ()
    for d, rows in enumerate(problem.disjuncts):
        least = float(row_bounds(encoding, rows)[0].max(initial=-np.inf))
        if d < len(margins) and len(margins[d]):
            least = max(least, float(np.max(margins[d])))
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


def _stats(search: Search, encoding: Encoding) -> Stats:
    tally = search.tally
    found: dict[str, float | int | str] = {"unstable": encoding.unstable_count, "big_m": encoding.big_m}
    found |= {"solver": tally.solver or "relaxation only", "nodes": tally.nodes, "replays": tally.replays}
    found |= {"proof": "; ".join(sorted(set(tally.proofs)))} if tally.proofs else {}
    found |= {"note": "; ".join(dict.fromkeys(tally.notes))} if tally.notes else {}
    return found
