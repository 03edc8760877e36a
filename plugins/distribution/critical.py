"""The command `critical`: the critical radius of one input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

from .command import (
    BudgetSeconds,
    DataSpec,
    Epsilons,
    K,
    Keep,
    Mean,
    Networks,
    Norm,
    PropertyName,
    PropertyOptions,
    Reference,
    Search,
    Std,
    Tolerance,
    identified,
    make_setting,
    open_ledger,
)

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network
    from verifolio.plugin.data_source import Dataset
    from verifolio.solve.oracle import Oracle

    from .family import Family
    from .ledger import Ledger
    from .run import Setting
    from .search import Critical


def critical(
    networks: Networks,
    data: DataSpec,
    index: Annotated[int, typer.Option(min=0, help="Which input.")] = 0,
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
    picture: Annotated[str, typer.Option(help="Draw the closest counterexample here (PNG).")] = "",
    keep_queries: Keep = "",
    seed: Seed = 0,
    executor: ExecutorName = "process",
    address: Address = "",
    as_json: AsJson = False,
) -> None:
    """The critical radius of one input, and its closest counterexample."""
    from verifolio.data import in_layout, load_data, parse_indices
    from verifolio.onnx_import.network import Network

    setting = make_setting(
        (search, k, epsilons, tolerance, norm, timeout, budget, reference, mean, std, range_),
        property_,
        property_option,
    )
    loaded = in_layout(load_data(data), layout)
    parse_indices(str(index), len(loaded))
    lanes = k if setting.search == "k-binary" else 1
    place = at(executor, address)
    members = (verifier, portfolio, option, timeout, memory, cores, seed, store, place, device, lanes)
    with open_oracle(*members) as oracle, open_ledger(store) as ledger:
        setting = identified(setting, oracle)
        chosen = [Network.load(n) for n in networks]
        one_input(setting, oracle, ledger, chosen, loaded, index, (picture, keep_queries), as_json)


def one_input(
    setting: Setting,
    oracle: Oracle,
    ledger: Ledger,
    networks: list[Network],
    data: Dataset,
    index: int,
    files: tuple[str, str],
    as_json: bool,
) -> None:
    """Search, print, draw."""
    from verifolio.cli.main import DONE, UNDECIDED
    from verifolio.cli.output import say, say_json

    from .closest import check_exact
    from .run import Distribution, make_family
    from .search import Status

    name = f"{networks[0].path.name}_{data.split or data.name}_{index}"
    family = make_family(setting, networks, data, index, name)
    if setting.search == "closest":
        check_exact(family)
    predicted = family.predict()[0]
    if predicted != family.label:
        facts: dict[str, Any] = {"status": "misclassified", "label": family.label, "predicted": predicted}
        say_json(facts) if as_json else say(f"misclassified: label {family.label}, predicted {predicted}")
        raise typer.Exit(DONE)
    ledger.begin(setting.run, setting.__dict__)
    task = Distribution(setting, (), oracle, ledger, keep=Path(files[1]) if files[1] else None)
    found = task.search(family)
    facts = describe(family, found)
    if as_json:
        say_json(facts)
    else:
        for key, value in facts.items():
            if value is not None and key != "counterexample":
                say(f"{key}: {value}")
    if files[0] and found.witness is not None:
        from .figures import draw_counterexample

        draw_counterexample(Path(files[0]), family, found, data.shape)
    raise typer.Exit(DONE if found.status is Status.CLOSED else UNDECIDED)


def describe(family: Family, found: Critical) -> dict[str, Any]:
    """A search's result for programs and people."""
    becomes = None if found.witness is None else family.predict(family.to_data(found.witness))[0]
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
