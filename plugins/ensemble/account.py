"""Reads ensembles back: which sets of networks one input misleads, and which sets it provably cannot."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verifolio.plugin.account import Account, Asked, Event, Example, InputResult, Reader

from .ledger import EnsembleLedger

STATUS = {"unsat": "proved", "sat": "refuted"}


class EnsembleReader(Reader):
    """What was found out about sets of networks at points."""

    name = "ensemble"
    tables: ClassVar[tuple[str, ...]] = ("joint_facts",)

    def read(self, sources: Sequence[Path], asked: Asked) -> Account | None:
        rows: list[dict[str, Any]] = []
        names: dict[str, str] = {}
        for source in sources:
            with EnsembleLedger(source) as ledger:
                rows += [dict(r) for r in ledger.shown()]
            names |= _names(source)
        if not rows:
            return None
        called = {
            key: "+".join(names.get(k, k[:8]) for k in key.split("+"))
            for key in (r["networks"] for r in rows)
        }
        return Account(
            self.name,
            "",
            {called[key]: key for key in called},
            tuple(
                InputResult(
                    *(called[r["networks"]], "joint", r["spot"][:10], STATUS.get(r["verdict"], "open")),
                    verifier=r["source"],
                    when=r["created"],
                )
                for r in rows
            ),
            tuple(
                Example(
                    *(called[r["networks"]], "joint", r["spot"][:10]),
                    np.frombuffer(r["x"], np.float32).astype(np.float64),
                    verifier=r["source"],
                    when=r["created"],
                )
                for r in rows
                if r["x"] is not None
            ),
            tuple(Event(r["created"], r["source"], r["verdict"], 0.0, called[r["networks"]]) for r in rows),
            provenance={"networks": ", ".join(f"{n} {k[:12]}" for k, n in names.items())} if names else {},
        )


def _names(source: Path) -> dict[str, str]:
    """The networks' names by their hashes, where queries of the same store tell them."""
    with sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True) as connection:
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'queries'").fetchone()
        rows = connection.execute("SELECT networks FROM queries").fetchall() if known else []
    connection.close()
    return {n["sha256"]: Path(n["path"]).stem for (text,) in rows for n in json.loads(text)}
