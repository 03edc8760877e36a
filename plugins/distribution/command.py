"""The commands `distribution` and `critical`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperGroup

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, RUNS, SEARCH, WRITTEN, NetworkFiles, with_default
from verifolio.cli.codes import DONE, UNDECIDED
from verifolio.cli.common import open_oracle
from verifolio.cli.expand import add_command, make_group
from verifolio.cli.output import going_on, kept_in
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle

    from .ledger import DistributionLedger
    from .run import Setting
    from .table import Row

RUN = "run"


class DefaultGroup(TyperGroup):
    """A group whose arguments belong to `run` unless they begin with another command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] == "report":
            raise typer.BadParameter(
                "`distribution report` is now `verifolio report`, with the same options", ctx=ctx
            )
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [RUN, *args]
        return list(super().parse_args(ctx, args))


@dataclass(frozen=True, kw_only=True)
class Inputs(
    bundles.Normalisation, bundles.About, bundles.Reference, bundles.Norm, bundles.Epsilon, bundles.Data
):
    """Around which inputs; the radii, if any are given, are the grid, or the limit of a search without one."""

    panel: ClassVar[str] = INPUTS
    epsilon: str = with_default(bundles.Epsilon, "epsilon", default="")


@dataclass(frozen=True, kw_only=True)
class ManyInputs(Inputs, bundles.Indices):
    """Which inputs of the data."""


@dataclass(frozen=True, kw_only=True)
class Search(bundles.Bundle):
    """How a critical radius is searched."""

    panel: ClassVar[str] = SEARCH
    search: str = described(
        "", "bracket, binary, k-binary (the default with --epsilon), closest, or a plugin's.", metavar="NAME"
    )
    search_option: tuple[str, ...] = described((), "An option of the search, key=value.", metavar="KEY=VALUE")
    tolerance: float = described(1e-3, "How narrow a bracket must be.")
    k: int = described(2, "Queries at the same time in k-binary.", min=1)
    budget: float = described(60.0, "Seconds per input, 0 for no limit.", metavar="SECONDS", min=0.0)


@dataclass(frozen=True, kw_only=True)
class Running(bundles.Running):
    """What runs; an input's --budget is the limit, unless one is set for its queries."""

    panel: ClassVar[str] = RUNS
    timeout: float = with_default(bundles.Running, "timeout", default=0.0)


@dataclass(frozen=True, kw_only=True)
class RunningMany(bundles.RunningMany):
    """What runs; an input's --budget is the limit, unless one is set for its queries."""

    panel: ClassVar[str] = RUNS
    timeout: float = with_default(bundles.RunningMany, "timeout", default=0.0)


@dataclass(frozen=True, kw_only=True)
class Written(bundles.Certificate, bundles.KeepQueries, bundles.Csv, bundles.Json):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    verona: str = described("", "Also write the table in VERONA's columns.", metavar="FILE")


def make_commands() -> typer.Typer:
    """The group `distribution`."""
    text = (
        "Bracket the critical radii of many inputs. `distribution NETWORK... --data SPEC --store STORE`, then "
        "`verifolio report STORE`."
    )
    group = make_group(text, cls=DefaultGroup)
    add_command(group, RUN, distribution)
    return group


def distribution(
    networks: NetworkFiles, inputs: ManyInputs, search: Search, running: RunningMany, written: Written
) -> None:
    """Bracket the critical radii of many inputs.

    The property is proved below the bracket, and refuted above it by a point that was replayed. Killed at any
    moment and started again with the same --store, it continues. The word `run` may be left out. --timeout is
    for single queries; without one, only --budget limits an input.

    Example:
        verifolio distribution examples/networks/digits_dense.onnx --data digits --indices 1:2 \\
            --tolerance 0.01 --store radii.db --csv radii.csv
    """
    from verifolio.onnx_import.network import Network

    from .run import make_items

    setting = make_setting(inputs, search, running.timeout)
    sets = [(one, inputs.positions(len(one))) for one in inputs.datasets()]
    items = make_items([Network.load(n) for n in networks], sets, setting.prop.networks)
    lanes = running.jobs * setting.estimator.lanes
    with (
        going_on(*kept_in(running.store)),
        open_oracle(running, lanes) as oracle,
        open_ledger(running.store) as ledger,
    ):
        setting = identified(setting, oracle)
        check_first(setting, items, oracle, bool(written.certificate))
        rows = run_all(setting, items, oracle, ledger, running.jobs, written)
    finish(rows, setting, written)


