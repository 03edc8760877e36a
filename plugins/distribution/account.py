"""Reads distributions back: brackets, closest counterexamples, every answer on the way, and what made them."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.plugin.account import Account, Asked, Event, Example, InputResult, Reader

from .family import per_input
from .ledger import DistributionLedger
from .report import SECTIONS, default_radii, is_store, load_costs, load_rows, make_material, resolution
from .table import COLUMNS, VERONA_COLUMNS, Row, distinct

NORMS = {1.0: "l1", 2.0: "l2", math.inf: "linf"}


class DistributionReader(Reader):
    """Critical radii of many inputs, or of one."""

    name = "distribution"
    tables: ClassVar[tuple[str, ...]] = ("distribution_inputs", "distribution_steps")
    columns: ClassVar[tuple[frozenset[str], ...]] = (frozenset(COLUMNS), frozenset(VERONA_COLUMNS))

    def read(self, sources: Sequence[Path], asked: Asked) -> Account | None:
        rows, step = load_rows(sources, asked.run)
        told = _Told()
        for source in sources:
            told.add_store(source, asked.run) if is_store(source) else told.add_rows(source)
        radii = asked.thresholds or default_radii(rows)
        costs = load_costs(sources)
        return Account(
            self.name,
            told.run,
            told.networks,
            tuple(told.results),
            tuple(told.examples),
            tuple(told.events),
            tuple(f"{' '.join(r.place)}: {r.reason}" for r in told.results if "alarm" in r.flags),
            thresholds=radii,
            provenance=told.facts,
            material=lambda folder: make_material(rows, folder, radii, asked.step or step, costs),
            sections=tuple(cls.name for cls in SECTIONS),
        )


class _Told:
    """What the sources say, added one after the other."""

    def __init__(self) -> None:
        self.run = ""
        self.networks: dict[str, str] = {}
        self.results: list[InputResult] = []
        self.examples: list[Example] = []
        self.events: list[Event] = []
        self.facts: dict[str, str] = {}

    def add_rows(self, source: Path) -> None:
        """A table in a file, which has no counterexamples and no times of day."""
        rows, _ = load_rows([source])
        self.networks |= dict.fromkeys((r.network for r in rows), "")
        self.results += [_from_table(r) for r in rows]
        self.facts |= {"table": str(source)}

    def add_store(self, source: Path, run: str) -> None:
        with DistributionLedger(source) as ledger:
            runs = dict(ledger.runs())
            self.run = run or list(runs)[-1]
            settings = runs[self.run]
            shown, steps = ledger.shown(self.run), ledger.events(self.run)
        names = distinct([r["network"] for r in shown], [r["network_key"] for r in shown])
        splits = distinct([r["split"] for r in shown], [r["data_key"] for r in shown])
        self.networks |= dict(zip(names, (r["network_key"] for r in shown), strict=True))
        who = deciders(steps)
        inputs = {r["question"]: (n, str(r["image_id"])) for r, n in zip(shown, names, strict=True)}
        for r, name, split in zip(shown, names, splits, strict=True):
            place = (name, split, str(r["image_id"]))
            self.results.append(input_result(place, r, who.get(r["question"], "")))
            if r["witness"] is not None:
                self.examples.append(example_of(place, r, settings, who.get(r["question"], "")))
        self.events += [
            Event(
                *(s["created"], s["verifier"], s["verdict"], s["seconds"]),
                *inputs.get(s["question"], ("", "")),
                s["radius"],
                bool(s["reused"]),
            )
            for s in steps
            if s["kind"] != "known"
        ]
        self.facts |= _facts(settings, shown, splits) | {"run": self.run}


def deciders(steps: Sequence[sqlite3.Row]) -> dict[str, str]:
    """By question who proved the lower side and who found the upper one."""
    proved: dict[str, tuple[float, str]] = {}
    found: dict[str, tuple[float, str]] = {}
    for s in steps:
        who = s["verifier"]
        if s["proved"] and s["proved"] > proved.get(s["question"], (0.0, ""))[0]:
            proved[s["question"]] = (s["proved"], who)
        if s["distance"] is not None and s["distance"] < found.get(s["question"], (math.inf, ""))[0]:
            found[s["question"]] = (s["distance"], who)
    return {
        question: " / ".join(dict.fromkeys(side[question][1] for side in (proved, found) if question in side))
        for question in {**proved, **found}
    }


def input_result(place: tuple[str, str, str], r: sqlite3.Row, verifier: str) -> InputResult:
    return InputResult(
        *place,
        r["status"],
        r["lower"],
        r["upper"],
        label=str(r["label"]),
        predicted=str(r["predicted"]),
        verifier=verifier,
        seconds=r["seconds"],
        reused=bool(r["reused"]),
        flags=tuple(json.loads(r["flags"])),
        reason=r["reason"],
        when=r["finished"] or 0.0,
    )


def _from_table(row: Row) -> InputResult:
    return InputResult(
        *(row.network, row.split, str(row.image_id), row.status.value, row.lower, row.upper),
        label=str(row.label),
        predicted=str(row.predicted),
        seconds=row.seconds,
        reused=bool(row.reused),
        reason=row.reason,
    )


def example_of(
    place: tuple[str, str, str], r: sqlite3.Row, settings: Mapping[str, Any], verifier: str
) -> Example:
    shape = tuple(int(n) for n in (r["shape"] or "").split("x") if n)
    near = None if r["near"] is None else np.frombuffer(r["near"], np.float32).astype(np.float64)
    return Example(
        *place,
        _in_data(np.frombuffer(r["witness"], np.float32).astype(np.float64), shape, settings),
        near,
        shape,
        low=float(settings.get("low", 0.0)),
        high=float(settings.get("high", 1.0)),
        label=str(r["label"]),
        becomes="" if r["becomes"] is None else str(r["becomes"]),
        distance=r["distance"],
        verifier=verifier.rpartition(" / ")[2],
        when=r["finished"] or 0.0,
    )


def _in_data(
    x: NDArray[np.float64], shape: tuple[int, ...], settings: Mapping[str, Any]
) -> NDArray[np.float64]:
    """What the network read, in the units of the data; as it is where the shape was not kept."""
    if not shape or not (settings.get("mean") or settings.get("std")):
        return x
    channels = shape if len(shape) == 3 else (1, *shape)
    mean = per_input(tuple(settings.get("mean") or ()), channels, "mean")
    std = per_input(tuple(settings.get("std") or ()), channels, "std")
    return np.asarray(x * (1.0 if std is None else std) + (0.0 if mean is None else mean))


def _facts(
    settings: Mapping[str, Any], shown: Sequence[sqlite3.Row], splits: Sequence[str]
) -> dict[str, str]:
    """The settings in words."""
    data = {split: r["data_key"] for split, r in zip(splits, shown, strict=True)}
    indices = {
        split: [r["image_id"] for r, s in zip(shown, splits, strict=True) if s == split] for split in data
    }
    radii = settings.get("radii") or []
    facts = {
        "property": " ".join([str(settings.get("about", "")), *settings.get("options", ())]).strip(),
        "norm": NORMS.get(float(settings.get("norm", math.inf)), str(settings.get("norm"))),
        "range": f"{settings.get('low', 0)} to {settings.get('high', 1)}",
        "reference": str(settings.get("reference", "")),
        "preprocessing": _preprocessing(settings),
        "search": " ".join([str(settings.get("search", "")), *settings.get("choices", ())]),
        "resolution": f"{resolution(dict(settings)):g}" + (f" ({len(radii)} radii)" if radii else ""),
        "seconds per input": _limit(settings.get("budget")),
        "seconds per query": _limit(settings.get("timeout")),
    }
    for split, key in data.items():
        facts[f"data {split}"] = f"sha256 {key}"
        facts[f"inputs of {split}"] = _ranges(indices[split])
    return facts


def _preprocessing(settings: Mapping[str, Any]) -> str:
    mean, std = settings.get("mean") or (), settings.get("std") or ()
    return (
        f"mean {', '.join(map(str, mean)) or 0}, std {', '.join(map(str, std)) or 1}"
        if mean or std
        else "none"
    )


def _limit(value: object) -> str:
    number = float(str(value)) if value is not None else math.inf
    return "no limit" if number >= 1e300 else f"{number:g}"


def _ranges(indices: Sequence[int]) -> str:
    """Positions as the command line has them: 0:30,45."""
    parts: list[list[int]] = []
    for i in sorted(set(indices)):
        if parts and parts[-1][1] == i:
            parts[-1][1] = i + 1
        else:
            parts.append([i, i + 1])
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in parts)
