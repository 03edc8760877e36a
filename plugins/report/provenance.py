"""Where results come from: the command and its options, who answered, on which machine, with which versions."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from .look import has_table

# Options that a reader of a report looks for, in their order; the others follow in the command itself.
WANTED = (
    *(
        "data",
        "indices",
        "index",
        "epsilon",
        "norm",
        "range",
        "layout",
        "mean",
        "std",
        "property",
        "property_option",
    ),
    *(
        "reference",
        "search",
        "tolerance",
        "budget",
        "timeout",
        "total_budget",
        "memory",
        "seed",
        "cores",
        "jobs",
    ),
    *("verifier", "portfolio", "option", "executor", "device"),
)


def moment(when: float) -> str:
    """A time for people, with its zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(when))


def day(when: float) -> str:
    """A time as it stands in a letter."""
    told = time.localtime(when)
    return f"{told.tm_mday} {time.strftime('%B %Y, %H:%M %Z', told)}"


def command_facts(connection: sqlite3.Connection, run: str) -> dict[str, str]:
    """The last command that used a store (or the one that is asked for), in the words of its options."""
    if not has_table(connection, "runs"):
        return {}
    # commands that only read have no row here, so the last one wrote
    sql = "SELECT * FROM runs WHERE ?1 = '' OR id = ?1 ORDER BY started DESC LIMIT 1"
    found = connection.execute(sql, (run,)).fetchone()
    if found is None and run:
        found = connection.execute(sql, ("",)).fetchone()
    return {} if found is None else _facts(dict(found))


def _facts(row: dict[str, Any]) -> dict[str, str]:
    options = json.loads(row["options"])
    facts = {"command": row["line"], "folder": row["folder"], "started": moment(row["started"])}
    if row["ended"] is not None:
        facts["ended"] = moment(row["ended"])
    facts["host"] = row["host"]
    for name in WANTED:
        value = options.get(name)
        if value not in (None, "", [], ()):
            facts[name.replace("_", " ")] = (
                " ".join(map(str, value)) if isinstance(value, list) else str(value)
            )
    facts["versions"] = ", ".join(f"{k} {v}" for k, v in json.loads(row["versions"]).items())
    return facts


def portfolio_facts(connection: sqlite3.Connection) -> dict[str, str]:
    """Who was asked, and with which seeds."""
    if not has_table(connection, "answers"):
        return {}
    names = [r[0] for r in connection.execute("SELECT DISTINCT name FROM portfolios ORDER BY name")]
    seeds = [str(r[0]) for r in connection.execute("SELECT DISTINCT seed FROM answers ORDER BY seed")]
    facts = {"portfolios": ", ".join(names)} if names else {}
    return facts | ({"seeds of answers": ", ".join(seeds)} if seeds else {})
