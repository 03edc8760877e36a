"""The conformance kit for verifiers: `class TestMine(VerifierConformance): make = Mine`."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.joint import Joint
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context, Verifier
from verifolio.run.budget import Budget
from verifolio.testing.corpus import EXAMPLES, Example, at_least, random_examples
from verifolio.testing.networks import bells, plus_minus, tangled
from verifolio.testing.trial import TOLERANCE, Trial, attempt, miss, point_key, sample, untrue
from verifolio.vnnlib import make_rows

SQUARE = Domain(np.zeros(2), np.ones(2))
UNDUE_SECONDS = 1.0  # for problems that the verifier does not have to decide
ODD_SECONDS = 3.0  # for problems whose answer does not matter, only that there is one


def require(condition: bool, message: str) -> None:
    """Fail the test with a message for the plugin's author."""
    if not condition:
        pytest.fail(message, pytrace=False)


RADII = (0.1, 0.4, 0.6, 1.0, 2.0)  # of the boxes that batches are made of


def box_problem(radius: float) -> Problem:
    """Can relu(x_0) + relu(x_1) reach 1 in the box of this radius around the origin?"""
    return Problem(plus_minus(), Domain(-np.full(2, radius), np.full(2, radius)), (at_least(2, 1.0),))


class VerifierConformance:
    """Everything core takes for granted of a verifier.

    Set `make` to the class (or a function that gives an instance). `complete` also demands a decision on
    every problem that the verifier does not refuse; `seconds` is the time for each; `patience` is how long
    after a deadline or a cancellation it may still work; a verifier that is random on purpose in spite of
    its seed says `deterministic = False`.
    """

    make: ClassVar[Callable[[], Verifier]]
    complete: ClassVar[bool] = False
    deterministic: ClassVar[bool] = True
    seconds: ClassVar[float] = 20.0
    patience: ClassVar[float] = 5.0

    @pytest.fixture
    def verifier(self) -> Verifier:
        """A fresh instance; the test is skipped where the verifier says it is unavailable."""
        made = type(self).make()
        missing = made.available()
        if missing is not None:
            pytest.skip(f"{made.name} is unavailable: {missing}")
        return made

    def test_declares_itself(self, verifier: Verifier) -> None:
        cls = type(verifier)
        require(isinstance(cls.name, str) and cls.name.strip() == cls.name != "", "name: expected a word")
        require(cls.can_prove or cls.can_falsify, "expected can_prove or can_falsify, got neither")
        require(is_dataclass(cls.Options), "Options: expected a frozen dataclass")
        frozen = cls.Options.__dataclass_params__.frozen if is_dataclass(cls.Options) else False  # type: ignore[attr-defined]
        require(bool(frozen), "Options: expected @dataclass(frozen=True)")
        defaults = cls.Options()
        require(
            all(hasattr(defaults, f.name) for f in fields(defaults)), "Options: every field needs a default"
        )
        require(len(pickle.dumps(verifier)) > 0, "expected an instance that can be sent to a worker")

    @pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
    def test_known_answer(self, verifier: Verifier, example: Example, tmp_path: Path) -> None:
        trial = self.attempt(verifier, example, tmp_path)
        self.check(verifier, example, trial)

    def test_random_networks(self, verifier: Verifier, tmp_path: Path) -> None:
        for example in random_examples():
            self.check(verifier, example, self.attempt(verifier, example, tmp_path))

    def test_shared_evidence_is_true(self, verifier: Verifier, tmp_path: Path) -> None:
        """Bounds contain what the network computes, and refuted sets hold no counterexample."""
        for example in (*EXAMPLES[4:11], *random_examples(4)):
            query = example.query(tmp_path)
            problems = {p.graph.sha256: p for p in query.problems}
            trial = self.attempt(verifier, example, tmp_path)
            problems |= {p.graph.sha256: p for p, _ in trial.claims}
            for bounds in trial.evidence.bounds:
                problem = problems.get(bounds.graph)
                if problem is not None:
                    wrong = untrue(bounds, problem.with_domain(bounds.domain), sample(bounds.domain))
                    require(
                        not wrong, f"{example.name}: shared bounds of {bounds.source or 'no source'}: {wrong}"
                    )
            for candidate in trial.evidence.candidates:
                require(
                    bool(np.isfinite(candidate).all()), f"{example.name}: a shared candidate is not finite"
                )

    @pytest.mark.parametrize("kind", ["unbounded", "half-bounded", "empty", "smooth", "ball", "no rows"])
    def test_odd_problem_is_refused_or_answered(self, verifier: Verifier, kind: str) -> None:
        """A refusal is one line of text; whoever does not refuse must not be wrong."""
        problem, truth = odd_problem(kind)
        reason = verifier.refuses(problem)
        require(reason == verifier.refuses(problem), "refuses: expected the same reason twice")
        if reason is not None:
            good = isinstance(reason, str) and reason.strip() and "\n" not in reason
            require(bool(good), f"refuses: expected a reason in one line, got {reason!r}")
            return
        outcome = verifier.run(problem, self.context(Budget(ODD_SECONDS), problem))
        wrong = {outcome.verdict, truth} == {Verdict.SAT, Verdict.UNSAT}
        require(not wrong, f"{kind}: expected {truth}, got {outcome.verdict}")

    def test_stops_at_the_deadline(self, verifier: Verifier) -> None:
        self.hurry(verifier, Budget(0.5), 0.5)

    def test_stops_when_cancelled(self, verifier: Verifier) -> None:
        calls: list[float] = []

        def stop() -> bool:
            calls.append(time.monotonic())
            return calls[-1] > calls[0] + 0.5

        self.hurry(verifier, Budget(stop=stop), 0.5)

    def test_does_not_start_when_cancelled(self, verifier: Verifier) -> None:
        self.hurry(verifier, Budget(stop=lambda: True), 0.0)

    def test_gives_up_when_nothing_replays(self, verifier: Verifier) -> None:
        """A search whose points are all rejected ends, and proves nothing where there is no proof."""
        problem = Problem(plus_minus(), SQUARE, (at_least(2, -1.0),))
        if verifier.refuses(problem) is not None:
            pytest.skip("refuses a plain box problem")
        started = time.monotonic()
        outcome = verifier.run(problem, self.context(Budget(3.0)))
        require(
            outcome.verdict is not Verdict.UNSAT, "expected no proof where every point is a counterexample"
        )
        require(time.monotonic() - started < 3.0 + self.patience, "expected an end soon after the deadline")

    def test_same_seed_same_answer(self, verifier: Verifier, tmp_path: Path) -> None:
        if not self.deterministic:
            pytest.skip("declares itself random")
        for example in (e for e in EXAMPLES if e.name in ("corner", "peaks", "both-sat", "above-the-peaks")):
            first = self.attempt(type(self).make(), example, tmp_path)
            second = self.attempt(type(self).make(), example, tmp_path)
            if not (first.report.verdict.decided and second.report.verdict.decided):
                continue  # how far an undecided search came depends on the clock
            same = first.report.verdict is second.report.verdict and _points(first) == _points(second)
            require(same, f"{example.name}: two runs with seed 0 gave different answers")

    def test_several_problems_at_once(self, verifier: Verifier) -> None:
        """One outcome per problem, in order, up to the first counterexample."""
        rows = [at_least(2, 10.0), at_least(2, 0.5), at_least(2, 12.0)]
        problems = [Problem(plus_minus(), SQUARE, (r,)) for r in rows]
        if any(verifier.refuses(p) is not None for p in problems):
            pytest.skip("refuses a plain box problem")
        outcomes = verifier.run_many(problems, self.context(Budget(ODD_SECONDS), *problems))
        require(1 <= len(outcomes) <= 3, f"run_many: expected up to 3 outcomes, got {len(outcomes)}")
        for k, outcome in enumerate(outcomes):
            require(outcome.verdict is not Verdict.UNSAT or k != 1, "run_many: a proof where there is none")
            # a point that solves another problem of the query is as welcome
            good = outcome.point is not None and min(miss(p, outcome.point) for p in problems) <= TOLERANCE
            require(outcome.verdict is not Verdict.SAT or good, "run_many: SAT without a counterexample")
        if len(outcomes) < 3:
            require(outcomes[-1].point is not None, "run_many: it stopped early without a counterexample")

    @pytest.mark.parametrize(("norm", "truth"), [(np.inf, 0.5), (1.0, 1.0)])
    def test_closest_counterexample(self, verifier: Verifier, norm: float, truth: float) -> None:
        """relu(x_0) + relu(x_1) >= 1 is 1/2 away from the origin in the maximum norm, 1 in the sum norm."""
        if not verifier.can_minimise:
            pytest.skip("does not minimise")
        domain = Domain(-np.ones(2) * 2, np.ones(2) * 2)
        problem = Problem(plus_minus(), domain, (at_least(2, 1.0),))
        outcome = verifier.minimise(
            problem, Ball(np.zeros(2), 2.0, norm), self.context(Budget(self.seconds), problem)
        )
        bound = outcome.distance or 0.0
        require(bound <= truth + 1e-9, f"distance: expected a lower bound of {truth}, got {bound}")
        if outcome.point is not None:
            found = Ball(np.zeros(2), 2.0, norm).distance(outcome.point)
            require(found >= truth - 1e-5, f"point: it is {found} away, but nothing is closer than {truth}")
            require(miss(problem, outcome.point) <= TOLERANCE, "point: not a counterexample")

    def test_bounds_of_many_are_below_the_truth(self, verifier: Verifier) -> None:
        """relu(x_0) + relu(x_1) >= 1 misses the boxes of radius r by 1 - 2 r; in larger ones it is reached."""
        if not verifier.can_bound_many:
            pytest.skip("does not bound many problems at once")
        problems = [box_problem(r) for r in RADII]
        bounds = verifier.bound_many(problems, BatchContext(Budget(self.seconds)))
        require(len(bounds) == len(RADII), f"bound_many: expected {len(RADII)} bounds, got {len(bounds)}")
        for radius, problem, found in zip(RADII, problems, bounds, strict=True):
            margin, truth = found.least_margin(problem), 1 - 2 * radius
            require(margin <= truth + 1e-9, f"bound_many: expected at most {truth}, got {margin}")

    def test_attacks_on_many_offer_points_of_the_right_question(self, verifier: Verifier) -> None:
        """Boxes below a radius of 1/2 have no counterexample, and a point of one box is mostly outside the others."""
        if not verifier.can_attack_many:
            pytest.skip("does not attack many questions at once")
        questions, found = [Joint((box_problem(r),)) for r in RADII], set[int]()

        def offer(k: int, x: NDArray[np.float64]) -> bool:
            good = miss(questions[k].parts[0], x) <= TOLERANCE
            found.update({k} if good else ())
            return good

        verifier.attack_many(questions, BatchContext(Budget(self.seconds), offer=offer))
        most = {k for k, r in enumerate(RADII) if r >= 0.5}
        require(found <= most, f"attack_many: expected points of {most}, got {found}")

    # what follows is for subclasses

    def attempt(self, verifier: Verifier, example: Example, folder: Path) -> Trial:
        """The verifier on one query, as core runs it; not for long where no decision is due."""
        seconds = self.seconds if self.due(verifier, example) else min(self.seconds, UNDUE_SECONDS)
        return attempt(verifier, example.query(folder), seconds)

    def due(self, verifier: Verifier, example: Example) -> bool:
        """Whether the verifier has to decide the example unless it refuses."""
        able = verifier.can_falsify if example.expected is Verdict.SAT else verifier.can_prove
        if example.expected is Verdict.UNKNOWN or not able:
            return False
        return example.easy or (self.complete and not example.sharp)

    def context(self, budget: Budget, *problems: Problem) -> Context:
        """What core would hand over; a point is accepted if it solves one of the problems."""

        def check(x: NDArray[np.float64]) -> bool:
            return any(miss(p, x) <= 0 for p in problems)

        return Context(budget, Evidence(), current_plugins().all_bounders(), check=check)

    def check(self, verifier: Verifier, example: Example, trial: Trial) -> None:
        """No wrong answer, no false claim, no crash; and a decision where one is due."""
        report, where = trial.report, f"{verifier.name} on {example.name}"
        require(report.verdict is not Verdict.ERROR, f"{where}: {report.reason}")
        require(not report.false_proof, f"{where}: expected {example.expected}, got unsat")
        truths = {report.verdict, example.expected}
        require(
            truths != {Verdict.SAT, Verdict.UNSAT},
            f"{where}: expected {example.expected}, got {report.verdict}",
        )
        for problem, outcome in trial.claims:
            self.check_claim(verifier, where, problem, outcome, trial)
        due = self.due(verifier, example) and not report.refused
        said = f"{report.verdict} ({report.reason})"
        require(
            not due or report.verdict is example.expected, f"{where}: expected {example.expected}, got {said}"
        )

    def check_claim(
        self, verifier: Verifier, where: str, problem: Problem, outcome: Outcome, trial: Trial
    ) -> None:
        """A claim of SAT has a point that fits, a claim of UNSAT comes from a prover."""
        require(isinstance(outcome, Outcome), f"{where}: run must return an Outcome")
        if outcome.verdict is Verdict.SAT:
            require(outcome.point is not None, f"{where}: said SAT without a point")
        if outcome.verdict is Verdict.SAT and outcome.point is not None:
            accepted = point_key(outcome.point) in trial.replayed
            gap = 0.0 if accepted else miss(problem, outcome.point)
            require(gap <= TOLERANCE, f"{where}: the point it claims misses the condition by {gap:.3g}")
        if outcome.verdict is Verdict.UNSAT:
            require(
                verifier.can_prove or problem.domain.empty, f"{where}: said UNSAT, but can_prove is False"
            )
        if not outcome.verdict.decided:
            require(bool(outcome.reason), f"{where}: said {outcome.verdict} without a reason")

    def hurry(self, verifier: Verifier, budget: Budget, seconds: float) -> None:
        """A problem too large to decide, on a budget that ends after `seconds`."""
        graph = tangled()
        rows = make_rows([({graph.input_size: -1.0}, -6.0), ({graph.input_size + 1: 1.0}, -6.0)])
        problem = Problem(graph, Domain(-np.ones(graph.input_size), np.ones(graph.input_size)), (rows,))
        if verifier.refuses(problem) is not None:
            pytest.skip("refuses the problem")
        verifier.run(problem, self.context(Budget(0.0)))  # what is imported on first use is not counted
        budget = replace(budget, started=time.monotonic())
        started = time.monotonic()
        verifier.run(problem, self.context(budget))
        late = time.monotonic() - started - seconds
        require(
            late < self.patience, f"expected an end within {self.patience} s of the stop, got {late:.1f} s"
        )


