"""The command `bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from verifolio.cli.bundles import (
    ASKED,
    WRITTEN,
    Bundle,
    Certificate,
    Choice,
    Expect,
    Json,
    Output,
    RunningMany,
    with_default,
)
from verifolio.cli.codes import ALARM, DONE
from verifolio.cli.common import exit_code, open_oracle
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle

    from .instances import Instance
    from .results import InstanceResult, Line
    from .runner import Places
    from .scoring import Contest

Pairs = list[tuple["Instance", "InstanceResult"]]


@dataclass(frozen=True, kw_only=True)
class Cap(Bundle):
    """The most that an instance gets."""

    panel: ClassVar[str] = ASKED
    timeout_cap: float = described(
        0.0, "No instance has more seconds than this; 0 for no cap.", metavar="SECONDS", min=0.0
    )


@dataclass(frozen=True, kw_only=True)
class Selected(Cap):
    """Which instances."""

    panel: ClassVar[str] = ASKED
    only: str = described(
        "",
        "Ids or categories with commas, or a file of them; other rows of the table stay.",
        metavar="LIST|FILE",
    )
    again: bool = described(False, "Try undecided instances once more.")


@dataclass(frozen=True, kw_only=True)
class Written(Certificate, Json, Output):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    output: str = with_default(Output, "output", default="results.csv")
    files: str = described("", "The folder of logs, counterexamples and pictures.", metavar="FOLDER")
    against: tuple[str, ...] = described(
        (), "Compare with another tool's results; repeatable.", metavar="FILE"
    )
    pictures: bool = described(True, "Draw cactus and scatter plots.", off=True)


def bench(
    source: Annotated[str, typer.Argument(metavar="INSTANCES.csv|FOLDER", help="What to decide.")],
    selected: Selected,
    running: RunningMany,
    expect: Expect,
    written: Written,
) -> None:
    """Decide many instances.

    Killed at any moment and started again, it continues. --output is VNN-COMP's table of results, kept up to
    date. --timeout is for instances that name no limit of their own. Without --store, answers are kept beside
    --output. Every instance tried is 0, an answer that contradicts the table's expected one is 4; with
    --expect, every instance must have that verdict and an input to be about.

    Example:
        verifolio bench examples/networks/instances.csv --only digits_dense_digits_dense_45_0.2 --timeout-cap 20
    """
    from verifolio.cli.output import complain

    from .instances import cap, read_instances, select
    from .results import read_lines, read_tool, tools_in
    from .runner import Places
    from .scoring import make_contest

    everyone = read_instances(source, running.timeout)
    instances = cap(select(everyone, selected.only), selected.timeout_cap)
    check_files(instances, source)
    tools = [*tools_in(everyone), *(read_tool(Path(name)) for name in written.against)]
    table = Path(written.output)
    files = Path(written.files) if written.files else table.with_name(f"{table.stem}_files")
    places = Places(table, files)
    before = read_lines(table) if selected.only else []
    kept = running.store or str(table.with_suffix(".db"))
    own = replace(running, store=kept, timeout=0.0)  # every instance has its own limit
    with open_oracle(own, running.jobs, alarm=False) as oracle:
        pairs = run_all(instances, oracle, Path(kept), places, before, selected.again, written.json)
        if written.certificate:
            from .certificates import certify_all

            for line in certify_all(pairs, Path(written.certificate), oracle, running.jobs):
                complain(line)
    contest = make_contest(pairs, tools, run_name(running), everyone)
    finish(pairs, contest, places, written, expect.expect)


def run_name(running: Choice) -> str:
    """What tables and pictures call this run."""
    from .scoring import OURS

    chosen = running.verifier or Path(running.portfolio).stem
    options = ",".join(running.option)
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
    again: bool,
    quiet: bool,
) -> Pairs:
    """Run with progress on standard error; `before` are rows of the table that stay."""
    from verifolio.cli.output import complain

    from .ledger import BenchLedger
    from .progress import Reporter
    from .runner import Run

    jobs = oracle.concurrency
    oracle.infer = False  # every instance is decided for itself, as in a competition
    with BenchLedger(store) as ledger, Reporter(instances, jobs, quiet) as report:
        oracle.warm(wait=True)  # not the first instance's time

        def listen(instance: Instance, result: InstanceResult, resumed: bool) -> None:
            report(instance, result, resumed)
            oracle.plugins.manager.hook.progress(done=report.done, total=report.total, message="instances")

        run = Run(run_key(oracle), instances, oracle, ledger, places, jobs, again, listen, before)
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
    return f"{oracle.portfolio_key}:{oracle.seed}:{oracle.memory}:{oracle.device}"


def finish(pairs: Pairs, contest: Contest, places: Places, written: Written, expect: str | None) -> None:
    """Print the scores, draw the pictures, leave with the exit code."""
    from verifolio.cli.output import complain

    from .figures import draw

    if written.pictures and pairs:
        draw(contest, places.folder)
    show_json(pairs, contest) if written.json else show(pairs, contest)
    wrong = [i.label for k, (i, _) in enumerate(pairs) if contest.wrong(contest.ours, k)]
    alarms = [i.label for i, r in pairs if "alarm" in r.flags]
    if wrong:
        complain(f"answers that contradict the expected ones: {', '.join(wrong)}")
    if alarms:
        complain(f"soundness alarm: {', '.join(alarms)}")
    if wrong or alarms:
        raise typer.Exit(ALARM)
    hollow = [i.label for i, r in pairs if "empty" in r.flags]
    if hollow:
        complain(
            f"nothing was proved about the network, because no input is asked about: {', '.join(hollow)}"
        )
    raise typer.Exit(exit_code([r.verdict for _, r in pairs], expect, bool(hollow)) if expect else DONE)


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
