"""Certificates of single queries: a search that leaves a trace, then the writer, in one worker."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from verifolio.certificates.writer import obstacle, write
from verifolio.model.answer import Verdict
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.choice import Choice
from verifolio.plugin.verifier import Context
from verifolio.run.budget import Budget
from verifolio.vnnlib import load

GZIP = b"\x1f\x8b"  # the first bytes of a gzipped property


@dataclass(frozen=True)
class Made:
    """A certificate, or nothing and why; processor seconds of the search and of writing."""

    data: bytes = b""
    reason: str = ""
    find: float = 0.0
    write: float = 0.0

    def save(self, target: Path) -> str:
        """Where it is, or why there is none."""
        if not self.data:
            return f"not written: {self.reason}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.data)
        return str(target)


def property_file(folder: str, prop: bytes) -> Path:
    """The property of a query as a file; the certificate names its hash."""
    path = Path(folder) / ("property.vnnlib.gz" if prop.startswith(GZIP) else "property.vnnlib")
    path.write_bytes(prop)
    return path


def find_obstacle(networks: Sequence[Network], prop: bytes) -> str | None:
    """Why the checker reads no such query, or None."""
    with TemporaryDirectory(prefix="verifolio-") as folder:
        return obstacle([n.path for n in networks], property_file(folder, prop))


def make_certificate(
    networks: Sequence[Network], prop: bytes, verifier: str, options: Mapping[str, object], seconds: float
) -> Made:
    """Search for a proof of so many seconds at most, and write its certificate."""
    with TemporaryDirectory(prefix="verifolio-") as folder:
        path = property_file(folder, prop)
        query = Query(tuple(networks), load(path), shared_input=len(networks) > 1)
        chosen = Choice(verifier, {**options, "trace": folder}).build()
        refusals = [why for p in query.problems if (why := chosen.refuses(p)) is not None]
        if refusals:
            return Made(reason=f"{verifier} does not search here: {refusals[0]}")
        began, started = time.process_time(), time.monotonic()
        outcomes = chosen.run_many(query.problems, Context(Budget(seconds)))
        find, took = time.process_time() - began, time.monotonic() - started
        if [o.verdict for o in outcomes] != [Verdict.UNSAT] * len(query.problems):
            limit = "" if math.isinf(seconds) else f" in {seconds:.0f} s"
            return Made(reason=f"{verifier} found no proof{limit}", find=find)
        target = Path(folder) / "certificate.gz"
        said = write([n.path for n in networks], path, Path(folder), target, took)
        spent = time.process_time() - began - find
        if not target.exists():
            return Made(reason=said.removeprefix("not written: "), find=find, write=spent)
        return Made(target.read_bytes(), find=find, write=spent)
