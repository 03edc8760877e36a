"""Critical radii: how far around an input the property is proved, and how close its nearest counterexample is."""

from __future__ import annotations

import csv
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verifolio.results.counterexample import Counterexample
from verifolio.results.folder import copy_store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from verifolio.onnx_import.network import Network

RadiusStatus = Literal["closed", "open", "misclassified", "error"]
STATUSES: tuple[RadiusStatus, ...] = ("closed", "open", "misclassified", "error")
COLUMNS = (
    *("network", "index", "status", "lower", "upper", "label", "predicted"),
    *("verifier", "seconds", "reused", "reason"),
)
SHOWN = 3  # counterexamples in a notebook's short form
ROWS = 20  # inputs in a notebook's short form


@dataclass(frozen=True, eq=False)
class Kept:
    """Where radii come from: networks by name, the norm, the store and what keeps its folder, further facts."""

    networks: Mapping[str, tuple[Network, ...]]
    norm: str
    store: Path
    folder: object = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CriticalRadius:
    """The critical radius of one input lies between `lower` and `upper`.

    No counterexample is at `lower` or closer; one is at `upper` (None: none is known). `status` is closed (as narrow
    as was asked for), open (and `reason` may say why), misclassified (the network is wrong at the input itself, so
    nothing was asked) or error.
    """

    network: str
    index: int
    status: RadiusStatus
    lower: float | None
    upper: float | None
    label: str
    predicted: str
    _kept: Kept = field(repr=False)
    verifier: str = ""
    seconds: float = 0.0
    reused: bool = False
    reason: str = ""
    counterexample: Counterexample | None = None

    def __repr__(self) -> str:
        return f"CriticalRadius({self.line()})"

    def proved_at(self, radius: float) -> bool:
        """Whether no counterexample is within this radius."""
        return self.lower is not None and radius <= self.lower

    def refuted_at(self, radius: float) -> bool:
        """Whether a counterexample is within this radius, or the input itself is one."""
        return self.status == "misclassified" or (self.upper is not None and radius >= self.upper)

    def line(self) -> str:
        """One line for people."""
        text = f"{self.index}: {self.status}"
        if self.status == "misclassified":
            return f"{text}, {self.label} is predicted as {self.predicted}"
        if self.lower is not None:
            end = "no counterexample known" if self.upper is None else f"counterexample at {self.upper:.5g}"
            text += f", proved to {self.lower:.5g}, {end}"
        if self.counterexample is not None:
            text += f" ({self.label} becomes {self.counterexample.prediction})"
        return text + (f": {self.reason}" if self.reason else "")

    @property
    def counterexamples(self) -> list[Counterexample]:
        """The closest one, if any is known."""
        return [] if self.counterexample is None else [self.counterexample]

    def row(self) -> dict[str, Any]:
        """Its values by the names of COLUMNS."""
        return {name: getattr(self, name) for name in COLUMNS}

    def to_pandas(self) -> Any:
        """One row (pandas.DataFrame)."""
        return as_frame([self])

    def plot(self) -> Figure:
        """The bracket and the counterexample (matplotlib.figure.Figure)."""
        return Distribution((self,), self._kept).plot()

    def save(self, folder: str | Path) -> Path:
        """Write all of it, as `Distribution.save` does."""
        return Distribution((self,), self._kept).save(folder)

    def _repr_html_(self) -> str:
        picture = "" if self.counterexample is None else self.counterexample._repr_html_()
        return f"<div><b>{html.escape(self.line())}</b>{picture}</div>"


