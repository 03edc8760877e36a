"""Instances: what a VNN-COMP instances file, a table with more columns, or a folder asks to decide."""

from __future__ import annotations

import ast
import csv
import gzip
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verifolio.errors import InputError

PLAIN = ("onnx", "vnnlib", "timeout")
VERSION = re.compile(r"\d+\.\d+")
TOOL_RESULT = re.compile(r"(?P<tool>\w+)_result")
MAX_BYTES = 100_000_000


@dataclass(frozen=True)
class Instance:
    """One network (or several, by their declared names), one property, and the time it may take.

    `onnx` and `vnnlib` are the texts results are recorded under; `claims` are what other tools are known to
    have said, with their seconds.
    """

    category: str
    onnx: str
    vnnlib: str
    networks: tuple[tuple[str, Path], ...]
    specification: Path
    timeout: float
    id: str = ""
    expected: str = ""
    claims: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The name of the instance's own files, as VNN-COMP forms it."""
        return f"{network_stem(self.onnx)}_{file_stem(self.vnnlib)}"

    @property
    def label(self) -> str:
        """What people are shown."""
        return self.id or f"{self.category}/{self.stem}"


def parse_networks(text: str) -> list[tuple[str, str]]:
    """Names and paths of an `onnx` cell: one path, or a list of pairs such as [('f', 'a.onnx'), ...]."""
    if not text.lstrip().startswith("["):
        return [("", text.strip())]
    try:
        pairs = ast.literal_eval(text.strip())
        return [(str(name), str(path)) for name, path in pairs]
    except (SyntaxError, TypeError, ValueError):
        raise InputError("onnx", "a path or a list of (name, path)", repr(text[:60])) from None


def file_stem(name: str) -> str:
    """The name of a file without folders, `.gz` and its ending."""
    return Path(name.removesuffix(".gz")).stem


def network_stem(text: str) -> str:
    """The stem of a network's file; of several networks, their names."""
    networks = parse_networks(text)
    return "_".join(name for name, _ in networks) if networks[0][0] else file_stem(networks[0][1])


def read_instances(source: str | Path, timeout: float = 0.0) -> list[Instance]:
    """All instances of a table or a folder; `timeout` is for those that name none."""
    source = Path(source)
    if not source.is_dir():
        return _read_table(source, timeout)
    own = [p for p in (source / "instances.csv", source / "instances.csv.gz") if p.is_file()]
    tables = own[:1] or sorted(source.rglob("instances.csv*"))
    found = [i for table in tables for i in _read_table(table, timeout)]
    return found if tables else _pair_files(source, timeout)


def select(instances: Sequence[Instance], wanted: str) -> list[Instance]:
    """Those whose id or category is in a list with commas, or in a file with one per line (or per row)."""
    if not wanted:
        return list(instances)
    if os.path.isfile(wanted):  # noqa: PTH113 (Path.is_file raises where a list is too long for a name)
        lines = [line.split(",")[0].strip() for line in Path(wanted).read_text().splitlines()]
        names = {line for line in lines if line and not line.startswith("#")} - {"id"}
    else:
        names = {part.strip() for part in wanted.split(",")}
    known = {i.id for i in instances} | {i.category for i in instances} | {i.stem for i in instances}
    strangers = sorted(names - known)
    if strangers:
        raise InputError("--only", "ids or categories of the instances", ", ".join(strangers[:5]))
    return [i for i in instances if names & {i.id, i.category, i.stem}]


def cap(instances: Sequence[Instance], seconds: float) -> list[Instance]:
    """The same instances with at most this much time each; 0 changes nothing."""
    return [replace(i, timeout=min(i.timeout, seconds)) if seconds else i for i in instances]


