"""The conformance kit for estimators: `class TestMine(EstimatorConformance): make = Mine`, and a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem
from verifolio.plugin.estimator import Estimator
from verifolio.plugin.verifier import Context, Verifier
from verifolio.portfolio.tree import Portfolio, single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.verifiers import require


class Clueless(Verifier):
    """Never decides anything."""

    name = "clueless"
    can_prove = True
    can_falsify = True

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.unknown("knows nothing")


class EstimatorConformance:
    """What every command takes for granted of an estimator.

    `make` gives an instance; subclasses write `request`, a small question about networks they put into
    `folder` (`verifolio.testing.Classifier` makes one), and may refine `check` to judge the result.
    """

    make: ClassVar[Callable[[], Estimator]]
    timeout: ClassVar[float] = 20.0

    def request(self, folder: Path) -> Any:
        """The question to ask, an instance of the estimator's `Request`."""
        raise NotImplementedError(f"{type(self).__name__}.request: write one that returns a Request")

    def check(self, result: Any) -> None:
        """Judge the result of `request`; the default has no opinion."""

    def essence(self, result: Any) -> object:
        """What two runs must agree on; override it where effort or the order of answers may differ."""
        return describe(result)

    def facts(self, result: Any) -> object:
        """What must be the same in two runs; how many queries a parallel search asked, say, need not."""
        return describe(result)

    def test_declares_itself(self) -> None:
        made = type(self).make()
        require(isinstance(made.name, str) and made.name != "", "name: expected a word")
        for kind in (type(made).Options, type(made).Request):
            frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
            require(bool(frozen), f"{kind.__name__}: expected @dataclass(frozen=True)")

    def test_answers(self, tmp_path: Path) -> None:
        """A typed, frozen result; progress that never passes its total."""
        seen: list[tuple[int, int, str]] = []
        result = self.ask(tmp_path, None, lambda *step: seen.append(step))
        require(is_dataclass(result), f"run: expected a frozen dataclass, got {type(result).__name__}")
        late = [step for step in seen if step[1] and step[0] > step[1]]
        require(not late, f"progress: {late[:1]} is past its total")
        self.check(result)

    def test_same_question_same_answer(self, tmp_path: Path) -> None:
        first, second = (self.essence(self.ask(tmp_path, None)) for _ in range(2))
        require(first == second, f"run: two runs gave different results, {first} and {second}")

    def test_lives_with_undecided_answers(self, tmp_path: Path) -> None:
        """Where no query is decided, the estimator still ends, with a result that claims nothing."""
        self.ask(tmp_path, single_verifier(Clueless()))

    def ask(
        self,
        folder: Path,
        portfolio: Portfolio | None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> Any:
        """Run the estimator on the request, in this process."""
        made = type(self).make()
        missing = made.available()
        if missing is not None:
            pytest.skip(f"{made.name} is unavailable: {missing}")
        with Oracle(portfolio, "inline", timeout=self.timeout) as oracle:
            more = {} if progress is None else {"progress": progress}
            return made.run(self.request(folder), oracle, **more)


def describe(value: object) -> str:
    """A result without what differs from run to run: seconds, and the names of folders."""
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return repr(value)
    kept = (f for f in fields if "second" not in f and "time" not in f)
    return ", ".join(f"{f}={describe(getattr(value, f))}" for f in kept)
