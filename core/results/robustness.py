"""What is known around every input: proved, refuted with a counterexample, or open, and why."""

from __future__ import annotations

import csv
import html
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verifolio.results.counterexample import Counterexample
from verifolio.results.folder import copy_store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from verifolio.onnx_import.network import Network

Status = Literal["proved", "refuted", "open", "misclassified"]
STATUSES: tuple[Status, ...] = ("proved", "refuted", "open", "misclassified")
COLUMNS = ("index", "status", "label", "predicted", "distance", "verifier", "seconds", "reused", "reason")
SHOWN = 3  # counterexamples in a notebook's short form


@dataclass(frozen=True, eq=False)
class InputVerdict:
    """What is known around one input.

    `status` is proved (no counterexample exists), refuted (here is one), open (undecided, and `reason` says why), or
    misclassified (the network is wrong at the input itself, so nothing was asked).
    """

    index: int
    status: Status
    label: str
    predicted: str
    epsilon: float
    verifier: str = ""
    seconds: float = 0.0
    reason: str = ""
    flags: tuple[str, ...] = ()
    reused: bool = False
    counterexample: Counterexample | None = None

    def __repr__(self) -> str:
        return f"InputVerdict({self.line()})"

    def __bool__(self) -> bool:
        """Whether it is proved."""
        return self.status == "proved"

    def line(self) -> str:
        """One line for people."""
        text = f"{self.index}: {self.status}"
        if self.counterexample is not None:
            found = self.counterexample
            text += f", {self.label} becomes {found.prediction} at distance {found.distance:.4g}"
        elif self.status == "misclassified":
            text += f", {self.label} is predicted as {self.predicted}"
        else:
            text += f", label {self.label}"
        known = " (known before)" if self.reused else ""
        text += f", by {self.verifier} in {self.seconds:.2f} s{known}" if self.verifier else ""
        return text + (f": {self.reason}" if self.status == "open" and self.reason else "")

    def row(self) -> dict[str, Any]:
        """Its values by the names of COLUMNS."""
        found = {name: getattr(self, name) for name in COLUMNS if name != "distance"}
        near = self.counterexample
        return {
            name: (None if near is None else near.distance) if name == "distance" else found[name]
            for name in COLUMNS
        }

    def _repr_html_(self) -> str:
        picture = "" if self.counterexample is None else self.counterexample._repr_html_()
        return f"<div><b>{html.escape(self.line())}</b>{picture}</div>"


@dataclass(frozen=True, eq=False)
class Robustness:
    """What is known around many inputs of one network, in the order they were asked about.

    `accuracy` is the share of inputs with labels that the network classifies as labelled, None without labels.
    """

    network: Network
    verdicts: tuple[InputVerdict, ...]
    epsilon: str
    norm: str
    accuracy: float | None = None
    timeout: float = math.inf
    interrupted: bool = False
    store: Path | None = None
    more: dict[str, Any] = field(default_factory=dict)
    folder: object = None  # keeps the store's folder as long as the result is used

    def __len__(self) -> int:
        return len(self.verdicts)

    def __iter__(self) -> Iterator[InputVerdict]:
        return iter(self.verdicts)

    def __getitem__(self, position: int) -> InputVerdict:
        return self.verdicts[position]

    def __repr__(self) -> str:
        return self.text()

    @property
    def counts(self) -> dict[Status, int]:
        """How many inputs have each status."""
        return {s: sum(v.status == s for v in self.verdicts) for s in STATUSES}

    @property
    def counterexamples(self) -> list[Counterexample]:
        """All of them, in the order of the inputs."""
        return [v.counterexample for v in self.verdicts if v.counterexample is not None]

    @property
    def headline(self) -> str:
        """The answer in a line."""
        count = self.counts
        text = f"{count['proved']} of {len(self)} proved, {count['refuted']} with a counterexample"
        text += f", {count['open']} open"
        if count["misclassified"]:
            text += f", {count['misclassified']} misclassified"
        return f"{text} (epsilon {self.epsilon}, {self.norm})"

    def text(self) -> str:
        """The answer, and what to do about what is open."""
        lines = [f"{self.network.path.stem}: {self.headline}"]
        if self.accuracy is not None:
            right = round(self.accuracy * len(self))
            lines.append(f"accuracy on these inputs: {right} of {len(self)}")
        return "\n".join([*lines, *filter(None, (self.advice,))])

    @property
    def advice(self) -> str:
        """What could decide the rest; nothing where everything is decided."""
        left = [v for v in self.verdicts if v.status == "open"]
        if not left:
            return ""
        if self.interrupted:
            return "interrupted: ask again with the same store to go on"
        return advise([v.reason for v in left], self.timeout)

    def to_pandas(self) -> Any:
        """One row per input (pandas.DataFrame)."""
        import pandas

        return pandas.DataFrame([v.row() for v in self.verdicts], columns=list(COLUMNS))

    def plot(self) -> Figure:
        """The counts as a bar, and the first counterexamples (matplotlib.figure.Figure)."""
        from verifolio.results.picture import draw_results

        found: Figure = draw_results(self)
        return found

    def save(self, folder: str | Path) -> Path:
        """Write all of it: results.csv, result.json, the network, a picture per counterexample, and the store."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with (target / "results.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(v.row() for v in self.verdicts)
        (target / "result.json").write_text(json.dumps(self.facts(), indent=1) + "\n", encoding="utf-8")
        (target / self.network.path.name).write_bytes(self.network.content())
        self.save_pictures(target / "counterexamples")
        copy_store(self.store, target)
        return target

    def save_pictures(self, folder: str | Path) -> list[Path]:
        """A picture (PNG) and a text for each counterexample, named by the position of its input."""
        written = []
        for found in self.counterexamples:
            path = Path(folder) / f"{found.index}.png"
            found.picture(path)
            path.with_suffix(".txt").write_text(found.text() + "\n", encoding="utf-8")
            written.append(path)
        return written

    def facts(self) -> dict[str, Any]:
        """The result in types that JSON has."""
        return {
            "network": {"path": str(self.network.path), "sha256": self.network.sha256},
            "epsilon": self.epsilon,
            "norm": self.norm,
            "accuracy": self.accuracy,
            "counts": self.counts,
            "interrupted": self.interrupted,
            "inputs": [v.row() | {"flags": list(v.flags)} for v in self.verdicts],
            **self.more,
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{v.index}</td><td>{v.status}</td><td>{html.escape(v.label)}</td>"
            f"<td>{html.escape(v.predicted)}</td><td>{v.seconds:.2f}</td></tr>"
            for v in self.verdicts[:20]
        )
        more = "" if len(self) <= 20 else f"<p>and {len(self) - 20} more</p>"
        pictures = "".join(c.html_picture() for c in self.counterexamples[:SHOWN])
        head = "<tr><th>input</th><th>status</th><th>label</th><th>predicted</th><th>seconds</th></tr>"
        return f"<div><pre>{html.escape(self.text())}</pre>{pictures}<table>{head}{rows}</table>{more}</div>"


def advise(reasons: list[str], timeout: float) -> str:
    """What is left, and what could decide it."""
    text = next((r for r in reasons if "is open" in r), "") or next(iter(filter(None, reasons)), "undecided")
    longer = (
        "" if math.isinf(timeout) else f"; try a timeout of {max(2 * timeout, 1):g} s, or a smaller epsilon"
    )
    return f"{len(reasons)} open: {text}{longer}"