def _read_table(path: Path, timeout: float) -> list[Instance]:
    rows = [(n, r) for n, r in _rows(path) if any(cell.strip() for cell in r)]
    if not rows:
        raise InputError(str(path), "at least one instance", "an empty file")
    names = [cell.strip().lower() for cell in rows[0][1]]
    has_header = {"onnx", "vnnlib"} <= set(names)
    columns = names if has_header else list(PLAIN)
    found = []
    for number, cells in rows[has_header:]:
        where = f"{path}:{number}"
        if len(cells) < 2 or len(cells) > len(columns):
            expected = ", ".join(columns[:6]) + (", ..." if len(columns) > 6 else "")
            raise InputError(where, expected, f"{len(cells)} columns")
        record = {k: v.strip() for k, v in zip(columns, cells, strict=False)}
        found.append(_instance(record, path, where, timeout))
    return found


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(str(path), "a table of instances (CSV)", str(error), "check the path") from None
    if len(text) > MAX_BYTES:
        raise InputError(str(path), f"at most {MAX_BYTES} characters", str(len(text)))
    reader = csv.reader(text.splitlines())
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}", "comma-separated values", str(error)) from None


def _instance(record: Mapping[str, str], table: Path, where: str, timeout: float) -> Instance:
    if not record["onnx"] or not record["vnnlib"]:
        raise InputError(where, "a network and a property", "an empty cell")
    pairs = parse_networks(record["onnx"])
    return Instance(
        record.get("category") or category_of(table),
        record["onnx"],
        record["vnnlib"],
        tuple((name, _resolve(table.parent, path)) for name, path in pairs),
        _resolve(table.parent, record["vnnlib"]),
        _seconds(record.get("timeout", ""), timeout, where),
        record.get("id", ""),
        record.get("expected", "").lower(),
        _claims(record),
    )


def _claims(record: Mapping[str, str]) -> dict[str, tuple[str, float]]:
    """Columns TOOL_result and TOOL_time_s."""
    claims = {}
    for name, value in record.items():
        match = TOOL_RESULT.fullmatch(name)
        if match and value:
            try:
                seconds = float(record.get(f"{match['tool']}_time_s", "") or "nan")
            except ValueError:
                seconds = float("nan")
            claims[match["tool"]] = (value.lower(), seconds)
    return claims


def _seconds(text: str, default: float, where: str) -> float:
    if not text and default > 0:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(where, "a timeout in seconds", repr(text), "add the column, or use --timeout")
    return value


def _resolve(folder: Path, text: str) -> Path:
    """The file as named, or its other form: compressed or not. What is missing shows when it is needed."""
    path = folder / text
    other = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    return other if not path.exists() and other.exists() else path


def category_of(table: Path) -> str:
    """benchmarks/acasxu/1.0/instances.csv is of acasxu."""
    folders = [p for p in table.resolve().parent.parts if not VERSION.fullmatch(p)]
    return folders[-1] if table.name.startswith("instances.csv") and folders else file_stem(table.name)


def _pair_files(folder: Path, timeout: float) -> list[Instance]:
    """A folder without a table: each property with the networks whose name it begins with, or with all."""
    networks = _files(folder, ".onnx")
    properties = _files(folder, ".vnnlib")
    if not networks or not properties:
        got = f"{len(networks)} .onnx and {len(properties)} .vnnlib files"
        raise InputError(str(folder), "instances.csv, or networks and properties", got)
    found = []
    for prop in properties:
        name = file_stem(prop.name)
        named = [n for n in networks if name.startswith(file_stem(n.name))]
        longest = max((len(n.name) for n in named), default=0)
        for network in [n for n in named if len(n.name) == longest] or networks:
            record = {"onnx": str(network.relative_to(folder)), "vnnlib": str(prop.relative_to(folder))}
            found.append(_instance(record, folder / "instances.csv", str(folder), timeout))
    return found


def _files(folder: Path, ending: str) -> list[Path]:
    """Files of one kind; of a file and its compressed form, one."""
    paths: Collection[Path] = [p for e in (ending, ending + ".gz") for p in folder.rglob(f"*{e}")]
    return sorted({str(p).removesuffix(".gz"): p for p in sorted(paths, reverse=True)}.values())
