"""The command `critical`: the critical radius of one input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, NetworkFiles
from verifolio.cli.codes import DONE, UNDECIDED
from verifolio.cli.common import open_oracle
from verifolio.cli.output import going_on, kept_in
from verifolio.plugin.options import described

from .command import Inputs, Running, Search, identified, make_setting, open_ledger

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network
    from verifolio.plugin.data_source import Dataset
    from verifolio.solve.oracle import Oracle

    from .family import Family
    from .ledger import DistributionLedger
    from .radius_search import Critical
    from .run import Setting


@dataclass(frozen=True, kw_only=True)
class OneInput(Inputs):
    """Which input of the data."""

    panel: ClassVar[str] = INPUTS
    index: int = described(0, "Which input of the data.", min=0)


@dataclass(frozen=True, kw_only=True)
class Written(bundles.Certificate, bundles.KeepQueries, bundles.Picture, bundles.Json):
    """What is written."""


def critical(
    networks: NetworkFiles, inputs: OneInput, search: Search, running: Running, written: Written
) -> None:
    """Bracket the critical radius of one input.

    The closest counterexample is reported too. --timeout is for single queries; without one, only --budget
    limits the search.

    Example:
        verifolio critical examples/networks/digits_dense.onnx --data digits --index 1 --tolerance 0.01
    """
    from verifolio.data import parse_indices
    from verifolio.onnx_import.network import Network

    setting = make_setting(inputs, search, running.timeout)
    loaded = inputs.dataset()
    parse_indices(str(inputs.index), len(loaded))
    lanes = setting.estimator.lanes
    with (
        going_on(*kept_in(running.store)),
        open_oracle(running, lanes) as oracle,
        open_ledger(running.store) as ledger,
    ):
        setting = identified(setting, oracle)
        chosen = [Network.load(n).computed_by(oracle.compute) for n in networks]
        one_input(setting, oracle, ledger, chosen, loaded, inputs.index, written)


def one_input(
    setting: Setting,
    oracle: Oracle,
    ledger: DistributionLedger,
    networks: list[Network],
    data: Dataset,
    index: int,
    written: Written,
) -> None:
    """Search, print, draw."""
    from verifolio.cli.output import say, say_json
    from verifolio.solve.certifying import Certifying

    from .certificates import certify_radius
    from .families import make_family
    from .radius_search import SearchStatus
    from .run import Distribution, Item

    name = f"{networks[0].path.name}_{data.split or data.name}_{index}"
    family = make_family(setting, networks, data, index, name)
    setting.estimator.check(family, oracle.batch_portfolio)
    if written.certificate:
        Certifying(oracle).require(family.query(setting.tolerance))
    label, predicted = family.label, family.predicted
    if predicted != label:
        facts: dict[str, Any] = {"status": "misclassified", "label": label, "predicted": predicted}
        say_json(facts) if written.json else say(f"misclassified: label {label}, predicted {predicted}")
        raise typer.Exit(DONE)
    ledger.begin(setting.run, setting.__dict__)
    keep = written.keep_queries
    task = Distribution(setting, (), oracle, ledger, keep=Path(keep) if keep else None)
    found = task.search(family)
    item = Item(0, tuple(networks), networks[0].path.name, data, data.split or data.name, index)
    task.finish(item, family, found)
    facts = describe(family, found)
    if written.certificate:
        seconds = setting.budget
        facts["certificate"] = certify_radius(
            item, family, found.lower, Path(written.certificate), oracle, seconds
        )
    if written.json:
        say_json(facts)
    else:
        for key, value in facts.items():
            if value is not None and key != "counterexample":
                say(f"{key}: {value}")
    if written.picture and found.witness is not None:
        from .figures import draw_counterexample

        draw_counterexample(Path(written.picture), family, found, data.shape)
    raise typer.Exit(DONE if found.status is SearchStatus.CLOSED else UNDECIDED)


def describe(family: Family, found: Critical) -> dict[str, Any]:
    """A search's result for programs and people."""
    becomes = None if found.witness is None else family.class_of(found.witness)
    return {
        "status": found.status.value,
        "lower": found.lower,
        "upper": found.upper,
        "gap": found.gap,
        "label": family.label,
        "becomes": becomes,
        "distance": found.distance,
        "seconds": round(found.seconds, 3),
        "queries": found.queries,
        "cancelled": found.cancelled,
        "reused": found.reused,
        "flags": ", ".join(sorted(f.value for f in found.flags)) or None,
        "reason": found.reason or None,
        "counterexample": found.witness,
    }
