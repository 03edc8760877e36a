"""The verifier `crown`: complete by branch and bound, on inputs or on neurons, whichever suits the problem."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem, finite, free_inputs
from verifolio.plugin.verifier import Context, Verifier
from verifolio.reductions.reduction import join_rows

FEW_INPUTS = 12
SOME_INPUTS = 64
BRIEFLY = 10.0  # seconds
Search = Callable[[Problem, Context], Outcome]


@dataclass(frozen=True)
class CrownOptions:
    """`split`: what to branch on; `none` is the incomplete mode. `batch`: boxes or domains bounded together.

    `certificate`: a file for what proves the end of a search on neurons, see `certificate.check`. `trace`: a folder
    for the trees of searches that proved something, of which certificates are made.
    """

    split: Literal["auto", "input", "neuron", "none"] = "auto"
    batch: int = 0
    iterations: int = 12
    steps: int = 10
    memory: int = 1 << 30
    certificate: str = ""
    trace: str = ""


class Searcher(Verifier):
    """A verifier that tries one search after another until one decides."""

    can_prove = True
    can_falsify = True

    def refuses(self, problem: Problem) -> str | None:
        if not finite(problem.domain):
            return "an input has no finite bounds"
        return None

    def run(self, problem: Problem, context: Context) -> Outcome:
        if problem.domain.empty or not problem.disjuncts:
            return Outcome.proved()
        problem = absorb_input_rows(problem)
        if any(rows.count == 0 for rows in problem.disjuncts):
            return _anywhere(problem, context)
        from verifolio.run.threads import one_thread

        outcome = Outcome.unknown("nothing was tried")
        with one_thread():
            for search in self.plan(problem, context):
                outcome = search(problem, context)
                if outcome.verdict.decided or context.budget.expired():
                    break
        return outcome

    @abstractmethod
    def plan(self, problem: Problem, context: Context) -> list[Search]:
        """What to try, in order."""


class Crown(Searcher):
    """Bounds, then branch and bound on inputs or on phases; smooth functions are bounded, not branched on."""

    name = "crown"
    leaves_trace = True
    Options: ClassVar[type] = CrownOptions
    options: CrownOptions

    def plan(self, problem: Problem, context: Context) -> list[Search]:
        """What to branch on, in order. The box kernel is so quick that it goes first wherever it applies."""
        from verifolio.plugins.crown.boxes import kernel_applies

        if self.options.split == "input":
            return [self._on_inputs]
        if self.options.split in ("neuron", "none"):
            return [self._on_neurons]
        wide = free_inputs(problem.domain.lower, problem.domain.upper)
        if wide <= FEW_INPUTS:  # what hinges on rounding in boxes, phases and linear programs decide
            return [self._on_inputs, self._on_neurons]
        if kernel_applies(problem):
            return [self._on_inputs_briefly, self._on_neurons]
        if not problem.graph.piecewise_linear and wide <= SOME_INPUTS:
            return [self._on_neurons, self._on_inputs]
        return [self._on_neurons]

    def _on_neurons(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.plugins.crown.neuron_split import NeuronSplit

        return NeuronSplit(problem, context, self.options).run()

    def _on_inputs_briefly(self, problem: Problem, context: Context) -> Outcome:
        share = context.budget.share(min(BRIEFLY, context.budget.remaining / 5))
        return self._on_inputs(problem, replace(context, budget=share))

    def _on_inputs(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.plugins.crown.boxes import KernelEngine, make_engine
        from verifolio.plugins.crown.input_split import InputSplit

        engine = make_engine(problem, context.budget, context.device)
        widest = max(node.op.size for node in problem.graph.nodes)
        tensors = int(np.clip((1 << 17) // widest, 4, 64))
        batch = self.options.batch or (2048 if isinstance(engine, KernelEngine) else tensors)
        return InputSplit(problem, engine, context, batch, self.options.trace).run()


def absorb_input_rows(problem: Problem) -> Problem:
    """Linear input rows become part of every disjunct: a counterexample satisfies both."""
    rows = problem.domain.rows
    if rows is None or not rows.count:
        return problem
    joined = tuple(join_rows(d, rows) for d in problem.disjuncts)
    return replace(problem, domain=replace(problem.domain, rows=None), disjuncts=joined)


def _anywhere(problem: Problem, context: Context) -> Outcome:
    """A disjunct without rows holds at every input: any legal point is a counterexample."""
    centre = (problem.domain.lower + problem.domain.upper) / 2
    if problem.domain.ball is not None:
        centre = problem.domain.ball.centre
    if context.check(centre):
        return Outcome.found(centre)
    return Outcome.unknown("the condition holds everywhere, but the centre of the input set does not replay")
