"""Many regions of one query: most are decided in batches of bounds, the others one by one, with the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from verifolio.graph import Graph
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.inputs.regions import proved_at_once
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.check import checker
from verifolio.testing.networks import dense_graph, gated
from verifolio.testing.realistic import NETWORKS
from verifolio.testing.reference import Reference
from verifolio.testing.reference.attained import attained
from verifolio.testing.trial import evaluate as values_at
from verifolio.testing.trial import sample
from verifolio.vnnlib import make_rows

COUNT = 300  # more than one batch


def index(seed: int = 0) -> Graph:
    """One input, 32 neurons twice, one output: the shape of a learned index."""
    rng = np.random.default_rng(seed)
    sizes = ((32, 1), (32, 32), (1, 32))
    return dense_graph([(rng.normal(size=s) * np.sqrt(2 / s[1]), rng.normal(size=s[0]) * 0.3) for s in sizes])


def regions(graph: Graph, slack: float) -> list[Problem]:
    """Small intervals, on which the output stays within `slack` of what two ends and the middle give."""
    found = []
    for low in np.linspace(-2, 2, COUNT):
        domain = Domain(np.array([low]), np.array([low + 0.01]))
        ends = [-float(attained(graph, domain, np.array([[s]]))[0]) for s in (-1.0, 1.0)]
        most, least = ends[0] + slack, -ends[1] - slack
        found.append(
            Problem(graph, domain, (make_rows([({1: 1.0}, least)]), make_rows([({1: -1.0}, -most)])))
        )
    return found


class Counted(Crown):
    """Counts the problems that are decided one by one."""

    def __init__(self, options: CrownOptions | None = None) -> None:
        super().__init__(options)
        self.single = 0

    def run(self, problem: Problem, context: Context) -> Outcome:
        self.single += 1
        return super().run(problem, context)


def test_most_regions_are_decided_in_batches() -> None:
    graph = index()
    crown, problems = Counted(), regions(graph, 0.01)
    outcomes = crown.run_many(problems, Context(Budget(20)))
    assert len(outcomes) == COUNT and all(o.verdict is Verdict.UNSAT for o in outcomes)
    assert crown.single < COUNT / 10


def test_what_a_batch_proves_is_what_the_reference_proves() -> None:
    """Conditions so close that bounds prove some of them and not others."""
    graph = index(1)
    reference, problems = Reference(graph), regions(graph, 1e-4)
    proved = proved_at_once(problems, Budget(20))
    assert 0 < sum(proved) < COUNT
    for problem, done in zip(problems, proved, strict=True):
        known = reference.crown(problem.domain, early=True)
        rows = {graph.output: np.array([[1.0], [-1.0]])}
        bound = reference.lower(problem.domain, known.intervals, known.lines, rows)
        gap = bound.high - np.array([float(r.rhs[0]) for r in problem.disjuncts])
        assert not done or bool((gap > -1e-9).all())


def test_a_counterexample_ends_it_and_is_the_last() -> None:
    graph = index(2)
    problems = regions(graph, 0.01)
    value = float(attained(graph, problems[150].domain, np.array([[1.0]]))[0])
    wrong = Problem(graph, problems[150].domain, (make_rows([({1: 1.0}, value + 0.001)]),))
    problems[150] = wrong
    outcomes = Counted().run_many(problems, Context(Budget(20), check=checker(wrong)))
    assert len(outcomes) == 151 and outcomes[-1].verdict is Verdict.SAT
    assert all(o.verdict is Verdict.UNSAT for o in outcomes[:-1])


def test_other_graphs_and_certificates_are_left_to_the_search(tmp_path: object) -> None:
    graph = index(3)
    crown, problems = Counted(CrownOptions(trace=str(tmp_path))), regions(graph, 0.5)[:10]
    crown.run_many(problems, Context(Budget(20)))
    assert crown.single == len(problems)
    for inputs in (3, 17):  # of graphs that are no chains, those of which many inputs vary
        graph = gated(3) if inputs == 3 else NETWORKS["gate"](np.random.default_rng(0))
        n = graph.input_size
        box = Domain(np.zeros(n), np.where(np.arange(n) < inputs, 0.01, 0.0))
        many = [Problem(graph, box, (make_rows([({n: 1.0}, -1e6)]),))] * 10
        assert all(proved_at_once(many, Budget(5))) == (inputs == 3)
    here = make_rows([({3: 1.0}, -1e6)]), make_rows([])  # a disjunct without rows holds everywhere
    assert not any(proved_at_once([Problem(gated(3), Domain(np.zeros(3), np.ones(3)), here)] * 9, Budget(2)))


@pytest.mark.parametrize("rows", [(), ((),)])
def test_conditions_without_rows_are_not_bounded(rows: tuple[tuple[object, ...], ...]) -> None:
    graph = index(4)
    none = Problem(graph, Domain(np.zeros(1), np.ones(1)), tuple(make_rows([]) for _ in rows))
    assert not any(proved_at_once([none] * 9, Budget(5)))


def few_vary(graph: Graph, seed: int, radius: float) -> list[Domain]:
    """Twelve regions: two inputs vary in each, three in all, and the others are fixed, at other values each time."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(12):
        centre, reach = rng.uniform(0.2, 1, graph.input_size), np.zeros(graph.input_size)
        reach[[0, 1 + k % 2]] = radius
        found.append(Domain(centre - reach, centre + reach))
    return found


RADIUS = {"gate": 0.1, "sigmoid_deep": 0.5, "conv": 0.5, "residual": 0.1, "quadratic": 0.05}


@pytest.mark.parametrize("name", RADIUS)
def test_boxes_of_many_regions(name: str) -> None:
    """At a value that is attained no region is proved; well below, where only halving helps, every one is."""
    graph = NETWORKS[name](np.random.default_rng(5))
    n, m = graph.input_size, graph.output_size
    outputs = np.zeros((1, m))
    outputs[0, 0] = 1
    domains = few_vary(graph, 5, RADIUS[name])
    least = [float(attained(graph, domain, outputs)[0]) for domain in domains]
    never = make_rows([({n: 1.0}, -1e6)])

    def ask(low: float, domain: Domain) -> Problem:
        return Problem(graph, domain, (never, make_rows([({n: 1.0}, low), ({0: 1.0}, 9.0)])))

    at = [ask(low, domain) for low, domain in zip(least, domains, strict=True)]
    assert not any(proved_at_once(at, Budget(2)))
    width = [float(np.ptp(values_at(graph, sample(d, 50))[graph.output][:, 0])) for d in domains]
    below = [ask(low - 0.1 * w, d) for low, w, d in zip(least, width, domains, strict=True)]
    assert all(proved_at_once(below, Budget()))
    assert not any(proved_at_once(below, Budget(0.0)))
