"""The verifier `crown`: complete by branch and bound, on inputs or on neurons, whichever suits the problem."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem, finite, free_inputs
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.crown.options import CrownOptions
from verifolio.reductions.reduction import join_rows

if TYPE_CHECKING:
    from verifolio.plugins.crown.search.cells import Switch

# Where to branch on inputs first: halving each of n inputs once makes 2^n boxes. 4096 of them take the
# kernel well below a second. Networks without phases have nothing else to branch on, so they may have more. Choices.
FEW_INPUTS = 12
SOME_INPUTS = 64  # see above
# Networks too large for the kernel: of a convolutional one with 16 inputs half of the neurons are stable after two
# or three halvings. Forward bounds cost two passes per input, see MAX_FORWARD of the engine by tensors.
CONDENSED_INPUTS = 16
BRIEFLY = 10.0  # seconds for boxes where inputs are many: what boxes decide there, they decide soon
# Networks with one hidden layer have better bounds than boxes, except where inputs stand for yes or no: clauses as a
# hidden layer are refuted by a few hundred boxes, and leave bounds of phases at nought.
AT_ONCE = 1.0
# boxes; what Python does is done once per batch; `InputSearch` makes fewer where a batch takes long
KERNEL_BATCH = 2048
# Boxes of a batch of tensors: as many as keep a layer's rows within TENSOR_ELEMENTS numbers (1 MB in float64), but at
# least 4 and at most 64, so that the clock is heard.
TENSOR_ELEMENTS, LEAST_BOXES, MOST_BOXES = 1 << 17, 4, 64
MANY = 8  # regions of a query that are bounded in one batch first: fewer cost no more one by one; a choice
ATTACKED = 0.4  # part of the time in which networks with steps are attacked first
SearchFunction = Callable[[Problem, Context], Outcome]


class Searcher(Verifier):
    """A verifier that tries one search after another until one decides."""

    can_prove = True
    can_falsify = True
    can_bound_many = True

    def refuses(self, problem: Problem) -> str | None:
        if not finite(problem.domain):
            return "an input has no finite bounds"
        return None

    def run(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.run.threads import one_thread

        outcome = trivial(problem, context)
        if outcome is not None:
            return outcome
        problem, outcome = absorb_input_rows(problem), Outcome.unknown("nothing was tried")
        with one_thread():
            for search in self.plan(problem, context):
                outcome = search(problem, context)
                if outcome.verdict.decided or context.budget.expired():
                    break
        return outcome

    def run_many(self, problems: Sequence[Problem], context: Context) -> list[Outcome]:
        """Where regions are many, bounds of all of them in batches come first: most need nothing else."""
        proved = [False] * len(problems)
        if len(problems) >= MANY and self._together(problems):
            from verifolio.plugins.crown.search.inputs.regions import proved_at_once
            from verifolio.run.threads import one_thread

            with one_thread():
                proved = proved_at_once(problems, context.budget.share(context.budget.remaining / 2))
        outcomes: list[Outcome] = []
        for problem, done in zip(problems, proved, strict=True):
            by_bounds = {"domains": 0, "by": "bounds"}
            outcomes.append(Outcome.proved(stats=by_bounds) if done else self.run(problem, context))
            if outcomes[-1].point is not None:
                break
        return outcomes

    def _together(self, problems: Sequence[Problem]) -> bool:
        """Whether batches help, and nobody wants to know how every single region was proved."""
        return not getattr(self.options, "trace", "") and not problems[0].graph.steps

    def bound_many(self, problems: Sequence[Problem], context: BatchContext) -> list[Bounds]:
        """Backward linear bounds, without branching; with more effort, of optimised slopes."""
        from verifolio.plugins.crown.bounder import AlphaBounder, CrownBounder

        bounder = AlphaBounder() if context.effort > 1 else CrownBounder()
        return bounder.bound(problems, context.budget)

    @abstractmethod
    def plan(self, problem: Problem, context: Context) -> list[SearchFunction]:
        """What to try, in order."""


class Crown(Searcher):
    """Bounds, then branch and bound on inputs or on phases; smooth functions are bounded, not branched on."""

    name = "crown"
    leaves_trace = True
    Options: ClassVar[type] = CrownOptions
    options: CrownOptions

    def plan(self, problem: Problem, context: Context) -> list[SearchFunction]:
        """What to branch on, in order. The box kernel is so quick that it goes first wherever it applies."""
        from verifolio.plugins.crown.search.cells import switches

        if not problem.graph.steps or self.options.split != "auto":
            return self._plan(problem)
        found = switches(problem)
        cells = [partial(_on_cells, found)] if found else []
        rest = [self._by_bounds, _by_descent, *self._plan(problem)]
        # cells are as many as boxes: with many inputs they come last
        return [*cells, *rest] if len(found) <= FEW_INPUTS else [*rest, *cells]

    def _plan(self, problem: Problem) -> list[SearchFunction]:
        from verifolio.plugins.crown.kernel.boxes import kernel_applies
        from verifolio.plugins.crown.search.inputs.fixed_search import fixed_applies

        if self.options.split == "input":
            return [self._on_inputs]
        if self.options.split in ("neuron", "none"):
            return [self._on_neurons]
        if not self.options.trace and fixed_applies(problem):
            return [_on_fixed, self._on_neurons]
        wide = free_inputs(problem.domain.lower, problem.domain.upper)
        if wide <= FEW_INPUTS:  # what hinges on rounding in boxes, phases and linear programs decide
            return [self._on_inputs, self._on_neurons]
        if problem.graph.piecewise_linear and kernel_applies(problem):
            one = len(problem.graph.relus) == 1
            return [partial(self._on_inputs_briefly, AT_ONCE if one else BRIEFLY), self._on_neurons]
        if not problem.graph.piecewise_linear and wide <= SOME_INPUTS:
            return [self._on_neurons, self._on_inputs]
        if wide <= CONDENSED_INPUTS and self._condenses(problem):
            return [_on_condensed_boxes, self._on_neurons]
        return [self._on_neurons]

    def _condenses(self, problem: Problem) -> bool:
        """Whether boxes may have networks of their own: nobody wants to know how every single box was proved."""
        return problem.graph.piecewise_linear and problem.domain.ball is None and not self.options.trace

    def _on_neurons(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.plugins.crown.search.neurons.stages import StagedSearch
        from verifolio.plugins.crown.trace import save_phases

        search = StagedSearch(problem, context, self.options)
        outcome = search.run()
        save_phases(search, outcome)
        return outcome

    def _by_bounds(self, problem: Problem, context: Context) -> Outcome:
        """Bounds alone, briefly: what they prove of a network with steps, no search over its levels should repeat."""
        share = context.budget.share(min(BRIEFLY, context.budget.remaining / 5))
        plain = type(self)(replace(self.options, split="none"))
        return plain._on_neurons(problem, replace(context, budget=share))

    def _on_inputs_briefly(self, seconds: float, problem: Problem, context: Context) -> Outcome:
        share = context.budget.share(min(seconds, context.budget.remaining / 5))
        return self._on_inputs(problem, replace(context, budget=share))

    def _on_inputs(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.certificates.trace import save_trace
        from verifolio.plugins.crown.kernel.boxes import KernelEngine
        from verifolio.plugins.crown.search.attack import InterleavedAttack
        from verifolio.plugins.crown.search.inputs.input_search import InputSearch
        from verifolio.plugins.crown.search.inputs.tensor_engine import make_engine

        # a certificate must hold without what others found
        known = None if self.options.trace else context.evidence.bounds_for(problem)
        plain = bool(self.options.trace)
        engine = make_engine(problem, context.budget, context.device, known, plain)
        widest = max(node.op.size for node in problem.graph.nodes)
        tensors = int(np.clip(TENSOR_ELEMENTS // widest, LEAST_BOXES, MOST_BOXES))
        batch = self.options.batch or (KERNEL_BATCH if isinstance(engine, KernelEngine) else tensors)
        # the kernel's own boxes find what there is to find; by tensors a single batch may take as long as an attack
        attack = InterleavedAttack(problem, context, eager=not isinstance(engine, KernelEngine))
        search = InputSearch(problem, engine, context, batch, bool(self.options.trace), attack)
        outcome = search.run()
        if isinstance(engine, KernelEngine):
            engine.close()
        if search.tree is not None and outcome.verdict is Verdict.UNSAT:
            save_trace(self.options.trace, problem, search.tree.arrays())
        return outcome


def _on_condensed_boxes(problem: Problem, context: Context) -> Outcome:
    from verifolio.plugins.crown.search.inputs.condensed_search import CondensedSearch

    return CondensedSearch(problem, context).run()


def _on_fixed(problem: Problem, context: Context) -> Outcome:
    from verifolio.plugins.crown.search.inputs.fixed_search import FixedSearch

    return FixedSearch(problem, context).run()


def _by_descent(problem: Problem, context: Context) -> Outcome:
    """Where many steps may jump bounds are loose for long, and an attack deserves its share first."""
    from verifolio.attacks.search import attack_many, unattackable

    if unattackable(problem) is not None:
        return Outcome.unknown("no attack is possible")
    share = context.budget.share(context.budget.remaining * ATTACKED)
    (found,) = attack_many([problem], lambda _, x: context.check(x), share, seed=context.seed)
    return Outcome.unknown("no counterexample found") if found.point is None else Outcome.found(found.point)


def _on_cells(found: list[Switch], problem: Problem, context: Context) -> Outcome:
    from verifolio.plugins.crown.search.cells import CellSplit

    share = context.budget.share(max(BRIEFLY, context.budget.remaining / 2))
    return CellSplit(problem, replace(context, budget=share), found).run()


def trivial(problem: Problem, context: Context) -> Outcome | None:
    """What needs no search: no input, no condition, or one that holds everywhere."""
    if not decided_at_sight(problem):
        return None
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.proved()
    return _anywhere(absorb_input_rows(problem), context)


def decided_at_sight(problem: Problem) -> bool:
    """Whether there is no input, no condition, or one that holds everywhere."""
    absorbed = absorb_input_rows(problem).disjuncts
    return problem.domain.empty or not absorbed or any(rows.count == 0 for rows in absorbed)


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
