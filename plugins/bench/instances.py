"""Instances: what a VNN-COMP instances file, a table with more columns, or a folder asks to decide."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verifolio.errors import InputError
from verifolio.files.bounded import read_rows, read_text
from verifolio.files.names import digest, safe_name

PLAIN = ("onnx", "vnnlib", "timeout")
MAX_LIST = 10_000_000  # bytes of a list of ids
VERSION = re.compile(r"\d+\.\d+")
PAIR = re.compile(r"""\(\s*(?P<a>['"])(?P<name>\w+)(?P=a)\s*,\s*(?P<b>['"])(?P<path>[^'"\\]+)(?P=b)\s*\)""")
TOOL_RESULT = re.compile(r"(?P<tool>\w+)_result")


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
        """What people are shown, and what results are found by: no other instance has it."""
        return self.id or f"{self.category}/{self.name}"

    @property
    def name(self) -> str:
        """Where files of the instance are named after it: no folders in it, and no two alike."""
        return safe_name(self.id or f"{self.stem}-{digest(f'{self.onnx} {self.vnnlib}')}")


def parse_networks(text: str) -> list[tuple[str, str]]:
    """Names and paths of an `onnx` cell: one path, or a list of pairs such as [('f', 'a.onnx'), ...]."""
    text = text.strip()
    if not text.startswith("["):
        return [("", text)]
    pairs, rest = [], text[1:].lstrip()
    while found := PAIR.match(rest):
        pairs.append((found["name"], found["path"]))
        rest = rest[found.end() :].lstrip().removeprefix(",").lstrip()
    if not pairs or rest != "]":
        raise InputError("onnx", "a path or a list of (name, path)", repr(text[:60]))
    return pairs


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
        return _checked(_read_table(source, timeout), source)
    own = [p for p in (source / "instances.csv", source / "instances.csv.gz") if p.is_file()]
    tables = own[:1] or sorted(source.rglob("instances.csv*"))
    found = [i for table in tables for i in _read_table(table, timeout)]
    return _checked(found, source) if tables else _pair_files(source, timeout)


def _checked(instances: list[Instance], source: Path) -> list[Instance]:
    """Ids name instances in lists, logs and stores, so that no two may have the same."""
    seen = set[str]()
    for one in instances:
        if one.id and one.id in seen:
            raise InputError(str(source), "an id of its own for every instance", f"{one.id!r} twice")
        seen.add(one.id)
    return instances


def select(instances: Sequence[Instance], wanted: str) -> list[Instance]:
    """Those whose id or category is in a list with commas, or in a file with one per line (or per row)."""
    if not wanted:
        return list(instances)
    if os.path.isfile(wanted):  # noqa: PTH113 (Path.is_file raises where a list is too long for a name)
        text = read_text(Path(wanted), "a list of ids", MAX_LIST)
        lines = [line.split(",")[0].strip() for line in text.splitlines()]
        names = {line for line in lines if line and not line.startswith("#")} - {"id"}
    else:
        names = {part.strip() for part in wanted.split(",")}
    called = [{i.id, i.category, i.stem, i.label} for i in instances]
    strangers = sorted(names - set[str]().union(*called))
    if strangers:
        raise InputError("--only", "ids or categories of the instances", ", ".join(strangers[:5]))
    return [i for i, own in zip(instances, called, strict=True) if names & own]


def cap(instances: Sequence[Instance], seconds: float) -> list[Instance]:
    """The same instances with at most this much time each; 0 changes nothing."""
    return [replace(i, timeout=min(i.timeout, seconds)) if seconds else i for i in instances]


def _read_table(path: Path, timeout: float) -> list[Instance]:
    rows = read_rows(path, "a table of instances (CSV)")
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


def _instance(record: Mapping[str, str], table: Path, where: str, timeout: float) -> Instance:
    if not record["onnx"] or not record["vnnlib"]:
        raise InputError(where, "a network and a property", "an empty cell")
    if "\0" in record["onnx"] + record["vnnlib"]:
        raise InputError(where, "names of files", "a zero byte")
    try:
        pairs = parse_networks(record["onnx"])
    except InputError as error:
        raise InputError(f"{where}: onnx", error.expected, error.got) from None
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
    if not path.name:
        return path
    other = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    # os.path, because Path.exists raises where a name is longer than a file system takes
    return other if not os.path.exists(path) and os.path.exists(other) else path  # noqa: PTH110


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