@dataclass(frozen=True, eq=False)
class Distribution:
    """The critical radii of many inputs of one or several networks, in the order they were asked about.

    Interrupted, it has those that were finished.
    """

    radii: tuple[CriticalRadius, ...]
    _kept: Kept = field(repr=False)
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.radii)

    def __iter__(self) -> Iterator[CriticalRadius]:
        return iter(self.radii)

    def __getitem__(self, position: int) -> CriticalRadius:
        return self.radii[position]

    def __repr__(self) -> str:
        return self.text()

    @property
    def counts(self) -> dict[RadiusStatus, int]:
        """How many inputs have each status."""
        return {s: sum(r.status == s for r in self.radii) for s in STATUSES}

    @property
    def counterexamples(self) -> list[Counterexample]:
        """The closest one of each input that has any, in the order of the inputs."""
        return [c for r in self.radii for c in r.counterexamples]

    @property
    def networks(self) -> list[str]:
        """The names of the networks."""
        return list(dict.fromkeys(r.network for r in self.radii))

    def of(self, network: str) -> Distribution:
        """The part of one network."""
        return Distribution(
            tuple(r for r in self.radii if r.network == network), self._kept, self.interrupted
        )

    def text(self) -> str:
        """A line for each network."""
        lines = [self.of(name)._headline(name) for name in self.networks] or ["no input is finished"]
        more = ["interrupted: ask again with the same store to go on"] if self.interrupted else []
        return "\n".join(lines + more)

    def _headline(self, name: str) -> str:
        count = self.counts
        measured = count["closed"] + count["open"]
        text = f"{name}: critical radius of {len(self)} inputs, {count['closed']} of {measured} closed"
        others = [f"{count[s]} {s}" for s in ("misclassified", "error") if count[s]]
        lower = [r.lower for r in self.radii if r.lower is not None]
        upper = [r.upper for r in self.radii if r.upper is not None]
        if lower:
            text += f", smallest at least {min(lower):.5g}, mean at least {sum(lower) / len(lower):.5g}"
            text += f" and at most {sum(upper) / len(upper):.5g}" if len(upper) == len(lower) else ""
        return ", ".join([text, *others]) + f" ({self._kept.norm})"

    def to_pandas(self) -> Any:
        """One row per network and input (pandas.DataFrame)."""
        return as_frame(self.radii)

    def plot(self) -> Figure:
        """The share of inputs that is robust up to each radius, and counterexamples (matplotlib.figure.Figure)."""
        from verifolio.results.picture import draw_radii

        found: Figure = draw_radii(self.radii, self._kept.norm)
        return found

    def save(self, folder: str | Path) -> Path:
        """Write results.csv, result.json, the networks, a picture per counterexample, and the store.

        `verifolio report FOLDER` makes a page of it.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with (target / "results.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(r.row() for r in self.radii)
        (target / "result.json").write_text(json.dumps(self.facts(), indent=1) + "\n", encoding="utf-8")
        for name in self.networks:
            made = self._kept.networks[name]
            for k, network in enumerate(made):
                number = f"_{k}" if len(made) > 1 else ""
                (target / f"{file_name(name)}{number}.onnx").write_bytes(network.content())
        self.save_pictures(target / "counterexamples")
        copy_store(self._kept.store, target)
        return target

    def save_pictures(self, folder: str | Path) -> list[Path]:
        """A picture and a text for each counterexample, in a folder for each network where there are several."""
        written = []
        for radius in self.radii:
            place = Path(folder) / file_name(radius.network) if len(self.networks) > 1 else Path(folder)
            for found in radius.counterexamples:
                path = place / f"{found.index}.png"
                found.picture(path)
                path.with_suffix(".txt").write_text(found.text() + "\n", encoding="utf-8")
                written.append(path)
        return written

    def facts(self) -> dict[str, Any]:
        """The result in types that JSON has."""
        hashes = {name: [n.sha256 for n in self._kept.networks[name]] for name in self.networks}
        return {
            "networks": hashes,
            "norm": self._kept.norm,
            "counts": self.counts,
            "interrupted": self.interrupted,
            "inputs": [r.row() for r in self.radii],
            **self._kept.more,
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(f'{r.network} {r.line()}')}</td></tr>" for r in self.radii[:ROWS]
        )
        more = "" if len(self) <= ROWS else f"<p>and {len(self) - ROWS} more</p>"
        pictures = "".join(c.html_picture() for c in self.counterexamples[:SHOWN])
        return f"<div><pre>{html.escape(self.text())}</pre>{pictures}<table>{rows}</table>{more}</div>"


def as_frame(radii: Sequence[CriticalRadius]) -> Any:
    """One row each (pandas.DataFrame)."""
    import pandas

    return pandas.DataFrame([r.row() for r in radii], columns=list(COLUMNS))


def file_name(name: str) -> str:
    """A network's name where it must not be a path."""
    return name.replace("/", "_").replace("\\", "_").lstrip(".") or "network"
