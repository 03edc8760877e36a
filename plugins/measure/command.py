"""The command line of the metrics."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from verifolio.cli.common import (
    Address,
    AsJson,
    ExecutorName,
    Layout,
    PortfolioFile,
    Range,
    Seed,
    StoreFile,
    Timeout,
    VerifierName,
    Workers,
    at,
    open_oracle,
)

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network
    from verifolio.plugin.data_source import Dataset
    from verifolio.plugin.property import Property, Reference
    from verifolio.solve.oracle import Oracle

    from .metrics import Item, Row, Sampling

NORMS = {"1": 1.0, "2": 2.0, "inf": float("inf")}


def measure(
    networks: Annotated[list[str], typer.Argument(metavar="NETWORK...", help="ONNX files.")],
    data: Annotated[str, typer.Option(help="NAME[:SPLIT] or a file.")],
    epsilon: Annotated[list[float], typer.Option(help="A radius (repeatable).")],
    property_name: Annotated[
        str, typer.Option("--property", help="A name, FILE.yaml or FILE.py.")
    ] = "classification",
    option: Annotated[list[str] | None, typer.Option(help="An option of the property, key=value.")] = None,
    indices: Annotated[str, typer.Option(help="Which inputs, such as 0:100,105.")] = "0:20",
    metrics: Annotated[str, typer.Option(help="Some of csat,csec,cacc.")] = "csat,csec,cacc",
    norm: Annotated[str, typer.Option(help="1, 2 or inf.")] = "inf",
    legal: Range = "0,1",
    layout: Layout = "",
    labels: Annotated[
        str, typer.Option(help="data: as labelled; predicted: what the network says.")
    ] = "data",
    correct: Annotated[bool, typer.Option("--correct", help="Skip inputs that are misclassified.")] = False,
    portfolio: PortfolioFile = "",
    verifier: VerifierName = "",
    attack: Annotated[str, typer.Option(help="The attack for csec: any verifier that falsifies.")] = "pgd",
    attack_option: Annotated[
        list[str] | None, typer.Option(help="An option of the attack, key=value.")
    ] = None,
    attack_timeout: Annotated[float, typer.Option(help="Seconds per attack.")] = 2.0,
    samples: Annotated[int, typer.Option(min=1, help="Samples per input for cacc.")] = 100,
    confidence: Annotated[float, typer.Option(help="Of the interval around cacc.")] = 0.95,
    interval: Annotated[str, typer.Option(help="wilson or exact (Clopper-Pearson).")] = "wilson",
    timeout: Timeout = 30.0,
    workers: Workers = 1,
    seed: Seed = 0,
    store: StoreFile = "",
    executor: ExecutorName = "process",
    address: Address = "",
    csv: Annotated[str, typer.Option(help="Write one line per network and radius.")] = "",
    items: Annotated[str, typer.Option(help="Write one line per input.")] = "",
    plot: Annotated[str, typer.Option(help="Draw curves against epsilon (png, svg, pdf).")] = "",
    as_json: AsJson = False,
) -> None:
    """Measure how well networks satisfy a property around inputs.

    csat: the property is proved, refuted or open by verification. csec: it survives an attack. cacc: how many
    uniform samples pass, with a confidence interval.
    """
    from verifolio.plugin.options import split_pairs
    from verifolio.properties.file import choose_property

    wanted, sampling = check_metrics(metrics), check_sampling(samples, confidence, interval, seed)
    prop = choose_property(property_name, split_pairs(option or []))
    around = Around(data, indices, epsilon, norm, legal, layout, labels, correct)
    limits = Limits(timeout, seed, store, at(executor, address), workers)
    groups = grouped(networks, prop)
    with ExitStack() as stack:
        oracles = {}
        if "csat" in wanted:
            oracles["csat"] = stack.enter_context(open_oracle(verifier, portfolio, **asdict(limits)))
        if "csec" in wanted:
            own = asdict(limits) | {"timeout": attack_timeout}
            oracles["csec"] = stack.enter_context(open_oracle(attack, option=attack_option, **own))
        rows = [r for g in groups for r in measure_network(g, prop, around, wanted, oracles, sampling)]
    finish(rows, sampling, as_json, csv, items, plot)


def finish(rows: list[Row], sampling: Sampling, as_json: bool, csv: str, items: str, plot: str) -> None:
    """Print and write what was asked for."""
    from verifolio.cli.output import say_json

    from .metrics import summarise
    from .report import draw_curves, show, write_items, write_summary

    summaries = [summarise(row, sampling) for row in rows]
    if as_json:
        say_json({"rows": summaries, "items": [[asdict(i) for i in r.items] for r in rows]})
    else:
        show(summaries)
    if csv:
        write_summary(Path(csv), summaries)
    if items:
        write_items(Path(items), rows)
    if plot:
        draw_curves(Path(plot), summaries)


@dataclass(frozen=True)
class Limits:
    """What holds for every query."""

    timeout: float
    seed: int
    store: str
    executor: str
    workers: int


@dataclass(frozen=True)
class Around:
    """Which inputs, how far around them."""

    data: str
    indices: str
    epsilons: list[float]
    norm: str
    legal: str
    layout: str
    labels: str
    correct: bool

    def references(self, networks: list[Network], dataset: Dataset, epsilon: float) -> dict[int, Reference]:
        """By position in the data set."""
        from verifolio.data import check_range, check_shape, parse_indices, parse_range
        from verifolio.plugin.property import Reference

        low, high = parse_range(self.legal)
        indices = parse_indices(self.indices, len(dataset))
        for network in networks:
            check_shape(dataset, network)
        check_range(dataset, indices, low, high)
        if self.norm not in NORMS:
            raise _bad("--norm", "1, 2 or inf", self.norm)
        if self.labels not in ("data", "predicted"):
            raise _bad("--labels", "data or predicted", self.labels)
        found = {}
        for i in indices:
            x, label = dataset.image(i), int(dataset.labels[i])
            if self.correct or self.labels == "predicted":
                predicted = int(networks[0].replay(x).argmax())
                if self.correct and predicted != label:
                    continue
                label = predicted
            found[i] = Reference(x, label, epsilon, NORMS[self.norm], low, high)
        return found


def measure_network(
    networks: list[Network],
    prop: Property,
    around: Around,
    wanted: list[str],
    oracles: dict[str, Oracle],
    sampling: Sampling,
) -> list[Row]:
    """All radii of one network (or pair)."""
    from verifolio.data import in_layout, load_data

    from .metrics import Item, Row, accuracy, satisfaction, security

    dataset = in_layout(load_data(around.data), around.layout)
    name = "+".join(n.path.stem for n in networks)
    rows = []
    for epsilon in sorted(around.epsilons):
        known = around.references(networks, dataset, epsilon)
        items: list[Item] = [Item(i, r.label) for i, r in known.items()]
        references = list(known.values())
        if "csat" in wanted:
            items = satisfaction(oracles["csat"], prop, networks, references, items, progress)
        if "csec" in wanted:
            items = security(oracles["csec"], prop, networks, references, items, progress)
        if "cacc" in wanted:
            items = accuracy(prop, networks, references, items, sampling, progress)
        rows.append(Row(name, prop.name, epsilon, tuple(items)))
    return rows


def grouped(paths: list[str], prop: Property) -> list[list[Network]]:
    """Networks one by one, or in the groups that the property is about."""
    from verifolio.onnx_import.network import Network

    size = prop.networks
    if len(paths) % size:
        raise _bad("networks", f"a multiple of {size} networks for {prop.name}", str(len(paths)))
    loaded = [Network.load(p) for p in paths]
    return [loaded[i : i + size] for i in range(0, len(loaded), size)]


def check_metrics(text: str) -> list[str]:
    from .metrics import METRICS

    wanted = [m.strip() for m in text.split(",") if m.strip()]
    for metric in wanted or [text]:
        if metric not in METRICS:
            raise _bad("--metrics", f"some of {', '.join(METRICS)}", metric)
    return wanted


def check_sampling(samples: int, confidence: float, interval: str, seed: int) -> Sampling:
    from .metrics import Sampling

    methods: dict[str, Literal["wilson", "exact"]] = {"wilson": "wilson", "exact": "exact"}
    if interval not in methods:
        raise _bad("--interval", "wilson or exact", interval)
    if not 0 < confidence < 1:
        raise _bad("--confidence", "a number between 0 and 1", str(confidence))
    return Sampling(samples, confidence, methods[interval], seed)


def progress(done: int, total: int, message: str) -> None:
    """A counter on a terminal, nothing in a pipe."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{message} {done}/{total}{end}")


def _bad(where: str, expected: str, got: str) -> Exception:
    from verifolio.errors import InputError

    return InputError(where, expected, repr(got))
