"""Results in VNN-COMP's form: category, onnx, vnnlib, prepare time, result, run time."""

from __future__ import annotations

import csv
import io
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verifolio.errors import InputError
from verifolio.files.bounded import read_rows
from verifolio.model.answer import Verdict

from .instances import Instance
from .matching import Key, key_of, match

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
class InstanceResult:
    """What came of one instance."""

    verdict: Verdict
    seconds: float
    verifier: str = ""
    reason: str = ""
    flags: tuple[str, ...] = ()
    counterexample: str = ""


@dataclass(frozen=True)
class ToolClaim:
    """What another tool's file says about an instance."""

    result: str
    seconds: float


@dataclass(frozen=True)
class Tool:
    """Another tool: its rows, in the words of its own table. A second row about the same files must not differ."""

    name: str
    rows: Mapping[Key, ToolClaim]

    def compare(self, instances: Sequence[Instance]) -> tuple[dict[Key, ToolClaim], list[str]]:
        """What it claims about instances, and those for which several of its rows could be meant."""
        found = match([key_of(i) for i in instances], list(self.rows))
        claims = {key: self.rows[row] for key, row in found.rows.items()}
        return claims, [f"{key.category} {key.onnx} {key.vnnlib}" for key in found.doubtful]


def normal(result: str) -> str:
    """One spelling for what result files say."""
    text = result.strip().lower()
    return next((ours for theirs, ours in SPELLINGS if text.startswith(theirs)), "unknown")


Line = tuple[str, ...]  # a row of a table of results, as it is written


def result_line(instance: Instance, result: InstanceResult) -> Line:
    """VNN-COMP's columns."""
    names = (instance.category, instance.onnx, instance.vnnlib)
    return (*names, "0", WRITTEN[result.verdict], f"{result.seconds:.6f}")


def read_lines(path: Path) -> list[Line]:
    """The rows of a table of results that exists already; none where there is no such table."""
    if not path.exists():
        return []
    return [tuple(row) for _, row in read_rows(path, "a results file of VNN-COMP")]


def write_results(
    path: Path, pairs: Iterable[tuple[Instance, InstanceResult]], before: Sequence[Line] = ()
) -> None:
    """The whole table, replaced at once, so that no reader and no kill sees half of it.

    Rows of a table from `before` stay where they are until there is another result for their files.
    """
    fresh: dict[Line, list[Line]] = {}
    for line in (result_line(instance, result) for instance, result in pairs):
        fresh.setdefault(line[:3], []).append(line)
    lines, known = list[Line](), set(fresh)
    for line in before:
        lines += fresh.pop(line[:3], []) if line[:3] in known else [line]
    lines += [line for group in fresh.values() for line in group]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
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
    claims: dict[Key, ToolClaim] = {}
    for number, row in read_rows(path, "a results file of VNN-COMP"):
        if row[0].strip().lower() == "category":
            continue
        where = f"{path}:{number}"
        if len(row) < 6:
            expected = "category, onnx, vnnlib, prepare time, result, run time"
            raise InputError(where, expected, f"{len(row)} columns")
        key, claim = _read_row(row, where)
        if claims.setdefault(key, claim).result != claim.result:
            got = f"{claims[key].result} and {claim.result} for {key.onnx} {key.vnnlib}"
            raise InputError(where, "one result for each instance", got, "remove one of the rows")
    generic = path.name in ("results.csv", "out.csv")
    return Tool(path.resolve().parent.name if generic else path.stem, claims)


def _read_row(row: Sequence[str], where: str) -> tuple[Key, ToolClaim]:
    key = Key(row[0].strip(), row[1].strip(), row[2].strip())
    try:
        key.paths  # noqa: B018 (a cell that is no path shows here)
    except InputError as error:
        raise InputError(f"{where}: onnx", error.expected, error.got) from None
    return key, ToolClaim(normal(row[4]), _number(row[5]))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def tools_in(instances: Sequence[Instance]) -> list[Tool]:
    """The tools whose results came along with the instances."""
    names = dict.fromkeys(name for i in instances for name in i.claims)
    return [
        Tool(name, {key_of(i): ToolClaim(*_told(i, name)) for i in instances if name in i.claims})
        for name in names
    ]


def _told(instance: Instance, name: str) -> tuple[str, float]:
    result, seconds = instance.claims[name]
    return normal(result), seconds
