"""The verifier `boxes`: branch and bound on inputs by the compiled kernel, in processes without torch.

It is the first search of `crown` on networks with few inputs. Such a query takes less time than importing torch, so
a portfolio has it decided, or found to be hard, while other workers still do that.
"""

from __future__ import annotations

from contextlib import closing

from verifolio.model.answer import Outcome
from verifolio.model.problem import Problem, finite
from verifolio.plugin.verifier import Context, Verifier
from verifolio.plugins.crown.verifier import KERNEL_BATCH, absorb_input_rows, decided_at_sight, trivial


class Boxes(Verifier):
    """Boxes of inputs, bounded by the kernel and halved; their corners and centres are tried as counterexamples."""

    name = "boxes"
    can_prove = True
    can_falsify = True

    @classmethod
    def available(cls) -> str | None:
        from verifolio.plugins.crown.kernel.boxes import compiled

        return None if compiled() else "the kernel was not compiled when the package was installed"

    def refuses(self, problem: Problem) -> str | None:
        from verifolio.plugins.crown.search.inputs.kernel_engine import kernel_engine

        if not finite(problem.domain):
            return "an input has no finite bounds"
        if decided_at_sight(problem):
            return None
        if kernel_engine(absorb_input_rows(problem), 1) is None:
            return "the kernel does not bound this network or input set (choose crown)"
        return None

    def run(self, problem: Problem, context: Context) -> Outcome:
        from verifolio.plugins.crown.search.inputs.input_search import InputSearch
        from verifolio.plugins.crown.search.inputs.kernel_engine import kernel_engine

        outcome = trivial(problem, context)
        if outcome is not None:
            return outcome
        problem = absorb_input_rows(problem)
        engine = kernel_engine(problem, context.budget.cores, context.evidence.bounds_for(problem))
        if engine is None:
            return Outcome.unknown("the kernel does not bound this network or input set")
        with closing(engine):
            return InputSearch(problem, engine, context, KERNEL_BATCH).run()
