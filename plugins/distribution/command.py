"""The commands `distribution` and `critical`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from verifolio.cli.common import (
    Address,
    AsJson,
    Cores,
    Device,
    ExecutorName,
    Layout,
    Memory,
    OptionPairs,
    PortfolioFile,
    Range,
    Seed,
    StoreFile,
    Timeout,
    VerifierName,
    at,
    open_oracle,
)

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle

    from .ledger import Ledger
    from .run import Setting
    from .table import Row

RUN = "run"


class DefaultGroup(TyperGroup):
    """A group whose arguments belong to `run` unless they begin with another command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [RUN, *args]
        return list(super().parse_args(ctx, args))


group = typer.Typer(
    cls=DefaultGroup,
    no_args_is_help=True,
    help="Critical radii of many inputs: `distribution NETWORK... --data SPEC`, then `distribution report`.",
)
Networks = Annotated[list[str], typer.Argument(metavar="NETWORK...", help="ONNX files.")]
DataSpec = Annotated[str, typer.Option("--data", help="NAME, NAME:SPLIT or a file.")]
Search = Annotated[
    str, typer.Option(help="bracket, binary, k-binary (the default with --epsilons) or closest.")
]
Epsilons = Annotated[str, typer.Option(help="The grid, start:stop:step; its end is bracket's limit.")]
Tolerance = Annotated[float, typer.Option(help="How narrow a bracket must be.")]
K = Annotated[int, typer.Option("--k", min=1, help="Queries at the same time in k-binary.")]
BudgetSeconds = Annotated[float, typer.Option("--budget", help="Seconds per input, 0 for no limit.")]
Norm = Annotated[str, typer.Option(help="linf, l2 or l1.")]
Reference = Annotated[str, typer.Option(help="What must not change: the `label`, or what is `predicted`.")]
Mean = Annotated[str, typer.Option(help="What the network expects subtracted, per channel.")]
Std = Annotated[str, typer.Option(help="What the network expects divided by, per channel.")]
PropertyName = Annotated[str, typer.Option("--property", help="A name, FILE.yaml or FILE.py.")]
PropertyOptions = Annotated[
    list[str] | None, typer.Option("--property-option", help="An option of the property, key=value.")
]
Keep = Annotated[str, typer.Option("--keep-queries", help="Write every query to this folder as VNN-LIB.")]


@group.command(RUN)
def distribution(
    networks: Networks,
    data: Annotated[list[str], typer.Option(help="NAME, NAME:SPLIT or a file; repeat for several.")],
    indices: Annotated[str, typer.Option(help="Which inputs, such as 0:100 or 3,5,8.")] = "0:100",
    search: Search = "",
    epsilons: Epsilons = "",
    tolerance: Tolerance = 1e-3,
    k: K = 2,
    timeout: Timeout = 0.0,
    budget: BudgetSeconds = 60.0,
    norm: Norm = "linf",
    reference: Reference = "label",
    mean: Mean = "",
    std: Std = "",
    range_: Range = "0,1",
    layout: Layout = "",
    property_: PropertyName = "classification",
    property_option: PropertyOptions = None,
    verifier: VerifierName = "",
    portfolio: PortfolioFile = "",
    option: OptionPairs = None,
    memory: Memory = 0.0,
    cores: Cores = 1,
    device: Device = "cpu",
    store: StoreFile = "",
    csv: Annotated[str, typer.Option(help="Write the table here, kept up to date.")] = "",
    verona: Annotated[str, typer.Option(help="Also write it in VERONA's columns.")] = "",
    keep_queries: Keep = "",
    jobs: Annotated[int, typer.Option(min=1, help="Inputs at the same time.")] = 1,
    seed: Seed = 0,
    executor: ExecutorName = "process",
    address: Address = "",
    as_json: AsJson = False,
) -> None:
    """Bracket the critical radius of many inputs: proved below, refuted by a replayed point above.

    Killed at any moment and started again with the same --store, it continues.
    """
    from verifolio.data import in_layout, load_data, parse_indices
    from verifolio.onnx_import.network import Network

    from .run import make_items

    setting = make_setting(
        (search, k, epsilons, tolerance, norm, timeout, budget, reference, mean, std, range_),
        property_,
        property_option,
    )
    loaded = [in_layout(load_data(spec), layout) for spec in data]
    sets = [(one, parse_indices(indices, len(one))) for one in loaded]
    items = make_items([Network.load(n) for n in networks], sets, setting.prop.networks)
    lanes = jobs * (k if setting.search == "k-binary" else 1)
    place = at(executor, address)
    members = (verifier, portfolio, option, timeout, memory, cores, seed, store, place, device, lanes)
    with open_oracle(*members) as oracle, open_ledger(store) as ledger:
        setting = identified(setting, oracle)
        check_first(setting, items)
        rows = run_all(setting, items, oracle, ledger, jobs, (csv, verona, keep_queries), as_json)
    finish(rows, setting, as_json, csv)


def run_all(
    setting: Setting,
    items: Any,
    oracle: Oracle,
    ledger: Ledger,
    jobs: int,
    files: tuple[str, str, str],
    quiet: bool,
) -> list[Row]:
    """Run, and keep the tables up to date as inputs finish."""
    from .progress import Reporter
    from .run import Distribution
    from .table import write_csv, write_verona

    csv, verona, keep = files

    def save(rows: list[Row]) -> None:
        if csv:
            write_csv(Path(csv), rows)
        if verona:
            write_verona(Path(verona), rows)

    with Reporter(quiet) as report:
        task = Distribution(setting, items, oracle, ledger, jobs, Path(keep) if keep else None)

        def listen(row: Row, done: int, total: int) -> None:
            report(row, done, total)
            save(task.rows())

        task.listen = listen
        rows = task.run()
    save(rows)
    return rows


