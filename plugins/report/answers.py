"""Reads answers to single queries back, where nobody has said more about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verifolio.model.outputs import outputs_from_bytes
from verifolio.plugin.account import Account, Asked, Event, Example, InputResult, Reader
from verifolio.storage.revision import SOUNDNESS_REVISION

from .findings import distinct_names
from .look import looking

STATUS = {"unsat": "proved", "sat": "refuted", "error": "error"}
SQL = (
    "SELECT answers.*, queries.name, queries.networks, queries.labels, queries.ball FROM answers "
    "JOIN queries ON queries.sha256 = answers.query WHERE answers.id IN "
    "(SELECT MAX(id) FROM answers WHERE revision >= ? OR verdict != 'unsat' GROUP BY query, portfolio) "
    "ORDER BY answers.id"
)


class AnswerReader(Reader):
    """The last answer to every query of every portfolio."""

    name = "answers"
    tables: ClassVar[tuple[str, ...]] = ("answers",)
    general: ClassVar[bool] = True

    def read(self, sources: Sequence[Path], asked: Asked) -> Account | None:
        rows: list[dict[str, Any]] = []
        for source in sources:
            with looking(source) as connection:
                rows += [dict(r) for r in connection.execute(SQL, (SOUNDNESS_REVISION,))]
        return make_account(rows) if rows else None


def make_account(rows: list[dict[str, Any]]) -> Account:
    """Everything that the answers say."""
    networks = [
        [{"name": Path(n["path"]).name, "sha256": n["sha256"]} for n in json.loads(r["networks"])]
        for r in rows
    ]
    named = distinct_names(networks)
    hashes = {name: "+".join(n["sha256"] for n in group) for name, group in zip(named, networks, strict=True)}
    told = list(zip(named, rows, strict=True))
    return Account(
        AnswerReader.name,
        "",
        hashes,
        tuple(_result(name, r) for name, r in told),
        tuple(_example(name, r) for name, r in told if r["witness_x"] is not None),
        tuple(
            Event(r["created"], r["verifier"], r["verdict"], r["seconds"], name, _about(r))
            for name, r in told
        ),
        tuple(f"{name} {_about(r)}: {r['reason']}" for name, r in told if "alarm" in json.loads(r["flags"])),
    )


def _about(r: dict[str, Any]) -> str:
    """What a query is about: the name of its property's file, or its index."""
    labels = json.loads(r["labels"])
    return str(labels.get("index") or Path(r["name"]).name or r["query"][:8])


def _result(network: str, r: dict[str, Any]) -> InputResult:
    labels = json.loads(r["labels"])
    return InputResult(
        network,
        str(labels.get("data") or labels.get("property") or ""),
        _about(r),
        STATUS.get(r["verdict"], "open"),
        epsilon=float(labels["epsilon"]) if labels.get("epsilon") else None,
        label=str(labels.get("label", "")),
        verifier=r["verifier"],
        seconds=r["seconds"],
        flags=tuple(json.loads(r["flags"])),
        reason=r["reason"],
        when=r["created"],
    )


def _example(network: str, r: dict[str, Any]) -> Example:
    labels, ball = json.loads(r["labels"]), json.loads(r["ball"]) if r["ball"] else None
    outputs = outputs_from_bytes(r["witness_y"])
    x = np.frombuffer(r["witness_x"], np.float32).astype(np.float64)
    return Example(
        network,
        str(labels.get("data") or labels.get("property") or ""),
        _about(r),
        x,
        None if ball is None else np.asarray(ball["centre"], np.float64),
        tuple(int(n) for n in str(labels.get("shape", "")).split("x") if n),
        low=float(x.min()) if len(x) else 0.0,
        high=float(x.max()) if len(x) else 1.0,
        label=str(labels.get("label", "")),
        outputs=tuple(float(v) for v in outputs),
        verifier=r["verifier"],
        when=r["created"],
    )
