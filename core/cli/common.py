"""What commands share: the options that mean the same everywhere, and the oracle they describe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.model.answer import Answer, Verdict
    from verifolio.portfolio.chooser import Chooser
    from verifolio.portfolio.tree import Portfolio
    from verifolio.solve.oracle import Oracle

CERTIFICATE = "certificate"  # the option of verifiers that write what proves their answer
LANES = 64  # members of a query that may run at a time; workers only start when there is work for them

VerifierName = Annotated[str, typer.Option("--verifier", help="Use this verifier alone.")]
PortfolioFile = Annotated[
    str, typer.Option("--portfolio", help="A portfolio file (YAML), or the name of a chooser.")
]
OptionPairs = Annotated[
    list[str] | None, typer.Option("--option", help="An option of --verifier, key=value.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds per query, 0 for no limit.")]
Memory = Annotated[float, typer.Option("--memory", min=0.0, help="Gigabytes per verifier, 0 for no limit.")]
Cores = Annotated[
    int,
    typer.Option(
        "--cores", min=0, help="Cores per query, shared by its verifiers; 0: as many as they can use."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StoreFile = Annotated[
    str, typer.Option("--store", help="Look answers up here first, and keep them (SQLite).")
]
ExecutorName = Annotated[str, typer.Option("--executor", help="Where verifiers run: process, inline, ray.")]
Address = Annotated[
    str, typer.Option("--address", help="HOST:PORT of the cluster, for an --executor that runs on one.")
]
Expect = Annotated[
    Literal["sat", "unsat"] | None,
    typer.Option(
        "--expect", help="The verdict that is wanted: another one exits with 5, an undecided one with 3."
    ),
]
Device = Annotated[str, typer.Option("--device", help="Where tensors live.")]
Range = Annotated[
    str,
    typer.Option("--range", "--legal", help="The legal values of inputs, LOW,HIGH, as the data has them."),
]
Layout = Annotated[
    str, typer.Option("--layout", help="hwc or chw: the data's axes, where the network wants the other one.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show on standard error what verifiers report.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Queries at a time.")]


class Listener:
    """Shows what verifiers report: warnings always, the rest where `verbose` is set."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose

    @hookimpl
    def query_reported(self, verifier: str, text: str, warning: bool) -> None:
        from verifolio.cli.main import complain

        if warning or self.verbose:
            complain(f"{'warning: ' if warning else ''}{verifier}: {text}")


@contextmanager
def open_oracle(
    verifier: str = "",
    portfolio: str = "",
    option: Sequence[str] | None = None,
    timeout: float = 300.0,
    memory: float = 0.0,
    cores: int = 1,
    seed: int = 0,
    store: str = "",
    executor: str = "process",
    device: str = "cpu",
    workers: int = 1,
    alarm: bool = True,
    verbose: bool = False,
) -> Iterator[Oracle]:
    """The oracle that the common options describe; its workers start while the caller imports and parses."""
    from verifolio.plugin.manager import current_plugins

    plugins = current_plugins().plus(Listener(verbose))
    with ExitStack() as stack:
        place = stack.enter_context(plugins.make_executor(executor, LANES * workers, device))
        share = place.share(workers, cores)
        place.warm()
        from verifolio.portfolio.tree import Portfolio
        from verifolio.solve.oracle import Oracle
        from verifolio.storage.store import Store

        chosen = select_portfolio(verifier, portfolio, option or ())
        kept = stack.enter_context(Store(store)) if store else None
        oracle = Oracle(
            chosen,
            place,
            kept,
            timeout=timeout or math.inf,
            memory=int(memory * 2**30) or None,
            cores=cores or 1,
            total=cores or (0 if isinstance(chosen, Portfolio) else share),
            seed=seed,
            device=device,
            workers=workers,
            alarm=alarm,
            plugins=plugins,
        )
        yield stack.enter_context(oracle)


def at(executor: str, address: str) -> str:
    """What --executor and --address say, in the form that `open_oracle` takes."""
    return f"{executor}@{address}" if address else executor


def exit_code(verdicts: Sequence[Verdict], expect: str | None) -> int:
    """Of answers without an alarm, where `expect` says which verdict is wanted of all of them."""
    from verifolio.cli.main import DONE, UNDECIDED, UNEXPECTED

    if any(v.decided and v.value != expect for v in verdicts):
        return UNEXPECTED
    return DONE if all(v.decided for v in verdicts) else UNDECIDED


def with_places(pairs: dict[str, object]) -> dict[str, object]:
    """Options with the file of a certificate where the user means it: a worker has a folder of its own."""
    from verifolio.errors import InputError

    if not pairs.get(CERTIFICATE):
        return pairs
    path = Path(str(pairs[CERTIFICATE])).absolute()
    if not path.parent.is_dir():
        raise InputError(
            f"--option {CERTIFICATE}", "a file in a folder that exists", str(path), "make the folder"
        )
    return pairs | {CERTIFICATE: str(path)}


def certificate_notes(options: Sequence[str] | None, answer: Answer) -> list[str]:
    """Why the file of a certificate that was asked for was not written; nothing where it was."""
    from verifolio.plugin.options import split_pairs

    path = with_places(split_pairs(list(options or ()))).get(CERTIFICATE, "")
    said = str(answer.stats.get(CERTIFICATE, "") or "")
    if not path or said == path:
        return []
    if answer.verdict.value != "unsat":
        said = f"only a proof has one, and the answer is {answer.verdict.value}"
    return [f"no certificate was written: {said or 'this proof needed no search that keeps one'}"]


def select_portfolio(verifier: str, portfolio: str, options: Sequence[str]) -> Portfolio | Chooser | None:
    """What --verifier, --portfolio and --option ask for; None leaves the choice to each query."""
    from verifolio.errors import InputError
    from verifolio.plugin.options import split_pairs
    from verifolio.portfolio.chooser import find_portfolio
    from verifolio.portfolio.tree import single_verifier

    if verifier and portfolio:
        raise InputError("command line", "--verifier or --portfolio", "both")
    if options and not verifier:
        remedy = "name one, or use a portfolio file"
        raise InputError("--option", "a --verifier it belongs to", "none", remedy)
    if verifier:
        return single_verifier(verifier, with_places(split_pairs(list(options))))
    return find_portfolio(portfolio) if portfolio else None
