"""Evidence is only offered where it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np

from verifolio.encode.known import known_bounds
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Assumptions, Bounds, Evidence, Margins
from verifolio.plugin.verifier import Context
from verifolio.run import Link
from verifolio.run.budget import Budget
from verifolio.solve.sharing import SharedEvidence
from verifolio.testing.samples import sum_graph
from verifolio.vnnlib import make_rows

GRAPH = sum_graph()
ROW = make_rows([({2: -1.0}, -1.5)])
OTHER_ROW = make_rows([({2: -1.0}, -1.0)])


def box(low: float, high: float, ball: Ball | None = None) -> Domain:
    return Domain(np.full(2, low), np.full(2, high), None, ball)


def problem(domain: Domain, row: object = ROW) -> Problem:
    return Problem(GRAPH, domain, (row,))  # type: ignore[arg-type]


def bounds(
    domain: Domain,
    low: float,
    high: float,
    assumptions: Assumptions | None = None,
    margins: Margins | None = None,
) -> Bounds:
    lower, upper = {1: np.full(2, low)}, {1: np.full(2, high)}
    return Bounds(GRAPH.sha256, domain, lower, upper, margins, assumptions or Assumptions())


def test_bounds_serve_smaller_domains_only() -> None:
    evidence = Evidence()
    evidence.add_bounds(bounds(box(0, 1), 0, 1))
    assert evidence.bounds_for(problem(box(0.2, 0.8))) is not None
    assert evidence.bounds_for(problem(box(0, 1))) is not None
    assert evidence.bounds_for(problem(box(0, 1.1))) is None


def test_bounds_that_assume_a_condition_serve_only_that_condition() -> None:
    evidence = Evidence()
    asked = problem(box(0, 1))
    evidence.add_bounds(bounds(box(0, 1), 0.5, 1, Assumptions(asked.condition_sha256)))
    assert evidence.bounds_for(asked) is not None
    assert evidence.bounds_for(problem(box(0, 1), OTHER_ROW)) is None


def test_bounds_under_splits_serve_nobody_without_them() -> None:
    evidence = Evidence()
    evidence.add_bounds(bounds(box(0, 1), 0, 1, Assumptions(splits=frozenset({(1, 0, 1)}))))
    assert evidence.bounds_for(problem(box(0, 1))) is None


def test_bounds_of_another_graph_serve_nobody() -> None:
    evidence = Evidence()
    evidence.add_bounds(bounds(box(0, 1), 0, 1))
    other = Problem(sum_graph(3), Domain(np.zeros(3), np.ones(3)), (make_rows([({3: 1.0}, 0.0)]),))
    assert evidence.bounds_for(other) is None


def test_a_ball_is_inside_a_larger_ball_only() -> None:
    evidence = Evidence()
    large, small = Ball(np.zeros(2), 1.0, 2.0), Ball(np.zeros(2), 0.5, 2.0)
    evidence.add_bounds(bounds(box(-1, 1, small), 0, 1))
    assert evidence.bounds_for(problem(box(-1, 1, small))) is not None
    assert evidence.bounds_for(problem(box(-1, 1, large))) is None
    assert evidence.bounds_for(problem(box(-1, 1))) is None


def test_the_tightest_of_all_that_apply_is_offered() -> None:
    evidence = Evidence()
    evidence.add_bounds(bounds(box(0, 1), 0, 1))
    evidence.add_bounds(bounds(box(0, 2), -1, 0.9))
    found = evidence.bounds_for(problem(box(0, 1)))
    assert found is not None
    assert found.lower[1].tolist() == [0, 0]
    assert found.upper[1].tolist() == [0.9, 0.9]


def test_a_refuted_set_covers_its_subsets_for_that_condition() -> None:
    evidence = Evidence()
    evidence.add_refuted(problem(box(0, 1)), box(0, 1))
    assert evidence.refutes(problem(box(0.1, 0.9)))
    assert not evidence.refutes(problem(box(0.1, 1.1)))
    assert not evidence.refutes(problem(box(0.1, 0.9), OTHER_ROW))


def test_margins_serve_only_the_condition_they_are_about() -> None:
    asked, other = problem(box(0, 1)), problem(box(0, 1), OTHER_ROW)
    evidence = Evidence()
    evidence.add_bounds(bounds(box(0, 1), 0, 1, margins=Margins.of(asked, [np.array([0.5])])))
    found = evidence.bounds_for(other)
    assert found is not None
    assert found.least_margin(other) == -np.inf
    assert found.margins_of(other)[0].tolist() == [-np.inf]
    mine = evidence.bounds_for(asked)
    assert mine is not None
    assert mine.least_margin(asked) == 0.5
    assert mine.least_margin(problem(box(0, 1.5))) == -np.inf


def test_merged_bounds_keep_the_margins_of_their_own_condition() -> None:
    asked, other = problem(box(0, 1)), problem(box(0, 1), OTHER_ROW)
    loose = bounds(box(0, 1), 0, 1, margins=Margins.of(asked, [np.array([0.25])]))
    tight = bounds(box(0, 2), 0, 1, margins=Margins.of(asked, [np.array([0.5])]))
    strange = bounds(box(0, 1), 0, 1, margins=Margins.of(other, [np.array([9.0])]))
    assert loose.intersect(tight).least_margin(asked) == 0.5
    assert loose.intersect(strange).least_margin(asked) == 0.25
    assert bounds(box(0, 1), 0, 1).intersect(strange).least_margin(asked) == -np.inf


def test_bounds_of_a_smaller_domain_do_not_tighten_a_larger_one() -> None:
    large, small = bounds(box(0, 2), 0, 2), bounds(box(0, 1), 0, 1)
    assert large.intersect(small).upper[1].tolist() == [2, 2]
    assert small.intersect(large).upper[1].tolist() == [1, 1]


def test_what_is_not_a_number_bounds_nothing() -> None:
    spoilt = bounds(box(0, 1), np.nan, np.nan)
    assert spoilt.lower[1].tolist() == [-np.inf] * 2
    assert spoilt.upper[1].tolist() == [np.inf] * 2
    assert spoilt.intersect(bounds(box(0, 1), 0, 1)).upper[1].tolist() == [1, 1]
    two = Problem(GRAPH, box(0, 1), (ROW, OTHER_ROW))
    for values in ([np.nan], [1.0]), ([1.0], [np.nan]):
        said = Margins.of(two, [np.array(v) for v in values])
        assert bounds(box(0, 1), 0, 1, margins=said).least_margin(two) == -np.inf


def test_bounds_of_other_tools_stay_out() -> None:
    """Nor do they come in by being merged with bounds of ours."""
    theirs = replace(bounds(box(0, 1), 0.4, 0.5), foreign=True)
    evidence = Evidence()
    evidence.add_bounds(theirs)
    assert evidence.bounds == []
    assert bounds(box(0, 1), 0, 1).intersect(theirs).foreign
    evidence.add_bounds(bounds(box(0, 1), 0, 1).intersect(theirs))
    assert evidence.bounds == []


class Foreign(Bounder):
    """Another tool's bounder, which forgets to say so of its bounds."""

    name = "foreign"
    foreign = True

    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        return [bounds(p.domain, 0, 1) for p in problems]


