"""Recorded runs: which configuration decided what, and when; from tables of results and stores of `bench`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verifolio.errors import InputError
from verifolio.model.answer import Verdict

from ..instances import Instance, cap, read_instances
from ..matching import key_of, row_label
from ..results import WRITTEN, read_tool

DEFAULT = "default"
SUFFIXES = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True)
class Configuration:
    """A verifier with options, as it ran on so many cores."""

    verifier: str
    options: Mapping[str, object] = field(default_factory=dict)
    cores: int = 1

    @property
    def name(self) -> str:
        """verifier:option=value,...@cores, the last only where it is not one."""
        chosen = ",".join(f"{k}={v}" for k, v in sorted(self.options.items()))
        return self.verifier + (f":{chosen}" if chosen else "") + (f"@{self.cores}" if self.cores > 1 else "")


@dataclass(frozen=True)
class Record:
    """What came of one instance: `sat`, `unsat` or something undecided, after `seconds` of `limit`."""

    result: str
    seconds: float
    limit: float
    by: str = ""


@dataclass(frozen=True)
class Run:
    """One configuration on many instances; without a configuration it is a whole portfolio to compare with."""

    name: str
    configuration: Configuration | None
    records: Mapping[str, Record]
    key: str = ""


@dataclass(frozen=True)
class Source:
    """What tables of results do not say themselves: labels, limits and the truth of instances."""

    instances: tuple[Instance, ...] = ()
    timeout: float = 60.0
    cap: float = 0.0
    cores: int = 1

    @property
    def truths(self) -> dict[str, str]:
        return {i.label: i.expected for i in self.instances if i.expected}

    def limit(self, seconds: float) -> float:
        return min(seconds, self.cap) if self.cap else seconds


def make_source(instances: str, timeout: float, most: float, cores: int) -> Source:
    """From the command line."""
    listed = cap(read_instances(instances, timeout), most) if instances else []
    return Source(tuple(listed), timeout, most, cores)


def read_runs(texts: Sequence[str], source: Source) -> list[Run]:
    """Every run that the arguments `FILE` or `VERIFIER[:OPTION=VALUE,...]=FILE` name; of two alike, the longer."""
    found: dict[str, Run] = {}
    for text in texts:
        for run in _read(text, source):
            if run.name not in found or len(found[run.name].records) < len(run.records):
                found[run.name] = run
    return list(found.values())


def _read(text: str, source: Source) -> list[Run]:
    spec, _, name = ("", "", text) if Path(text).exists() else text.rpartition("=")
    path = Path(name)
    if not path.is_file():
        raise InputError(text, "a table of results or a store, as FILE or VERIFIER=FILE", "nothing there")
    chosen = parse_configuration(spec, source.cores) if spec and spec != DEFAULT else None
    if path.suffix in SUFFIXES:
        return _read_store(path, spec, chosen, source)
    spec = spec or path.stem
    chosen = chosen or (None if spec == DEFAULT else parse_configuration(spec, source.cores))
    records = _read_table(path, source)
    return [Run(DEFAULT if chosen is None else chosen.name, chosen, records)]


def parse_configuration(text: str, cores: int = 1) -> Configuration:
    """`crown` or `pgd:restarts=20,steps=100`; the verifier must be registered, though not usable here."""
    from verifolio.plugin.manager import current_plugins

    name, _, rest = text.partition(":")
    if name not in current_plugins().verifiers:
        known = ", ".join(sorted(c.name for c in current_plugins().verifiers))
        remedy = "write VERIFIER=FILE, or VERIFIER:OPTION=VALUE,...=FILE"
        raise InputError(text, f"a verifier ({known}) or {DEFAULT}", repr(name), remedy)
    options: dict[str, object] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(text, "OPTION=VALUE after the colon", repr(pair))
        options[key.strip()] = _plain(value.strip())
    return Configuration(name, options, cores)


def _plain(value: object) -> object:
    """Whole numbers as such; other text stays text, which options read as well."""
    return int(value) if isinstance(value, str) and value.isdigit() and str(int(value)) == value else value


def _read_table(path: Path, source: Source) -> dict[str, Record]:
    table = read_tool(path)
    if not source.instances:
        limit = source.limit(source.timeout)
        return {row_label(k): Record(c.result, c.seconds, limit) for k, c in table.rows.items()}
    claims, _ = table.compare(source.instances)
    pairs = [(i, claims.get(key_of(i))) for i in source.instances]
    return {i.label: Record(c.result, c.seconds, i.timeout) for i, c in pairs if c is not None}


def _read_store(path: Path, spec: str, chosen: Configuration | None, source: Source) -> list[Run]:
    """All runs of a store; the portfolio of each is in it, except of the default, which is several."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30.0)
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM bench_results ORDER BY timeout").fetchall()
        trees = {r["key"]: r for r in connection.execute("SELECT * FROM portfolios")}
        sql = "SELECT portfolio, MAX(cores) AS cores FROM answers GROUP BY portfolio"
        cores = {r["portfolio"]: int(r["cores"]) for r in connection.execute(sql)}
        connection.close()
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise InputError(str(path), "a store of `verifolio bench`", str(error)) from None
    try:
        return _runs_of(rows, trees, cores, spec, chosen, source)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise InputError(str(path), "a store that is whole", str(error)[:200], "remove it") from None


def _runs_of(
    rows: Sequence[sqlite3.Row],
    trees: Mapping[str, sqlite3.Row],
    cores: Mapping[str, int],
    spec: str,
    chosen: Configuration | None,
    source: Source,
) -> list[Run]:
    runs: dict[str, dict[str, Record]] = {}
    for row in rows:
        record = Record(
            WRITTEN[Verdict(row["verdict"])],
            row["seconds"],
            source.limit(row["timeout"]),
            row["verifier"],
        )
        runs.setdefault(row["run"], {})[row["label"]] = record
    found = []
    for run, records in runs.items():
        key = run.split(":")[0]
        name, own = _described(trees.get(key), cores.get(key, 1))
        configuration = chosen or (None if spec == DEFAULT else own)
        found.append(Run(configuration.name if configuration else name, configuration, records, key))
    return found


def _described(row: sqlite3.Row | None, cores: int) -> tuple[str, Configuration | None]:
    """A portfolio of one member is a configuration; any other one has only a name."""
    if row is None:
        return DEFAULT, None
    tree = json.loads(row["tree"])
    if "verifier" not in tree:
        return str(row["name"]), None
    options = {k: _plain(v) for k, v in tree["options"].items()}
    configuration = Configuration(tree["verifier"], options, cores)
    return configuration.name, configuration
