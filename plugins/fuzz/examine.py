"""Ask everybody about one problem, and compare what they say with the truth and with each other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.errors import VerifolioError
from verifolio.graph import Constant, Elementwise, Graph, Product, Relu, Step, Whole
from verifolio.graph.enclosure import enclose
from verifolio.graph.functions import FUNCTIONS
from verifolio.graph.matrix import linear_part, offset
from verifolio.graph.steps import RULES, Table
from verifolio.model.answer import Verdict, Witness
from verifolio.model.problem import Problem, dense_rows
from verifolio.model.query import Query
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.verifier import Verifier
from verifolio.run import Link
from verifolio.solve.attempt import run_attempt
from verifolio.solve.report import Report
from verifolio.solve.task import AttemptTask
from verifolio.testing.generate import Generated, write_problem
from verifolio.testing.regions import TooManyRegions, true_margin
from verifolio.testing.trial import attained_margin
from verifolio.trust.referee import confirmed, judge_counterexample

Array = NDArray[np.float64]
SAMPLES = 8  # inside and as many corners, beside the attack's own points
ATTACK_SECONDS = 0.2  # an attack finds a point of these small networks in milliseconds
REGIONS = 200  # linear programs of a network that is enumerated: about a second


@dataclass(frozen=True)
class Finding:
    """Something that must not happen. `kind` and `subject` stay the same while a problem is made smaller."""

    kind: str
    subject: str
    text: str


@dataclass(frozen=True, eq=False)
class Examination:
    """What everybody said about one problem."""

    findings: tuple[Finding, ...]
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AskedVerifiers:
    """Who is asked, and for how long each."""

    verifiers: tuple[Verifier, ...]
    bounders: tuple[Bounder, ...] = ()
    seconds: float = 10.0
    seed: int = 0

    def only(self, finding: Finding) -> AskedVerifiers:
        """Those needed to see a finding again: the subject, and whoever can refute a proof."""
        subject = [v for v in self.verifiers if v.name == finding.subject]
        others = [v for v in self.verifiers if v.can_falsify and v.name != finding.subject]
        keep = subject + (others if finding.kind == "unsound proof" else [])
        bounders = [b for b in self.bounders if b.name == finding.subject]
        return replace(self, verifiers=tuple(keep), bounders=tuple(bounders))


def with_truth(problem: Problem) -> Generated:
    """The problem with its least margin: enumerated where that is possible, else the least that sampling attains."""
    if not problem.graph.piecewise_linear and problem.domain.ball is None:
        margin, point = attained_margin(problem)
        return Generated(problem, margin, point, exact=False)
    try:
        margin, point = true_margin(problem, REGIONS)
    except TooManyRegions:
        return Generated(problem)
    return Generated(problem, margin, point)


def examine(made: Generated, asked: AskedVerifiers, folder: Path | None = None) -> Examination:
    """Write the problem to files, ask everybody, and collect what contradicts."""
    with TemporaryDirectory(prefix="verifolio-fuzz-") as scratch:
        query = write_problem(made.problem, folder or Path(scratch))
        reports, seconds = {}, {}
        for verifier in asked.verifiers:
            started = time.monotonic()
            reports[verifier.name] = ask(query, verifier, asked)
            seconds[verifier.name] = time.monotonic() - started
        witness = _known_witness(query, made, reports)
        findings = [*_verdict_findings(made, reports, witness), *_bound_findings(made.problem, asked)]
    return Examination(
        tuple(findings),
        {n: r.verdict for n, r in reports.items()},
        {n: r.reason for n, r in reports.items() if r.reason},
        seconds,
        frozenset(n for n, r in reports.items() if r.refused),
    )


def ask(query: Query, verifier: Verifier, asked: AskedVerifiers) -> Report:
    """One verifier on one query, in this process, with evidence of its own."""
    # an attack that finds nothing would use all the time there is
    seconds = asked.seconds if verifier.can_prove else min(asked.seconds, ATTACK_SECONDS)
    link = Link(time.monotonic() + seconds, lambda: False, lambda _: None)
    return run_attempt(AttemptTask(query, verifier, seed=asked.seed), link)


def _known_witness(query: Query, made: Generated, reports: dict[str, Report]) -> str | None:
    """Who knows a counterexample that exact arithmetic confirms, or None."""
    for name, report in reports.items():
        if report.witness is not None and confirmed(report.witness):
            return name
    if made.expected is Verdict.SAT and made.point is not None:
        found = judge_counterexample(query, made.point)
        if isinstance(found, Witness) and confirmed(found):
            return "enumeration"
    return None


def _verdict_findings(made: Generated, reports: dict[str, Report], witness: str | None) -> list[Finding]:
    found = []
    for name, report in reports.items():
        if report.verdict is Verdict.ERROR:
            found.append(Finding("error", name, report.reason))
        if (report.verdict is Verdict.UNSAT or report.false_proof) and witness is not None:
            text = f"{name} proves what {witness} refutes with a confirmed counterexample"
            found.append(Finding("unsound proof", name, text))
        exact = report.witness is not None and confirmed(report.witness)
        if report.verdict is Verdict.SAT and exact and made.expected is Verdict.UNSAT:
            text = f"{name} has a confirmed counterexample where enumeration says margin {made.margin:g}"
            found.append(Finding("wrong truth", name, text))
    return found


def _bound_findings(problem: Problem, asked: AskedVerifiers) -> list[Finding]:
    found = []
    for bounder in asked.bounders:
        if bounder.refuses(problem) is not None:
            continue
        try:
            text = _bound_violation(problem, bounder, asked.seed)
        except (VerifolioError, ArithmeticError, ValueError, RuntimeError) as error:
            found.append(Finding("error", bounder.name, f"{type(error).__name__}: {error}"))
            continue
        if text is not None:
            found.append(Finding("unsound bounds", bounder.name, text))
    return found


def _bound_violation(problem: Problem, bounder: Bounder, seed: int) -> str | None:
    """Where a sampled value certainly leaves the bounds, or None."""
    (bounds,) = bounder.bound([problem])
    points = samples(problem, seed)
    values = node_values(problem.graph, points)
    for node in bounds.lower.keys() & bounds.upper.keys():
        low, high = bounds.lower[node], bounds.upper[node]
        near = ((values[node] < low) | (values[node] > high)).any(axis=1)
        for x in points[near]:
            value, radius = enclose(Graph(problem.graph.nodes, node), x)
            outside = np.maximum(low - value, value - high) - radius
            if bool((outside > 0).any()):
                return f"node {node}, neuron {int(outside.argmax())}: outside by {float(outside.max()):.3g}"
    for d, (rows, margins) in enumerate(zip(problem.disjuncts, bounds.margins_of(problem), strict=True)):
        a, b, rhs = dense_rows(rows, problem.graph.input_size, problem.graph.output_size)
        outputs = values[problem.graph.output]
        for x, y in zip(points, outputs, strict=True):
            room = a @ x + b @ y - rhs + 1e-9 * (1 + np.abs(rhs)) - margins
            if len(margins) and bool((room < 0).any()):
                return f"disjunct {d}: a margin is overstated by {float(-room.min()):.3g}"
    return None


def node_values(graph: Graph, points: Array) -> list[Array]:
    """Every node at every point, in plain doubles: (points, size) each."""
    values = [points]
    for node in graph.nodes[1:]:
        parents = [values[p] for p in node.parents]
        if isinstance(node.op, Constant):
            values.append(np.tile(node.op.value, (len(points), 1)))
        elif isinstance(node.op, Relu):
            values.append(np.maximum(parents[0], 0.0))
        elif isinstance(node.op, Step):
            values.append(Table(node.op, torch.float64).value(torch.as_tensor(parents[0])).numpy())
        elif isinstance(node.op, Whole):
            values.append(RULES[node.op.rule](torch.as_tensor(parents[0])).numpy())
        elif isinstance(node.op, Product):
            values.append(parents[0] * parents[1])
        elif isinstance(node.op, Elementwise):
            function = FUNCTIONS[node.op.function].value
            values.append(function(torch.as_tensor(parents[0]), node.op.parameter).numpy())
        else:
            matrices = linear_part(node.op, tuple(p.shape[1] for p in parents))
            total = np.tile(offset(node.op), (len(points), 1))
            values.append(total + sum((m @ p.T).T for m, p in zip(matrices, parents, strict=True)))
    return values


def samples(problem: Problem, seed: int) -> Array:
    """Random points of the domain, corners of its box among them."""
    rng = np.random.default_rng(seed)
    domain = problem.domain
    inner = rng.uniform(domain.lower, domain.upper, (SAMPLES, domain.size))
    corners = np.where(rng.random((SAMPLES, domain.size)) < 0.5, domain.lower, domain.upper)
    points = np.concatenate([inner, corners])
    if domain.rows is not None and domain.rows.count:
        a, _, rhs = dense_rows(domain.rows, domain.size, 0)
        points = points[(points @ a.T <= rhs).all(axis=1)]
    return points


def same(findings: Sequence[Finding], wanted: Finding) -> Finding | None:
    """The finding of the same kind against the same member, if it is still there."""
    return next((f for f in findings if (f.kind, f.subject) == (wanted.kind, wanted.subject)), None)
