"""The command line of the metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, SEARCH, WRITTEN, NetworkFiles, RunningMany
from verifolio.cli.common import open_oracle
from verifolio.cli.output import going_on, kept_in
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network
    from verifolio.plugin.data_source import Dataset
    from verifolio.plugin.property import Property, Reference
    from verifolio.solve.oracle import Oracle

    from .metrics import Item, Row, Sampling


@dataclass(frozen=True, kw_only=True)
class Inputs(bundles.About, bundles.Reference, bundles.Norm, bundles.Epsilon, bundles.Indices, bundles.Data):
    """Around which inputs, and how far."""

    panel: ClassVar[str] = INPUTS
    correct: bool = described(False, "Skip inputs that are misclassified.")

    def references(self, networks: list[Network], dataset: Dataset, epsilon: float) -> dict[int, Reference]:
        """By position in the data set."""
        from verifolio.data import check_range, check_shape
        from verifolio.onnx_import.values_at import classes_at
        from verifolio.plugin.property import Reference

        low, high = self.limits
        indices = self.positions(len(dataset))
        for network in networks:
            check_shape(dataset, network)
        check_range(dataset, indices, low, high)
        labels = {i: int(dataset.labels[i]) for i in indices}
        if self.correct or self.reference == "predicted":
            points = [dataset.image(i) for i in indices]
            classes = dict(zip(indices, networks[0].compute(classes_at, networks[0], points), strict=True))
            labels = {i: c for i, c in classes.items() if not self.correct or c == labels[i]}
        place = (epsilon, self.order, low, high)
        return {
            i: Reference(dataset.image(i), label, *place, origin=dataset.origin(i))
            for i, label in labels.items()
        }


@dataclass(frozen=True, kw_only=True)
class Metrics(bundles.Attack):
    """What is measured, and how."""

    panel: ClassVar[str] = SEARCH
    metrics: str = described("csat,csec,cacc", "Some of csat, csec and cacc, with commas.", metavar="LIST")
    samples: int = described(100, "Samples per input for cacc.", min=1)
    confidence: float = described(0.95, "Confidence of the interval around cacc.")
    interval: Literal["wilson", "exact"] = described(
        "wilson", "Whose interval: Wilson's, or the exact one of Clopper and Pearson."
    )


@dataclass(frozen=True, kw_only=True)
class Written(bundles.Picture, bundles.Csv, bundles.Json):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    items: str = described("", "Write one line per input into this file (CSV).", metavar="FILE")


def measure(
    networks: NetworkFiles, inputs: Inputs, metrics: Metrics, running: RunningMany, written: Written
) -> None:
    """Measure how well networks satisfy a property around inputs.

    csat: the property is proved, refuted or open by verification. csec: it survives an attack. cacc: how many
    uniform samples pass, with a confidence interval. Misclassified inputs are counted apart, as `verify --data` does;
    in the percentages they count against the network.

    Example:
        verifolio measure examples/networks/digits_dense.onnx --data digits --indices 0:3 \\
            --epsilon 0.01,0.02 --metrics csat,cacc --timeout 10
    """
    wanted, sampling = check_metrics(metrics.metrics), check_sampling(metrics, running.seed)
    prop = inputs.chosen_property()
    groups = grouped(networks, prop)
    rows: list[Row] = []
    with going_on(*kept_in(running.store)), ExitStack() as stack:
        oracles = {}
        if "csec" in wanted:
            oracles["csec"] = stack.enter_context(open_oracle(attacking(running, metrics), running.jobs))
        if "csat" in wanted or not oracles:  # samples need workers too
            oracles["csat"] = stack.enter_context(open_oracle(running, running.jobs))
        try:
            for group in groups:
                for row in measure_network(group, prop, inputs, wanted, oracles, sampling):
                    rows.append(row)
        except KeyboardInterrupt:
            finish(rows, sampling, written)  # the radii that are done
            raise
    finish(rows, sampling, written)


def attacking(running: RunningMany, attack: bundles.Attack) -> RunningMany:
    """The same run with the attack in place of the verifiers."""
    return replace(
        running,
        verifier=attack.attack or running.verifier or "pgd",
        portfolio="",
        option=attack.attack_option,
        timeout=attack.attack_timeout,
    )


def finish(rows: list[Row], sampling: Sampling, written: Written) -> None:
    """Print and write what was asked for."""
    from verifolio.cli.output import say_json

    from .metrics import summarise
    from .report import draw_curves, show, write_items, write_summary

    if not rows:
        return
    summaries = [summarise(row, sampling) for row in rows]
    if written.json:
        say_json({"rows": summaries, "items": [[asdict(i) for i in r.items] for r in rows]})
    else:
        show(summaries)
    if written.csv:
        write_summary(Path(written.csv), summaries)
    if written.items:
        write_items(Path(written.items), rows)
    if written.picture:
        draw_curves(Path(written.picture), summaries)


def measure_network(
    networks: list[Network],
    prop: Property,
    inputs: Inputs,
    wanted: list[str],
    oracles: dict[str, Oracle],
    sampling: Sampling,
) -> Iterator[Row]:
    """All radii of one network (or pair), as they are done."""
    from .metrics import Item, Row, accuracy, asked_apart, misclassified_at

    dataset, compute = inputs.dataset(), next(iter(oracles.values())).compute
    networks = [n.computed_by(compute) for n in networks]
    name = "+".join(n.path.stem for n in networks)
    for epsilon in inputs.radii:
        known = inputs.references(networks, dataset, epsilon)
        items: list[Item] = [Item(i, r.label) for i, r in known.items()]
        references = list(known.values())
        wrong = misclassified_at(prop, networks, references)
        for metric in (m for m in ("csat", "csec") if m in wanted):
            oracle = oracles[metric]
            items = asked_apart(metric, oracle, prop, networks, references, items, wrong, progress)
        if "cacc" in wanted:
            items = accuracy(prop, networks, references, items, sampling, progress)
        yield Row(name, prop.name, epsilon, tuple(items))


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


def check_sampling(metrics: Metrics, seed: int) -> Sampling:
    from .metrics import Sampling

    confidence = metrics.confidence
    if not 0 < confidence < 1:
        raise _bad("--confidence", "a number between 0 and 1", str(confidence))
    return Sampling(metrics.samples, confidence, metrics.interval, seed)


def progress(done: int, total: int, message: str) -> None:
    """A counter on a terminal, nothing in a pipe."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{message} {done}/{total}{end}")


def _bad(where: str, expected: str, got: str) -> Exception:
    from verifolio.errors import InputError

    return InputError(where, expected, repr(got))
