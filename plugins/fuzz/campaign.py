"""A campaign: one random problem after another until time or count is used up, or something is wrong."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from verifolio.model.problem import Problem
from verifolio.run.budget import Budget
from verifolio.testing.generate import (
    DISTANCES,
    KINDS,
    Generated,
    Kind,
    Shape,
    generate,
    shifted,
    write_problem,
)

from .examine import AskedVerifiers, Examination, Finding, examine, same, with_truth
from .shrink import shrink

SHRINK_SECONDS = 60.0  # per finding, which is rare and worth a minute
SLOW, FAIR_AFTER = 5.0, 10  # times the lower median time of a question, after some problems


@dataclass(frozen=True)
class Plan:
    """What to generate: sizes are upper limits, kinds are taken in turn; `networks` 0 is no limit."""

    seed: int = 0
    networks: int = 100
    minutes: float = float("inf")
    kinds: tuple[Kind, ...] = KINDS
    inputs: int = 3
    width: int = 4
    depth: int = 2
    disjuncts: int = 3
    rows: int = 2
    stop_at_first: bool = True


@dataclass(eq=False)
class Summary:
    """What a campaign did; `spared` counts questions that a slow member was not asked."""

    networks: int = 0
    problems: int = 0
    seconds: float = 0.0
    decided: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    spared: Counter[str] = field(default_factory=Counter)
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    findings: list[tuple[Finding, Path]] = field(default_factory=list)


def run_campaign(plan: Plan, asked: AskedVerifiers, out: Path, report: Callable[[str], None]) -> Summary:
    """Generate, examine, and on a finding make it smaller and write a folder that reproduces it."""
    budget = Budget(plan.minutes * 60.0)
    summary = Summary()
    numbers = range(plan.networks) if plan.networks else itertools.count()
    for k in numbers:
        if budget.expired():
            break
        _network(plan, k, asked, out, report, summary, budget)
        summary.networks, summary.seconds = k + 1, budget.elapsed
        report(f"{k + 1} networks, {summary.problems} problems, {len(summary.findings)} findings")
        if summary.findings and plan.stop_at_first:
            break
    return summary


def _network(
    plan: Plan,
    k: int,
    asked: AskedVerifiers,
    out: Path,
    report: Callable[[str], None],
    summary: Summary,
    budget: Budget,
) -> None:
    """Network k, once on either side of the boundary."""
    base = with_truth(draw(plan, k))
    for side, distance in enumerate(distances(plan, k)):
        if budget.expired():
            return
        made = placed(base, distance)
        # neuron bounds do not depend on where the boundary is
        members = asked if side == 0 else replace(asked, bounders=())
        seen = examine(made, sparing(members, summary))
        count(summary, seen)
        for finding in seen.findings:
            report(f"network {k}: {finding.kind}: {finding.text}")
            folder = out / f"{plan.seed}-{k}-{finding.subject}-{finding.kind.replace(' ', '-')}"
            reproduce(made.problem, finding, asked, folder)
            summary.findings.append((finding, folder))
        if seen.findings and plan.stop_at_first:
            return


def sparing(asked: AskedVerifiers, summary: Summary) -> AskedVerifiers:
    """The same without slow members that have had their share of the time: some start a process each time."""
    if summary.problems < FAIR_AFTER or len(asked.verifiers) < 3:
        return asked
    names = [v.name for v in asked.verifiers]
    times = {n: max(summary.problems - summary.spared[n], 1) for n in names}
    usual = SLOW * statistics.median_low(summary.spent[n] / times[n] for n in names)
    share = statistics.median_low(summary.spent[n] for n in names)
    slow = {n for n in names if summary.spent[n] > share and summary.spent[n] / times[n] > usual}
    summary.spared.update(slow)
    return replace(asked, verifiers=tuple(v for v in asked.verifiers if v.name not in slow))


def distances(plan: Plan, k: int) -> list[float]:
    """One distance on either side of the boundary per network."""
    rng = np.random.default_rng((plan.seed, k, 1))
    chosen = rng.choice(DISTANCES, size=2)
    return [float(chosen[0]), -float(chosen[1])]


def draw(plan: Plan, k: int) -> Problem:
    """Network k with a condition, wherever it fell."""
    rng = np.random.default_rng((plan.seed, k))
    kind = plan.kinds[k % len(plan.kinds)]
    inputs = int(rng.integers(1, plan.inputs + 1)) if kind != "conv" else 4
    width, depth = int(rng.integers(1, plan.width + 1)), int(rng.integers(1, plan.depth + 1))
    shape = Shape(kind, inputs, width, depth, int(rng.integers(1, 4)))
    groups, rows = int(rng.integers(1, plan.disjuncts + 1)), int(rng.integers(1, plan.rows + 1))
    cuts, mixed = int(rng.integers(0, 2)) * (k % 3 == 0), bool(k % 7 == 6)
    return generate(rng, shape, None, groups, rows, cuts, mixed).problem


def placed(base: Generated, distance: float) -> Generated:
    """The problem at a distance from the boundary; where it could not be enumerated, as it is."""
    if base.margin is None or not np.isfinite(base.margin):
        return base
    return Generated(shifted(base.problem, base.margin, distance), -distance, base.point, base.exact)


def count(summary: Summary, seen: Examination) -> None:
    summary.problems += 1
    for name, seconds in seen.seconds.items():
        summary.spent[name] += seconds
    for name, verdict in seen.verdicts.items():
        if verdict.decided:
            summary.decided[name] += 1
        elif name in seen.refused:
            summary.refused[name] += 1
        else:
            summary.undecided[name] += 1


def reproduce(problem: Problem, finding: Finding, asked: AskedVerifiers, folder: Path) -> Problem:
    """Shrink the problem and write its files, the finding and the command that shows it."""
    few = asked.only(finding)

    def keeps(smaller: Problem) -> bool:
        return same(examine(with_truth(smaller), few).findings, finding) is not None

    small = shrink(problem, keeps, Budget(SHRINK_SECONDS))
    write_problem(small, folder)
    final = examine(with_truth(small), few)
    record = {
        "finding": asdict(same(final.findings, finding) or finding),
        "verdicts": {n: str(v) for n, v in final.verdicts.items()},
        "reasons": final.reasons,
        "neurons": small.graph.neurons,
        "neurons_before": problem.graph.neurons,
        "rows": small.row_count,
        "seed": asked.seed,
        "command": f"verifolio verify network.onnx property.vnnlib --verifier {finding.subject}",
    }
    (folder / "finding.json").write_text(json.dumps(record, indent=2) + "\n")
    return small
