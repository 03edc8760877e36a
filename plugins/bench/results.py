"""Results in VNN-COMP's form: category, onnx, vnnlib, prepare time, result, run time."""

from __future__ import annotations

import csv
import io
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verifolio.answer import Verdict
from verifolio.errors import InputError

from .instances import Instance, file_stem, network_stem

# what competition result files say for the same thing; the first prefix that fits decides
SPELLINGS = (
    ("unsat", "unsat"),
    ("holds", "unsat"),
    ("sat", "sat"),
    ("violated", "sat"),
    ("timeout", "timeout"),
    ("timed-out", "timeout"),
    ("run_instance_timeout", "timeout"),
    ("prepare_instance_timeout", "timeout"),
    ("error", "error"),
)
WRITTEN = {
    Verdict.SAT: "sat",
    Verdict.UNSAT: "unsat",
    Verdict.TIMEOUT: "timeout",
    Verdict.UNKNOWN: "unknown",
    Verdict.MEMOUT: "error",
    Verdict.ERROR: "error",
    Verdict.CANCELLED: "unknown",
}


@dataclass(frozen=True)
class Result:
    """What came of one instance."""

    verdict: Verdict
    seconds: float
    verifier: str = ""
    reason: str = ""
    flags: tuple[str, ...] = ()
    counterexample: str = ""


@dataclass(frozen=True)
class Claim:
    """What another tool's file says about an instance."""

    result: str
    seconds: float


@dataclass(frozen=True)
class Tool:
    """Another tool: a claim per (category, network, property), and per (network, property) where unique."""

    name: str
    claims: dict[tuple[str, ...], Claim]

    def claim(self, instance: Instance) -> Claim | None:
        net, prop = network_stem(instance.onnx), file_stem(instance.vnnlib)
        return self.claims.get((instance.category, net, prop)) or self.claims.get((net, prop))


def normal(result: str) -> str:
    """One spelling for what result files say."""
    text = result.strip().lower()
    return next((ours for theirs, ours in SPELLINGS if text.startswith(theirs)), "unknown")


def write_results(path: Path, rows: Iterable[tuple[Instance, Result]]) -> None:
    """The whole table, replaced at once, so that no reader and no kill sees half of it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for instance, result in rows:
        seconds = f"{result.seconds:.6f}"
        writer.writerow(
            [instance.category, instance.onnx, instance.vnnlib, "0", WRITTEN[result.verdict], seconds]
        )
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(name).chmod(0o644)
    Path(name).replace(path)


def read_tool(path: Path) -> Tool:
    """Another tool's results.csv, named after its file, or its folder where the file has the usual name."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), "a results file of VNN-COMP", str(error), "check the path") from None
    claims: dict[tuple[str, ...], Claim] = {}
    ambiguous: set[tuple[str, ...]] = set()
    for number, row in enumerate(rows, 1):
        if not row or row[0].strip().lower() == "category":
            continue
        if len(row) < 6:
            expected = "category, onnx, vnnlib, prepare time, result, run time"
            raise InputError(f"{path}:{number}", expected, f"{len(row)} columns")
        key = (network_stem(row[1]), file_stem(row[2]))
        claim = Claim(normal(row[4]), _number(row[5]))
        ambiguous |= {key} & claims.keys()
        claims[key] = claims[(row[0], *key)] = claim
    generic = path.name in ("results.csv", "out.csv")
    name = path.resolve().parent.name if generic else path.stem
    return Tool(name, {k: c for k, c in claims.items() if k not in ambiguous})


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def tools_in(instances: Sequence[Instance]) -> list[Tool]:
    """The tools whose results came along with the instances."""
    names = dict.fromkeys(name for i in instances for name in i.claims)
    return [
        Tool(name, {_key(i): Claim(*_told(i, name)) for i in instances if name in i.claims}) for name in names
    ]


def _key(instance: Instance) -> tuple[str, ...]:
    return (instance.category, network_stem(instance.onnx), file_stem(instance.vnnlib))


def _told(instance: Instance, name: str) -> tuple[str, float]:
    result, seconds = instance.claims[name]
    return normal(result), seconds
