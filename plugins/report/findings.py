"""Reads verdicts back: what `measure`, `verify --data` and tests found out about properties around inputs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verifolio.model.outputs import outputs_from_bytes
from verifolio.plugin.account import Account, Asked, Event, Example, InputResult, Reader
from verifolio.storage.revision import SOUNDNESS_REVISION

from .look import looking

SQL = (
    "SELECT * FROM findings WHERE (?1 = '' OR run = ?1) AND (revision >= ?2 OR status != 'proved') "
    "ORDER BY created, rowid"
)
VERDICTS = {"proved": "unsat", "refuted": "sat", "open": "unknown"}


class FindingReader(Reader):
    """Findings of properties around inputs."""

    name = "verdicts"
    tables: ClassVar[tuple[str, ...]] = ("findings",)

    def read(self, sources: Sequence[Path], asked: Asked) -> Account | None:
        rows: list[sqlite3.Row] = []
        for source in sources:
            with looking(source) as connection:
                rows += connection.execute(SQL, (asked.run, SOUNDNESS_REVISION)).fetchall()
        if not rows:
            return None
        return make_account(sorted((dict(r) for r in rows), key=_order), asked)


def _order(r: dict[str, Any]) -> tuple[Any, ...]:
    """Network by network, radius by radius, in the order of the data."""
    origin = json.loads(r["origin"])
    index = str(origin.get("index", ""))
    return r["networks"], r["epsilon"], origin.get("data", ""), int(index) if index.isdigit() else 0, index


def make_account(rows: list[dict[str, Any]], asked: Asked) -> Account:
    """Everything that the rows say."""
    networks = [json.loads(r["networks"]) for r in rows]
    origins = [json.loads(r["origin"]) for r in rows]
    named = distinct_names(networks)
    places = [
        (name, str(o.get("data", "")), str(o.get("index", "")))
        for name, o in zip(named, origins, strict=True)
    ]
    hashes = {name: "+".join(n["sha256"] for n in group) for name, group in zip(named, networks, strict=True)}
    data = {str(o.get("data", "")): str(o.get("sha256", "")) for o in origins}
    told = {
        "property": ", ".join(dict.fromkeys(r["property"] for r in rows)),
        "norm": ", ".join(dict.fromkeys(r["norm"] for r in rows)),
        "range": ", ".join(dict.fromkeys(f"{r['low']:g} to {r['high']:g}" for r in rows)),
        **{f"data {name}": f"sha256 {value}" for name, value in data.items() if value},
    }
    return Account(
        FindingReader.name,
        asked.run,
        hashes,
        tuple(_result(place, r) for place, r in zip(places, rows, strict=True)),
        tuple(
            _example(place, r) for place, r in zip(places, rows, strict=True) if r["witness_x"] is not None
        ),
        tuple(_event(p, r) for p, r in zip(places, rows, strict=True) if r["verifier"]),
        tuple(
            f"{' '.join(p)}: {r['reason']}"
            for p, r in zip(places, rows, strict=True)
            if "alarm" in r["flags"]
        ),
        thresholds=asked.thresholds or tuple(sorted({r["epsilon"] for r in rows})),
        provenance=told,
    )


def distinct_names(networks: Sequence[Sequence[dict[str, str]]]) -> list[str]:
    """Names of networks (or groups of them), with a part of the hash where one name stands for two files."""
    names = ["+".join(n["name"] for n in group) for group in networks]
    keys = ["+".join(n["sha256"] for n in group) for group in networks]
    meant: dict[str, set[str]] = {}
    for name, key in zip(names, keys, strict=True):
        meant.setdefault(name, set()).add(key)
    return [f"{n} ({k[:6]})" if len(meant[n]) > 1 else n for n, k in zip(names, keys, strict=True)]


def _result(place: tuple[str, str, str], r: dict[str, Any]) -> InputResult:
    return InputResult(
        *place,
        r["status"],
        epsilon=r["epsilon"],
        label=_class(r, r["label"]),
        verifier=r["verifier"],
        seconds=r["seconds"],
        reused=bool(r["reused"]),
        flags=tuple(json.loads(r["flags"])),
        reason=r["reason"],
        when=r["created"],
    )


def _example(place: tuple[str, str, str], r: dict[str, Any]) -> Example:
    outputs = outputs_from_bytes(r["witness_y"])
    near = None if r["near"] is None else np.frombuffer(r["near"], np.float32).astype(np.float64)
    return Example(
        *place,
        np.frombuffer(r["witness_x"], np.float32).astype(np.float64),
        near,
        tuple(int(n) for n in r["shape"].split("x") if n),
        tuple(json.loads(json.loads(r["origin"]).get("names", "[]"))),
        r["low"],
        r["high"],
        _class(r, r["label"]),
        _class(r, int(outputs.argmax())) if "classification" in r["property"] and len(outputs) else "",
        r["distance"],
        r["epsilon"],
        tuple(float(v) for v in outputs),
        r["verifier"],
        r["created"],
    )


def _class(r: dict[str, Any], number: int) -> str:
    """A class by its name, where the data or the model has names."""
    names = json.loads(json.loads(r["origin"]).get("classes", "[]"))
    return str(names[number]) if 0 <= number < len(names) else str(number)


def _event(place: tuple[str, str, str], r: dict[str, Any]) -> Event:
    verdict = VERDICTS.get(r["status"], r["status"])
    return Event(
        *(r["created"], r["verifier"], verdict, r["seconds"], place[0], place[2], r["epsilon"]),
        bool(r["reused"]),
    )
