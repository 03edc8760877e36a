"""The commands `portfolio build` and `portfolio show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from verifolio.cli.common import AsJson

if TYPE_CHECKING:
    from verifolio.portfolio.tree import Portfolio

    from .judge import Judgement
    from .runs import Run, Source
    from .table import Schedule, Table

group = typer.Typer(
    no_args_is_help=True, help="Learn a portfolio from recorded runs; explain what a portfolio does."
)
Results = "FILE or VERIFIER[:OPTION=VALUE,...]=FILE: a store or a table of results of `bench`."
Instances = Annotated[
    str, typer.Option(help="The table of instances: limits and truths for tables of results.")
]
Limit = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds, where nothing names a limit.")]
Cap = Annotated[float, typer.Option("--timeout-cap", min=0.0, help="Answers after this do not count.")]
Recorded = Annotated[int, typer.Option(min=1, help="Cores that tables of results were made with.")]


@group.command("build")
def build_command(
    results: Annotated[list[str], typer.Argument(metavar="RESULTS...", help=Results)],
    out: Annotated[str, typer.Option(help="The portfolio file to write.")] = "portfolio.yaml",
    goal: Annotated[Literal["par2", "score"], typer.Option(help="What to make best.")] = "par2",
    cores: Annotated[int, typer.Option(min=1, help="Cores the portfolio may use.")] = 1,
    folds: Annotated[int, typer.Option(min=2, help="Parts for cross-validation.")] = 10,
    instances: Instances = "",
    timeout: Limit = 60.0,
    timeout_cap: Cap = 0.0,
    recorded_cores: Recorded = 1,
    seed: Annotated[int, typer.Option(help="Seed of the division into parts.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn a schedule from runs of single verifiers, and say what it is worth on unseen instances."""
    from ..results import write_text
    from .explain import with_defaults
    from .judge import judge
    from .runs import make_source, read_runs
    from .search import build
    from .table import make_table
    from .write import portfolio_text, read_back

    source = make_source(instances, timeout, timeout_cap, recorded_cores)
    table = with_defaults(make_table(read_runs(results, source), source.truths))
    judgement = judge(table, cores, goal, folds, seed)
    schedule, rows = build(table, cores, goal)
    text = portfolio_text(schedule, rows, _about(judgement, table, cores, goal))
    portfolio = read_back(text, out)
    write_text(Path(out), text)
    if as_json:
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


@group.command("show")
def show_command(
    portfolio: Annotated[str, typer.Argument(metavar="FILE|default", help="A portfolio file, or `default`.")],
    results: Annotated[list[str] | None, typer.Option(help=f"{Results} Repeatable.")] = None,
    on: Annotated[
        tuple[str, str] | None, typer.Option(metavar="NETWORK PROPERTY", help="Who would take this query?")
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Cores of the query, for `default`.")] = 1,
    instances: Instances = "",
    timeout: Limit = 60.0,
    timeout_cap: Cap = 0.0,
    as_json: AsJson = False,
) -> None:
    """Explain a portfolio: stages, time, options, when a stage applies, and who contributes what."""
    from verifolio.cli.output import say, say_json

    from .runs import make_source, read_runs

    source = make_source(instances, timeout, timeout_cap, 1)
    runs = read_runs(results or [], source)
    refusals: list[str] | None = None
    found: list[tuple[str, Portfolio]]
    if on is not None:
        found, refusals = _for_query(portfolio, on, cores)
    else:
        found = _portfolios(portfolio)
    records = []
    for condition, one in found:
        records.append(_record(condition, one, timeout, refusals, runs, source))
    if as_json:
        say_json({"portfolios": records})
        return
    for (condition, one), record in zip(found, records, strict=True):
        say(f"{one.name}{': ' + condition if condition else ''}")
        _show_tree(one, timeout, refusals)
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