def run_all(
    setting: Setting, items: Any, oracle: Oracle, ledger: DistributionLedger, jobs: int, written: Written
) -> list[Row]:
    """Run, and keep the tables up to date as inputs finish."""
    from verifolio.cli.output import complain

    from .certificates import certify_all
    from .progress import Reporter
    from .run import Distribution
    from .table import write_csv, write_verona

    def save(rows: list[Row]) -> None:
        if written.csv:
            write_csv(Path(written.csv), rows)
        if written.verona:
            write_verona(Path(written.verona), rows)

    keep = written.keep_queries
    told: list[str] = []
    with Reporter(written.json) as report:
        task = Distribution(setting, items, oracle, ledger, jobs, Path(keep) if keep else None)

        def listen(row: Row, done: int, total: int) -> None:
            report(row, done, total)
            oracle.plugins.manager.hook.progress(done=done, total=total, message="inputs")
            save(task.rows())

        task.listen = listen
        rows = task.run()
        if written.certificate:
            told = certify_all(task, Path(written.certificate), oracle)
    for line in told:
        complain(line)
    save(rows)
    return rows


def check_first(setting: Setting, items: Any, oracle: Oracle, certificates: bool = False) -> None:
    """Bad input shows before hours of work: the first input of every network and data set, all their values."""
    from verifolio.data import check_range
    from verifolio.solve.certifying import Certifying

    from .families import make_family

    seen: set[tuple[str, str]] = set()
    for item in items:
        check_range(item.data, [item.index], setting.low, setting.high)
        if (item.name, item.split) not in seen:
            seen.add((item.name, item.split))
            networks = [n.computed_by(oracle.compute) for n in item.networks]
            family = make_family(setting, networks, item.data, item.index, "")
            setting.estimator.check(family, oracle.batch_portfolio)
            if certificates:
                Certifying(oracle).require(family.query(setting.tolerance))


def make_setting(inputs: Inputs, search: Search, timeout: float) -> Setting:
    """The options as typed settings; the property is looked up, so that a wrong one shows at once."""
    from verifolio.cli.parse import parse_numbers
    from verifolio.errors import InputError

    from .run import Setting, search_choices, search_of

    radii = inputs.radii
    name = search.search or ("k-binary" if radii else "bracket")
    choices = search_choices(name, search.search_option, search.k)
    grid = search_of(name, choices).grid
    if grid and not radii:
        remedy = "add --epsilon 0.001:0.4:0.002"
        raise InputError("--search", "--epsilon for a search on a grid", "none", remedy)
    low, high = inputs.limits
    setting = Setting(
        search=name,
        choices=choices,
        radii=radii if grid else (),
        tolerance=search.tolerance,
        largest=radii[-1] if radii and not grid else 0.0,
        norm=inputs.order,
        timeout=timeout or math.inf,
        budget=search.budget or math.inf,
        reference=inputs.reference,
        mean=parse_numbers(inputs.mean, "--mean"),
        std=parse_numbers(inputs.std, "--std"),
        low=low,
        high=high,
        about=inputs.property,
        options=inputs.property_option,
    )
    setting.prop  # noqa: B018
    return setting


def open_ledger(store: str) -> DistributionLedger:
    """The ledger in the store's file, or in memory."""
    from .ledger import DistributionLedger

    return DistributionLedger(store or ":memory:")


def identified(setting: Setting, oracle: Oracle) -> Setting:
    """The setting with what decides the answers: another portfolio or seed is another run."""
    from dataclasses import replace

    return replace(setting, portfolio=f"{oracle.portfolio_key}:{oracle.seed}")


def finish(rows: list[Row], setting: Setting, written: Written) -> None:
    """Print the table and its summary; leave with 3 if something stayed open."""
    from verifolio.cli.output import say, say_json, table
    from verifolio.errors import InputError

    from .radius_search import SearchStatus
    from .summary import summarise
    from .table import COLUMNS, MORE, cells, more_cells

    failed = [r for r in rows if r.status is SearchStatus.ERROR]
    if rows and len(failed) == len(rows):
        raise InputError("distribution", "at least one input that can be measured", failed[0].reason)
    summaries = [summarise(name, split, part) for (name, split), part in grouped(rows).items()]
    if written.json:
        records = [
            dict(zip((*COLUMNS, *MORE), cells(r) + more_cells(r), strict=True))
            | {"flags": r.flags, "reason": r.reason}
            for r in rows
        ]
        say_json({"run": setting.run, "rows": records, "summary": [s.as_dict() for s in summaries]})
    else:
        if not written.csv:
            table(COLUMNS, [cells(r) for r in rows])
        for one in summaries:
            say(one.text())
    undecided = any(r.status in (SearchStatus.OPEN, SearchStatus.ERROR) for r in rows)
    raise typer.Exit(UNDECIDED if undecided else DONE)


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by network and split, in the order they come."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.network, row.split), []).append(row)
    return found
