"""The table of a distribution: one row per input, as CSV in our columns or in VERONA's."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verifolio.errors import InputError

from .radius_search import SearchStatus

COLUMNS = (
    *("network", "split", "image_id", "label", "predicted", "lower", "upper", "gap", "status"),
    *("seconds", "queries", "cancelled"),
)
MORE = ("reused", "terminated")  # columns that tables of earlier versions do not have
VERONA_COLUMNS = (
    *("network_path", "split", "image_id", "original_label", "epsilon_value", "smallest_sat_value"),
    "total_time",
)


@dataclass(frozen=True)
class Row:
    """One input's result; `rounded` says whether its counterexample survives rounding to stored levels.

    `reused` counts the answers that came from another search or session; its time says nothing then.
    `terminated`: a query without an answer keeps the two sides apart; None where nobody noted it.
    """

    network: str
    split: str
    image_id: int
    label: int
    predicted: int
    lower: float | None
    upper: float | None
    status: SearchStatus
    seconds: float = 0.0
    queries: int = 0
    cancelled: int = 0
    flags: tuple[str, ...] = ()
    reason: str = ""
    rounded: bool | None = None
    reused: int = 0
    terminated: bool | None = None

    @property
    def gap(self) -> float | None:
        return None if self.lower is None or self.upper is None else self.upper - self.lower

    @property
    def measured(self) -> bool:
        """Whether the row has a bracket at all."""
        return self.status in (SearchStatus.CLOSED, SearchStatus.OPEN) and self.lower is not None

    @property
    def unsolved(self) -> bool:
        """Whether no question about it was answered."""
        return self.measured and self.lower == 0 and self.upper is None


def number(value: float | None) -> str:
    """The shortest text that reads back as the same number; nothing for None."""
    return "" if value is None else repr(float(value))


def cells(row: Row) -> list[str]:
    """A row in our columns."""
    return [
        *(row.network, row.split, str(row.image_id), str(row.label), str(row.predicted)),
        *(number(row.lower), number(row.upper), number(row.gap), row.status.value),
        *(f"{row.seconds:.3f}", str(row.queries), str(row.cancelled)),
    ]


def more_cells(row: Row) -> list[str]:
    """The columns `MORE`."""
    return [str(row.reused), "" if row.terminated is None else str(int(row.terminated))]


def distinct(names: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Names, followed by a part of the key where one name stands for several."""
    meant: dict[str, set[str]] = {}
    for name, key in zip(names, keys, strict=True):
        meant.setdefault(name, set()).add(key)
    return [f"{n} ({k[:6]})" if len(meant[n]) > 1 else n for n, k in zip(names, keys, strict=True)]


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """The table, replaced in one step, so that a reader never sees half of it."""
    write_lines(path, (*COLUMNS, *MORE), [cells(row) + more_cells(row) for row in rows])


def write_verona(path: Path, rows: Iterable[Row]) -> None:
    """The table as VERONA keeps it: rows with a bracket only, empty where no counterexample is known."""
    shown = [
        [
            *(row.network, row.split, str(row.image_id), str(row.label)),
            *(number(row.lower), number(row.upper), f"{row.seconds:.3f}"),
        ]
        for row in rows
        if row.measured
    ]
    write_lines(path, VERONA_COLUMNS, shown)


def write_lines(path: Path, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """A table of text, replaced in one step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(text.getvalue())
    draft.replace(path)


def read_csv(path: Path) -> list[Row]:
    """A table in either set of columns."""
    with path.open(newline="") as stream:
        reader = csv.DictReader(stream)
        names = set(reader.fieldnames or ())
        read = _ours if set(COLUMNS) <= names else _verona if set(VERONA_COLUMNS) <= names else None
        if read is None:
            got = ", ".join(sorted(names)) or "none"
            raise InputError(
                str(path), f"the columns {', '.join(COLUMNS)}", got, "is it a distribution's table?"
            )
        rows = []
        for line, record in enumerate(reader, 2):
            try:
                rows.append(read(record))
            except (ValueError, TypeError) as error:
                raise InputError(f"{path}:{line}", "numbers where numbers belong", str(error)) from None
    return rows


def _ours(record: dict[str, str]) -> Row:
    return Row(
        record["network"],
        record["split"],
        int(record["image_id"]),
        int(record["label"]),
        int(record["predicted"]),
        _value(record["lower"]),
        _value(record["upper"]),
        SearchStatus(record["status"]),
        float(record["seconds"]),
        int(record["queries"]),
        int(record["cancelled"]),
        reused=int(record.get("reused") or 0),
        terminated=bool(int(record["terminated"])) if record.get("terminated") else None,
    )


def _verona(record: dict[str, str]) -> Row:
    label = int(float(record["original_label"]))
    lower, upper = _value(record["epsilon_value"]), _value(record["smallest_sat_value"])
    seconds = _value(record["total_time"]) or 0.0
    status = SearchStatus.OPEN if upper is None else SearchStatus.CLOSED
    place = (record["network_path"], record["split"], int(float(record["image_id"])))
    return Row(*place, label, label, lower, upper, status, seconds)


def _value(text: str | None) -> float | None:
    if text is None or not text.strip():
        return None
    value = float(text)
    if math.isnan(value) or value < 0:
        raise ValueError(f"expected a radius, got {text!r}")
    return value if math.isfinite(value) else None