def check_first(setting: Setting, items: Any) -> None:
    """Bad input shows before hours of work: the first input of every network and data set, all their values."""
    from verifolio.data import check_range

    from .closest import check_exact
    from .run import make_family

    seen: set[tuple[str, str]] = set()
    for item in items:
        check_range(item.data, [item.index], setting.low, setting.high)
        if (item.name, item.split) not in seen:
            seen.add((item.name, item.split))
            family = make_family(setting, item.networks, item.data, item.index, "")
            if setting.search == "closest":
                check_exact(family)


def make_setting(given: tuple[Any, ...], about: str, options: list[str] | None) -> Setting:
    """The options as typed settings; the property is looked up, so that a wrong one shows at once."""
    from verifolio.data import parse_range
    from verifolio.errors import InputError

    from .parse import parse_epsilons, parse_norm, parse_numbers
    from .run import Setting

    search, k, epsilons, tolerance, norm, timeout, budget, reference, mean, std, range_ = given
    radii = parse_epsilons(epsilons) if epsilons else ()
    search = search or ("k-binary" if radii else "bracket")
    limits = parse_range(range_)
    if reference not in ("label", "predicted"):
        raise InputError("--reference", "label or predicted", repr(reference))
    grid = search not in ("bracket", "closest")
    if grid and not radii:
        raise InputError(
            "--search", "--epsilons for a search on a grid", "none", "add --epsilons 0.001:0.4:0.002"
        )
    setting = Setting(
        search,
        k if search == "k-binary" else 1,
        radii if grid else (),
        tolerance,
        radii[-1] if radii and not grid else 0.0,
        parse_norm(norm),
        timeout or math.inf,
        budget or math.inf,
        reference,
        parse_numbers(mean, "--mean"),
        parse_numbers(std, "--std"),
        *limits,
        about,
        tuple(options or ()),
    )
    setting.prop  # noqa: B018
    return setting


def open_ledger(store: str) -> Ledger:
    """The ledger in the store's file, or in memory."""
    from .ledger import Ledger

    return Ledger(store or ":memory:")


def identified(setting: Setting, oracle: Oracle) -> Setting:
    """The setting with what decides the answers: another portfolio or seed is another run."""
    from dataclasses import replace

    from .closest import chosen

    if setting.search == "closest":
        chosen(oracle)  # says at once that nobody minimises
    return replace(setting, portfolio=f"{oracle.portfolio_key}:{oracle.settings.seed}")


def finish(rows: list[Row], setting: Setting, as_json: bool, csv: str) -> None:
    """Print the table and its summary; leave with 3 if something stayed open."""
    from verifolio.cli.main import DONE, UNDECIDED
    from verifolio.cli.output import say, say_json, table
    from verifolio.errors import InputError

    from .search import Status
    from .summary import summarise
    from .table import COLUMNS, MORE, cells, more_cells

    failed = [r for r in rows if r.status is Status.ERROR]
    if rows and len(failed) == len(rows):
        raise InputError("distribution", "at least one input that can be measured", failed[0].reason)
    summaries = [summarise(name, split, part) for (name, split), part in grouped(rows).items()]
    if as_json:
        records = [
            dict(zip((*COLUMNS, *MORE), cells(r) + more_cells(r), strict=True))
            | {"flags": r.flags, "reason": r.reason}
            for r in rows
        ]
        say_json({"run": setting.run, "rows": records, "summary": [s.as_dict() for s in summaries]})
    else:
        if not csv:
            table(COLUMNS, [cells(r) for r in rows])
        for one in summaries:
            say(one.text())
    undecided = any(r.status in (Status.OPEN, Status.ERROR) for r in rows)
    raise typer.Exit(UNDECIDED if undecided else DONE)


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by network and split, in the order they come."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.network, row.split), []).append(row)
    return found


@group.command("report")
def report(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Stores or tables of distributions.")
    ],
    out: Annotated[str, typer.Option(help="The folder for index.html and the pictures.")] = "report",
    thresholds: Annotated[str, typer.Option(help="Radii at which to count, with commas.")] = "",
    run: Annotated[str, typer.Option(help="Only this run of a store (the default is its last).")] = "",
    step: Annotated[
        float,
        typer.Option(help="The grid's step, for tables that do not name their time-outs; 0: the run's."),
    ] = 0.0,
    section: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this section; repeat for more (statistics, pictures, comparisons, or a plugin's)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Statistics and pictures of stored distributions: one self-contained page."""
    from verifolio.cli.output import say, say_json

    from .parse import parse_numbers
    from .report import build_report, load_costs, load_rows

    paths = [Path(s) for s in sources]
    rows, known_step = load_rows(paths, run)
    radii = parse_numbers(thresholds, "--thresholds")
    made = build_report(rows, Path(out), radii, step or known_step, load_costs(paths), section or ())
    if as_json:
        say_json(made.as_dict())
    else:
        for line in made.lines():
            say(line)
        say(f"written: {made.page}")