def test_whoever_names_another_tool_gets_its_bounds_and_nobody_else() -> None:
    asked, context = problem(box(0, 1)), Context()
    found = known_bounds(asked, context, Foreign())
    assert found is not None and found.foreign
    assert context.evidence.bounds == []


def test_who_cannot_prove_leaves_no_bounds_and_no_refuted_sets() -> None:
    sent: list[object] = []
    link = cast(Link, SimpleNamespace(send=sent.append))
    for proves in (False, True):
        evidence = SharedEvidence(Evidence(), link)
        evidence.proves = proves
        evidence.add_bounds(bounds(box(0, 1), 0, 1))
        evidence.add_refuted(problem(box(0, 1)), box(0, 1))
        evidence.add_candidate(np.zeros(2))
        evidence.close()
        assert (bool(evidence.bounds), bool(evidence.refuted)) == (proves, proves)
        assert len(evidence.candidates) == 1


def test_what_the_report_will_say_is_not_sent_before() -> None:
    """That the only problem is refuted; a part of it, and any other problem, is."""
    sent: list[object] = []
    link = cast(Link, SimpleNamespace(send=sent.append))
    asked = problem(box(0, 1))
    for about, domain, messages in (
        (asked, asked.domain, 0),
        (asked, box(0, 0.5), 1),
        (problem(box(0, 1)), asked.domain, 1),
    ):
        sent.clear()
        evidence = SharedEvidence(Evidence(), link)
        evidence.only = asked
        evidence.add_refuted(about, domain)
        evidence.close()
        assert len(sent) == messages
        assert len(evidence.refuted) == 1


def test_bounds_of_two_conditions_do_not_meet() -> None:
    """What one condition implies and what another does need not hold together anywhere."""
    domain = box(0, 1)
    mine, others = (problem(domain, row).condition_sha256 for row in (ROW, OTHER_ROW))
    one, other = bounds(domain, 0, 1, Assumptions(mine)), bounds(domain, 0.5, 0.75, Assumptions(others))
    assert one.intersect(other) is one
    plain = bounds(domain, 0.25, 2)
    met = one.intersect(plain)
    assert (met.lower[1].tolist(), met.assumptions.condition) == ([0.25, 0.25], mine)
    assert plain.intersect(other).assumptions.condition == others