def _points(trial: Trial) -> list[Any]:
    return [None if o.point is None else np.asarray(o.point).tolist() for _, o in trial.claims]


def odd_problem(kind: str) -> tuple[Problem, Verdict]:
    """A problem that few verifiers like, and its truth."""
    infinite = np.array([np.inf, np.inf])
    never = at_least(2, 10.0)
    odd = {
        "unbounded": (Problem(plus_minus(), Domain(-infinite, infinite), (never,)), Verdict.SAT),
        "half-bounded": (Problem(plus_minus(), Domain(-infinite, np.ones(2)), (never,)), Verdict.UNSAT),
        "empty": (Problem(plus_minus(), Domain(np.ones(2), np.zeros(2)), (at_least(2, 0.0),)), Verdict.UNSAT),
        "smooth": (Problem(bells(), SQUARE, (at_least(2, 3.0),)), Verdict.UNSAT),
        "ball": (
            Problem(plus_minus(), Domain(*_pair(2.0), ball=Ball(np.zeros(2), 1.0, 2.0)), (at_least(2, 2.0),)),
            Verdict.UNSAT,
        ),
        "no rows": (Problem(plus_minus(), SQUARE, (make_rows([]),)), Verdict.SAT),
    }
    return odd[kind]


def _pair(size: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return -np.ones(2) * size, np.ones(2) * size
