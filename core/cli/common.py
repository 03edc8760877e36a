"""What commands share: the oracle that their bundles describe, exit codes of answers, certificates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from verifolio.cli.bundles import Choice, Running
from verifolio.cli.codes import DONE, UNDECIDED, UNEXPECTED
from verifolio.plugin.hookspecs import hookimpl
from verifolio.run.memory import default_memory
from verifolio.storage.invocation import INVOKED

if TYPE_CHECKING:
    from verifolio.model.answer import Answer, Verdict
    from verifolio.portfolio.chooser import Chooser
    from verifolio.portfolio.tree import Portfolio
    from verifolio.solve.oracle import Oracle
    from verifolio.storage.store import Store

LANES = 64  # members of a query that may run at a time; workers only start when there is work for them


class Listener:
    """Shows what verifiers report: warnings always, the rest where `verbose` is set."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose

    @hookimpl
    def query_reported(self, verifier: str, text: str, warning: bool) -> None:
        from verifolio.cli.output import complain

        if warning or self.verbose:
            complain(f"{'warning: ' if warning else ''}{verifier}: {text}")


@contextmanager
def open_oracle(
    running: Running, lanes: int = 1, alarm: bool = True, verbose: bool = False, warm: bool = True
) -> Iterator[Oracle]:
    """The oracle that the bundle describes, for `lanes` queries at a time.

    Its workers start while the caller imports and parses, unless they are not to be `warm`.
    """
    from verifolio.plugin.manager import current_plugins

    plugins = current_plugins().plus(Listener(verbose))
    with ExitStack() as stack:
        invocation = INVOKED.get()
        if running.store and invocation is not None:
            from verifolio.storage.runs import Recorder

            plugins = plugins.plus(stack.enter_context(Recorder(running.store, invocation)))
        place = stack.enter_context(plugins.make_executor(running.place, LANES * lanes, running.device))
        share = place.share(lanes, running.cores)
        if warm:
            place.warm()
        from verifolio.portfolio.tree import Portfolio
        from verifolio.solve.oracle import Oracle

        chosen = select_portfolio(running)
        kept = _open_store(running.store, stack) if running.store else None
        oracle = Oracle(
            chosen,
            place,
            kept,
            timeout=running.timeout or math.inf,
            memory=int(running.memory * 2**30) or default_memory(),
            cores=running.cores or 1,
            total=running.cores or (0 if isinstance(chosen, Portfolio) else share),
            seed=running.seed,
            device=running.device,
            workers=lanes,
            alarm=alarm,
            plugins=plugins,
        )
        yield stack.enter_context(oracle)


def _open_store(path: str, stack: ExitStack) -> Store:
    from verifolio.storage.store import Store

    return stack.enter_context(Store(path))


def exit_code(verdicts: Sequence[Verdict], expect: str | None, hollow: bool = False) -> int:
    """Of answers without an alarm, where `expect` says which verdict is wanted of all of them.

    `hollow` says that the input set of one is empty: that proves nothing about a network, so it is not what was
    expected.
    """
    if hollow or any(v.decided and v.value != expect for v in verdicts):
        return UNEXPECTED
    return DONE if all(v.decided for v in verdicts) else UNDECIDED


def certificate_notes(answer: Answer) -> list[str]:
    """Why a certificate that was asked for was not written; nothing where it was."""
    said = str(answer.stats.get("certificate", ""))
    if answer.verdict.value != "unsat":
        said = f"not written: only a proof has one, and the answer is {answer.verdict.value}"
    return [f"certificate: {said}"] if said.startswith("not written") else []


def select_portfolio(choice: Choice) -> Portfolio | Chooser | None:
    """What --verifier, --portfolio and --option ask for; None leaves the choice to each query."""
    from verifolio.errors import InputError
    from verifolio.plugin.options import split_pairs
    from verifolio.portfolio.chooser import find_portfolio
    from verifolio.portfolio.tree import single_verifier

    if choice.verifier and choice.portfolio:
        raise InputError("command line", "--verifier or --portfolio", "both")
    if choice.option and not choice.verifier:
        remedy = "name one, or use a portfolio file; options of a property are --property-option"
        raise InputError("--option", "a --verifier it belongs to", "none", remedy)
    if choice.verifier:
        return single_verifier(choice.verifier, split_pairs(choice.option))
    return find_portfolio(choice.portfolio) if choice.portfolio else None
