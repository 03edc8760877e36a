"""Ask verifiers and bounders about a challenge; what they claim must agree with what is attained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from verifolio.graph import Graph, Step, Whole
from verifolio.model.answer import Verdict
from verifolio.model.problem import Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.estimator import Estimator
from verifolio.plugin.evidence import Assumptions, Bounds, Evidence
from verifolio.plugin.verifier import Verifier
from verifolio.testing.attained import Intervals, Undefined, attained, row_value
from verifolio.testing.trial import attempt, evaluate

from .challenge import Challenge
from .examine import Finding
from .points import float32_numbers

T = TypeVar("T")
Array = NDArray[np.float64]
SHARE = 1 / 3  # of the time each for verifiers, bounders and estimators; a half without the last
IMPORT = 1e-3  # relative difference to ONNX Runtime that float32 does not explain
NEAR = 1e-9  # relative; values this close to a bound are compared exactly
PLAIN = 1e4  # with numbers above it, float32 sums explain any difference
ELSEWHERE = {("milp", "solver")}  # an option that needs other software


@dataclass(frozen=True, eq=False)
class AskedMember:
    """A verifier with options, and how they are written on a command line."""

    label: str
    verifier: Verifier

    @property
    def options(self) -> str:
        _, _, chosen = self.label.partition(":")
        return "".join(f" --option {part}" for part in chosen.split(",") if part)


@dataclass(frozen=True, eq=False)
class AskedMembers:
    """Who is asked, for how long each."""

    members: tuple[AskedMember, ...]
    bounders: tuple[Bounder, ...] = ()
    estimators: tuple[type[Estimator], ...] = ()
    seconds: float = 2.0
    seed: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)

    def next(self, elapsed: float) -> AskedMembers:
        """The same with whoever has not had more than a fair part of the time: the dear ones sit out."""
        share = SHARE if self.estimators else 0.5
        part = share * elapsed / max(len(self.bounders), 1)
        return replace(
            self,
            members=self._next({m.label: m for m in self.members}, share * elapsed),
            bounders=tuple(b for b in self.bounders if self.spent.get(b.name, 0.0) <= part),
            estimators=self._next({e.name: e for e in self.estimators}, share * elapsed),
        )

    def _next(self, named: dict[str, T], seconds: float) -> tuple[T, ...]:
        """Whoever has had the least time, or nobody where all together have had more than that."""
        spent = {name: self.spent.get(name, 0.0) for name in named}
        if not named or sum(spent.values()) > seconds:
            return ()
        return (named[min(spent, key=lambda name: spent[name])],)

    def count(self, name: str, what: str, seconds: float) -> None:
        self.spent[name] = self.spent.get(name, 0.0) + seconds
        tally = self.verdicts.setdefault(name, {})
        tally[what] = tally.get(what, 0) + 1


def variants(cls: type[Verifier]) -> list[AskedMember]:
    """A verifier as it is, and once with every other value of an option that is a choice."""
    made = [AskedMember(cls.name, cls())]
    hints = get_type_hints(cls.Options)
    for option in fields(cls.Options):
        kind: Any = hints[option.name]
        if get_origin(kind) is not Literal or (cls.name, option.name) in ELSEWHERE:
            continue
        for choice in get_args(kind):
            if choice != option.default:
                label = f"{cls.name}:{option.name}={choice}"
                made.append(AskedMember(label, cls(cls.Options(**{option.name: choice}))))
    return made


def wrong_claims(challenge: Challenge, asked: AskedMembers, folder: Path) -> list[Finding]:
    """Everything that is certainly wrong."""
    found = [f for f in [_import_finding(challenge)] if f is not None]
    for bounder in asked.bounders:
        found += _bounder_findings(challenge, asked, bounder)
    for member in asked.members:
        found += _verifier_findings(challenge, asked, member, folder)
    return found


def _import_finding(challenge: Challenge) -> Finding | None:
    """ONNX Runtime on the file against the exact value of the graph that was imported from it.

    Operator by operator where there are steps, as at import: the optimiser makes one of two quantisations in a row.
    """
    x = challenge.point
    if bool((float32_numbers(x) != x).any()):
        return None
    sizes = [float(np.abs(value.nearest).max(initial=0.0)) for value in challenge.values]
    if max(sizes) > PLAIN:
        return None
    fused = not any(isinstance(node.op, Step | Whole) for node in challenge.graph.nodes)
    theirs = challenge.network.replay(x.astype(np.float32), fused).astype(np.float64)
    ours = challenge.values[challenge.graph.output]  # an interval where a step's argument hinges on rounding
    least, most = (np.array([float(v) for v in end[: len(theirs)]]) for end in (ours.lower, ours.upper))
    gap = float((np.maximum(least - theirs, theirs - most) / (1 + max(sizes))).max())
    if gap <= IMPORT:
        return None
    return Finding("wrong import", "import", f"differs from ONNX Runtime by {gap:.3g}")


def _bounder_findings(challenge: Challenge, asked: AskedMembers, bounder: Bounder) -> list[Finding]:
    """All problems in one batch, then the first alone."""
    found = []
    willing = [k for k, p in enumerate(challenge.problems) if bounder.refuses(p) is None]
    batches = [willing, willing[:1]] if len(willing) > 1 else [willing]
    for batch in batches:
        started = time.monotonic()
        try:
            made = bounder.bound([challenge.problems[k] for k in batch])
        except Exception as error:  # whatever a bounder raises is a finding
            found.append(Finding("error", bounder.name, f"{type(error).__name__}: {error}"))
            continue
        asked.count(bounder.name, "bounds", time.monotonic() - started)
        for k, bounds in zip(batch, made, strict=True):
            text = untrue_at(challenge, k, bounds)
            if text is not None:
                found.append(Finding("unsound bounds", bounder.name, text))
                break
    return found


def untrue_at(challenge: Challenge, k: int, bounds: Bounds) -> str | None:
    """What bounds of problem k claim and some point of its set refutes, in exact arithmetic."""
    problem, points = challenge.problems[k], challenge.points[k]
    if k == 0:
        text = _untrue(problem, bounds, challenge.point, list(challenge.values))
        if text is not None:
            return text
    for x in points[_suspicious(problem, bounds, points)]:
        try:
            text = _untrue(problem, bounds, x, attained(problem.graph, x))
        except Undefined:
            continue
        if text is not None:
            return text
    return None


def _suspicious(problem: Problem, bounds: Bounds, points: Array) -> NDArray[np.bool_]:
    """Points where doubles leave the bounds; the exact evaluation is dear."""
    from verifolio.model.problem import dense_rows

    graph, values = problem.graph, evaluate(problem.graph, points)
    found = np.zeros(len(points), np.bool_)
    for node in bounds.lower:
        found |= ((values[node] < bounds.lower[node]) | (values[node] > bounds.upper[node])).any(axis=1)
    for rows, margins in zip(problem.disjuncts, bounds.margins_of(problem), strict=False):
        a, b, rhs = dense_rows(rows, graph.input_size, graph.output_size)
        found |= (points @ a.T + values[graph.output] @ b.T - rhs < margins).any(axis=1)
    return found


def _untrue(problem: Problem, bounds: Bounds, x: Array, values: list[Intervals]) -> str | None:
    for d, (rows, margins) in enumerate(zip(problem.disjuncts, bounds.margins_of(problem), strict=False)):
        for row, margin in zip(rows.linear_rows(), margins.tolist(), strict=True):
            most = row_value(row, x, values[problem.graph.output])[1] - row.rhs
            if np.isposinf(margin) or (np.isfinite(margin) and Fraction(margin) > most):
                return f"disjunct {d}: claims a margin of {margin:.9g}, {float(most):.9g} is attained"
    for node in sorted(bounds.lower):
        text = _outside(node, bounds.lower[node], bounds.upper[node], values[node])
        if text is not None:
            return text
    return None


def _outside(node: int, lower: Array, upper: Array, value: Intervals) -> str | None:
    """Doubles tell for most neurons; those at a bound are compared exactly."""
    near = NEAR * (1 + np.abs(value.nearest))
    for j in np.flatnonzero((value.nearest - near <= lower) | (value.nearest + near >= upper)).tolist():
        low, high, least, most = float(lower[j]), float(upper[j]), value.lower[j], value.upper[j]
        above = low == np.inf or (np.isfinite(low) and Fraction(low) > most)
        below = high == -np.inf or (np.isfinite(high) and Fraction(high) < least)
        if above or below:
            return f"node {node}, neuron {j}: claims [{low:.9g}, {high:.9g}], {float(most):.9g} is attained"
    return None


def _verifier_findings(
    challenge: Challenge, asked: AskedMembers, member: AskedMember, folder: Path
) -> list[Finding]:
    query = challenge.query(folder)
    started = time.monotonic()
    # the attacks that come first would find the point, and what is proved without them is the question
    trial = attempt(member.verifier, query, asked.seconds, asked.seed, evidence=Evidence(attacked=True))
    report = trial.report
    asked.count(
        member.label, "refused" if report.refused else str(report.verdict), time.monotonic() - started
    )
    found = []
    if report.verdict is Verdict.UNSAT or report.false_proof:  # the second look may have refuted it already
        found.append(
            Finding("unsound proof", member.label, "proves what a point refutes in exact arithmetic")
        )
    if report.verdict is Verdict.ERROR:
        found.append(Finding("error", member.label, report.reason))
    problem, values = challenge.problems[0], list(challenge.values)
    for bounds in _bounds_that_hold(trial.evidence, problem, values):
        text = _untrue(problem, bounds, challenge.point, values)
        if text is not None:
            found.append(Finding("unsound evidence", member.label, text))
            break
    if trial.evidence.refutes(problem):
        found.append(Finding("unsound evidence", member.label, "refutes a set with a counterexample"))
    return found


def _bounds_that_hold(evidence: Evidence, problem: Problem, values: list[Intervals]) -> Iterator[Bounds]:
    """Shared bounds whose domain and assumptions the point of the challenge is in."""
    for bounds in evidence.bounds:
        same = bounds.graph == problem.graph.sha256 and problem.domain.within(bounds.domain)
        condition = bounds.assumptions.condition in ("", problem.condition_sha256)
        if same and condition and _in_splits(problem.graph, bounds.assumptions, values):
            whole = bounds.domain.sha256 == problem.domain.sha256
            yield bounds if whole else Bounds(bounds.graph, bounds.domain, bounds.lower, bounds.upper)


def _in_splits(graph: Graph, assumed: Assumptions, values: list[Intervals]) -> bool:
    for node, neuron, sign in assumed.splits:
        value = values[graph.nodes[node].parents[0]] if graph.nodes[node].parents else values[node]
        if (value.low if sign > 0 else -value.high)[neuron] < 0:
            return False
    return True
