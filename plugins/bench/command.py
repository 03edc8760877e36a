"""The command `bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verifolio.cli.common import (
    Address,
    AsJson,
    Cores,
    Device,
    ExecutorName,
    Expect,
    Memory,
    OptionPairs,
    PortfolioFile,
    Seed,
    VerifierName,
    at,
    exit_code,
    open_oracle,
)

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle

    from .instances import Instance
    from .results import Line, Result
    from .runner import Places
    from .scoring import Contest

Pairs = list[tuple["Instance", "Result"]]


def bench(
    source: Annotated[str, typer.Argument(metavar="INSTANCES.csv|FOLDER", help="What to decide.")],
    out: Annotated[str, typer.Option(help="VNN-COMP's table of results, kept up to date.")] = "results.csv",
    jobs: Annotated[int, typer.Option(min=1, help="Instances at the same time.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds for instances that name no limit.")] = 60.0,
    timeout_cap: Annotated[float, typer.Option(min=0.0, help="At most this much for any instance.")] = 0.0,
    only: Annotated[str, typer.Option(help="Ids or categories with commas, or a file of them.")] = "",
    store: Annotated[
        str, typer.Option(help="The SQLite file to continue from; beside --out by default.")
    ] = "",
    files: Annotated[str, typer.Option(help="Folder of logs, counterexamples and pictures.")] = "",
    against: Annotated[list[str] | None, typer.Option(help="Another tool's results; repeatable.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Try undecided instances once more.")] = False,
    plots: Annotated[bool, typer.Option(help="Draw cactus and scatter plots.")] = True,
    verifier: VerifierName = "",
    portfolio: PortfolioFile = "",
    option: OptionPairs = None,
    memory: Memory = 0.0,
    cores: Cores = 0,
    seed: Seed = 0,
    executor: ExecutorName = "process",
    address: Address = "",
    device: Device = "cpu",
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Decide many instances; killed at any moment and started again, it continues.

    Leaves with 0 when every instance was tried, 4 when an answer contradicts the expected one of the table.
    With --expect, every instance must have that verdict.
    """
    from .instances import cap, read_instances, select
    from .results import read_lines, read_tool, tools_in
    from .runner import Places
    from .scoring import make_contest

    everyone = read_instances(source, timeout)
    instances = cap(select(everyone, only), timeout_cap)
    check_files(instances, source)
    tools = [*tools_in(everyone), *(read_tool(Path(name)) for name in against or ())]
    table = Path(out)
    places = Places(table, Path(files) if files else table.with_name(f"{table.stem}_files"))
    before = read_lines(table) if only else []
    kept = store or str(table.with_suffix(".db"))
    place = at(executor, address)
    members = (verifier, portfolio, option, 0.0, memory, cores, seed, kept, place, device, jobs, False)
    with open_oracle(*members) as oracle:
        pairs = run_all(instances, oracle, Path(kept), places, before, jobs, again, as_json)
    contest = make_contest(pairs, tools, run_name(verifier, portfolio, option), everyone)
    finish(pairs, contest, places, plots, as_json, expect)


def run_name(verifier: str, portfolio: str, option: Sequence[str] | None) -> str:
    """What tables and pictures call this run."""
    from .scoring import OURS

    chosen = verifier or (Path(portfolio).stem if portfolio else "")
    options = ",".join(option or ())
    return f"{OURS} {chosen}" + (f":{options}" if options else "") if chosen else OURS


def check_files(instances: Sequence[Instance], source: str) -> None:
    """One missing file is one instance's error; if all are missing, the table is in the wrong place."""
    from verifolio.errors import InputError

    missing = [p for i in instances for p in (i.networks[0][1], i.specification) if not p.is_file()]
    if instances and all(not (i.networks[0][1].is_file() and i.specification.is_file()) for i in instances):
        remedy = "paths are relative to the folder of the table"
        raise InputError(source, "files that exist", str(missing[0]), remedy)


def run_all(
    instances: Sequence[Instance],
    oracle: Oracle,
    store: Path,
    places: Places,
    before: Sequence[Line],
    jobs: int,
    again: bool,
    quiet: bool,
) -> Pairs:
    """Run with progress on standard error; `before` are rows of the table that stay."""
    from verifolio.cli.main import complain

    from .ledger import Ledger
    from .progress import Reporter
    from .runner import Run

    oracle.infer = False  # every instance is decided for itself, as in a competition
    with Ledger(store) as ledger, Reporter(instances, jobs, quiet) as report:
        oracle.executor.warm(wait=True)  # not the first instance's time
        run = Run(run_key(oracle), instances, oracle, ledger, places, jobs, again, report, before)
        try:
            return run.run()
        except KeyboardInterrupt:
            complain(f"{report.done} of {report.total} instances are done and kept in {store}")
            complain("start the same command again to go on with the others")
            raise


def run_key(oracle: Oracle) -> str:
    """What decides the answers besides the instance: another portfolio, seed or memory is another run.

    Cores are left out: who continues with more or fewer jobs should find what was decided.
    """
    s = oracle.settings
    return f"{oracle.portfolio_key}:{s.seed}:{s.memory}:{s.device}"


def finish(
    pairs: Pairs, contest: Contest, places: Places, plots: bool, as_json: bool, expect: str | None
) -> None:
    """Print the scores, draw the pictures, leave with the exit code."""
    from verifolio.cli.main import ALARM, DONE, complain

    from .figures import draw

    if plots and pairs:
        draw(contest, places.folder)
    show_json(pairs, contest) if as_json else show(pairs, contest)
    wrong = [i.label for k, (i, _) in enumerate(pairs) if contest.wrong(contest.ours, k)]
    alarms = [i.label for i, r in pairs if "alarm" in r.flags]
    if wrong:
        complain(f"answers that contradict the expected ones: {', '.join(wrong)}")
    if alarms:
        complain(f"soundness alarm: {', '.join(alarms)}")
    if wrong or alarms:
        raise typer.Exit(ALARM)
    raise typer.Exit(exit_code([r.verdict for _, r in pairs], expect) if expect else DONE)


def show(pairs: Pairs, contest: Contest) -> None:
    """The scores for people."""
    from verifolio.cli.output import say, table

    from .scoring import COLUMNS, disagreements, earnings, lines

    table(COLUMNS, [line.cells() for line in lines(contest)])
    say()
    rows = [(n, sat, unsat, f"{median:.2f}") for n, sat, unsat, median in earnings(pairs)]
    table(("decided by", "sat", "unsat", "median s"), rows)
    for text in disagreements(contest):
        say(f"disagreement: {text}")
    for text in contest.doubts:
        say(f"not compared: {text}")
    reasons = {i.label: r.reason for i, r in pairs if r.verdict.value == "error"}
    for label, reason in reasons.items():
        say(f"error: {label}: {reason}")


def show_json(pairs: Pairs, contest: Contest) -> None:
    """The scores for programs."""
    from verifolio.cli.output import say_json

    from .scoring import disagreements, lines

    records = [
        {
            "id": i.id,
            "category": i.category,
            "onnx": i.onnx,
            "vnnlib": i.vnnlib,
            "timeout": i.timeout,
            "expected": i.expected,
            "verdict": r.verdict.value,
            "seconds": round(r.seconds, 6),
            "verifier": r.verifier,
            "reason": r.reason,
            "flags": r.flags,
        }
        for i, r in pairs
    ]
    scores = [line.__dict__ | {"decided": line.decided} for line in lines(contest)]
    say_json(
        {
            "instances": records,
            "scores": scores,
            "disagreements": disagreements(contest),
            "not_compared": contest.doubts,
        }
    )
