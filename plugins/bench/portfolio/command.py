"""The commands `portfolio build` and `portfolio show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from verifolio.cli.bundles import ASKED, SEARCH, Bundle, Cores, Json, Output, Seed, Timeout, with_default
from verifolio.cli.expand import add_command, make_group
from verifolio.plugin.options import described

from ..command import Cap

if TYPE_CHECKING:
    from verifolio.portfolio.tree import Portfolio

    from .judge import Judgement
    from .runs import Run, Source
    from .table import Schedule, Table

RESULTS = "FILE or VERIFIER[:OPTION=VALUE,...]=FILE: a store or a table of results of `bench`."


@dataclass(frozen=True, kw_only=True)
class RunLimits(Cap, Timeout):
    """The table of instances, and limits where it names none."""

    panel: ClassVar[str] = ASKED
    instances: str = described(
        "", "The table of instances: limits and truths for tables of results.", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class Learning(Seed, Cores):
    """How a portfolio is learned."""

    panel: ClassVar[str] = SEARCH
    goal: Literal["par2", "score"] = described("par2", "What to make best.")
    folds: int = described(10, "Parts for cross-validation.", min=2)
    recorded_cores: int = described(1, "Cores that tables of results were made with.", min=1)


@dataclass(frozen=True, kw_only=True)
class Written(Json, Output):
    """What is written."""

    output: str = with_default(Output, "output", default="portfolio.yaml")


@dataclass(frozen=True, kw_only=True)
class Shown(Json, Cores):
    """What is explained."""


@dataclass(frozen=True, kw_only=True)
class Runs(Bundle):
    """Recorded runs."""

    panel: ClassVar[str] = ASKED
    results: tuple[str, ...] = described((), f"{RESULTS} Repeatable.", metavar="RESULTS")


def make_commands() -> typer.Typer:
    """The group `portfolio`."""
    group = make_group("Learn a portfolio from recorded runs, or explain one.")
    add_command(group, "build", build_command)
    add_command(group, "show", show_command)
    return group


def build_command(
    results: Annotated[list[str], typer.Argument(metavar="RESULTS...", help=RESULTS)],
    limits: RunLimits,
    learning: Learning,
    written: Written,
) -> None:
    """Learn a portfolio from runs of single verifiers.

    What it is worth is measured on instances that it was not learned from. --timeout is for instances that
    name no limit; --cores 0 is one core.

    Example (not run: it needs recorded runs):
        verifolio portfolio build crown.db milp.db pgd=pgd.csv --instances instances.csv -o learned.yaml
    """
    from ..results import write_text
    from .explain import with_defaults
    from .judge import judge
    from .runs import make_source, read_runs
    from .schedule_search import build
    from .table import make_table
    from .write import portfolio_text, read_back

    cores, goal, out = learning.cores or 1, learning.goal, written.output
    source = make_source(limits.instances, limits.timeout, limits.timeout_cap, learning.recorded_cores)
    table = with_defaults(make_table(read_runs(results, source), source.truths))
    judgement = judge(table, cores, goal, learning.folds, learning.seed)
    schedule, rows = build(table, cores, goal)
    text = portfolio_text(schedule, rows, _about(judgement, table, cores, goal))
    portfolio = read_back(text, out)
    write_text(Path(out), text)
    if written.json:
        _report_json(judgement, schedule, rows, table, portfolio, out)
    else:
        _report(judgement, schedule, rows, table, portfolio, out)


def _about(judgement: Judgement, table: Table, cores: int, goal: str) -> list[str]:
    """The comment on top of the file: where it comes from, and whether it is any good."""
    names = ", ".join(c.name for c in table.configurations)
    about = [f"Learned from {len(table.labels)} instances and the runs of {names}; goal {goal}."]
    about += [f"Made for {cores} cores: use it with --cores {cores}."] if cores > 1 else []
    about += [f"Cross-validated in {judgement.folds} parts:"]
    about += [f"  {n.name}: {n.decided} decided, PAR-2 {n.par2:.2f}" for n in judgement.lines]
    return about + [f"  {d.verdict}" for d in judgement.differences]


def _report(
    judgement: Judgement, schedule: Schedule, rows: Table, table: Table, portfolio: Portfolio, out: str
) -> None:
    from verifolio.cli.output import say
    from verifolio.cli.output import table as show

    from .table import decided, par2, run_schedule

    for note in table.notes:
        say(note)
    say(f"cross-validated on {len(table.labels)} instances in {judgement.folds} parts:")
    lines = [(n.name, n.decided, n.score, f"{n.par2:.2f}") for n in judgement.lines]
    show(("who", "decided", "score", "PAR-2"), lines)
    for d in judgement.differences:
        say(f"{d.verdict}: {d.gain:+.2f} s ({d.low:+.2f} to {d.high:+.2f})")
    say()
    say("without a member, learned again:")
    worths = [(w.name, w.alone, w.only, f"{w.loss:+.2f}", -w.lost) for w in judgement.worths]
    show(("without", "decides", "only it", "PAR-2", "decided"), worths)
    say()
    done = run_schedule(schedule, rows)[0]
    fit = f"{decided(done)} decided, PAR-2 {par2(done, rows.limits):.2f}"
    say(f"written to {out}; on the instances it was learned from: {fit}")
    _show_tree(portfolio, float(rows.limits.max()), None)


def _report_json(
    judgement: Judgement, schedule: Schedule, rows: Table, table: Table, portfolio: Portfolio, out: str
) -> None:
    from verifolio.cli.output import say_json

    from .table import decided, par2, run_schedule

    done = run_schedule(schedule, rows)[0]
    say_json(
        {
            "out": out,
            "instances": len(table.labels),
            "folds": judgement.folds,
            "lines": [vars(line) for line in judgement.lines],
            "differences": [vars(d) | {"verdict": d.verdict} for d in judgement.differences],
            "without": [vars(w) for w in judgement.worths],
            "fit": {"decided": decided(done), "par2": par2(done, rows.limits)},
            "portfolio": portfolio.root.describe(),
            "notes": table.notes,
        }
    )


def show_command(
    portfolio: Annotated[str, typer.Argument(metavar="FILE|default", help="A portfolio file, or `default`.")],
    runs: Runs,
    limits: RunLimits,
    shown: Shown,
    on: Annotated[
        tuple[str, str] | None, typer.Option(metavar="NETWORK PROPERTY", help="Who would take this query?")
    ] = None,
) -> None:
    """Explain what a portfolio does.

    Its stages are listed with their time and options, when each applies, and who contributes what.

    Example:
        verifolio portfolio show default --timeout 100
    """
    from verifolio.cli.output import say, say_json

    from .runs import make_source, read_runs

    source = make_source(limits.instances, limits.timeout, limits.timeout_cap, 1)
    recorded = read_runs(runs.results, source)
    refusals: list[str] | None = None
    found: list[tuple[str, Portfolio]]
    if on is not None:
        found, refusals = _for_query(portfolio, on, shown.cores or 1)
    else:
        found = _portfolios(portfolio)
    records = []
    for condition, one in found:
        records.append(_record(condition, one, limits.timeout, refusals, recorded, source))
    if shown.json:
        say_json({"portfolios": records})
        return
    for (condition, one), record in zip(found, records, strict=True):
        say(f"{one.name}{': ' + condition if condition else ''}")
        _show_tree(one, limits.timeout, refusals)
        for line in record["contributions"]:
            say(line)
        say()


def _portfolios(name: str) -> list[tuple[str, Portfolio]]:
    """The portfolio of a file, or everything that a chooser may give, with the condition of each."""
    from verifolio.portfolio.chooser import find_portfolio
    from verifolio.portfolio.tree import Portfolio

    found = find_portfolio(name)
    return [("", found)] if isinstance(found, Portfolio) else list(found.conditions())


def _for_query(
    name: str, files: tuple[str, str], cores: int
) -> tuple[list[tuple[str, Portfolio]], list[str]]:
    """The portfolio for one query, and what each of its members says to it."""
    from verifolio.errors import VerifolioError
    from verifolio.model.query import Query
    from verifolio.portfolio.chooser import find_portfolio
    from verifolio.portfolio.tree import Portfolio
    from verifolio.solve.survey import Missing, SurveyTask, survey

    query = Query.from_files([files[0]], files[1])
    found = find_portfolio(name)
    chosen = found if isinstance(found, Portfolio) else found.choose(query)
    said = survey(SurveyTask(query, chosen.members))
    if isinstance(said, VerifolioError):
        raise said
    words = [f"is missing: {o.reason}" if isinstance(o, Missing) else f"refuses: {o}" for o in said]
    words = ["takes it" if o is None else w for o, w in zip(said, words, strict=True)]
    return [(f"for {files[1]} on {cores} cores", chosen)], words


def _record(
    condition: str,
    portfolio: Portfolio,
    timeout: float,
    refusals: list[str] | None,
    runs: list[Run],
    source: Source,
) -> dict[str, Any]:
    from .explain import contributions, rows, when

    stages = []
    for place, row in enumerate(r for r in rows(portfolio.root, timeout) if r.member is not None):
        member = row.member
        if member is not None:
            said = refusals[place] if refusals is not None else when(member)
            stages.append(dict(member.describe()) | {"at_timeout": row.seconds, "when": said})
    return {
        "name": portfolio.name,
        "condition": condition,
        "tree": portfolio.root.describe(),
        "stages": stages,
        "contributions": contributions(portfolio, runs, source),
    }


def _show_tree(portfolio: Portfolio, timeout: float, refusals: list[str] | None) -> None:
    from verifolio.cli.output import table

    from .explain import rows, when

    said = iter(refusals or ())
    shown = []
    for row in rows(portfolio.root, timeout):
        indent = "  " * row.depth
        if row.member is None:
            shown.append((f"{indent}{row.title}", "", "", "", ""))
        else:
            words = next(said) if refusals is not None else when(row.member)
            shown.append((f"{indent}{row.title}", row.limit, f"{row.seconds:g}", row.options, words))
    table(("stage", "time", f"of {timeout:g} s", "options", "when"), shown)
