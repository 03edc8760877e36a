"""A study as a page: every table and figure of the paper, ours beside the published numbers, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

from .rows import Rows
from .study import Part, Record, Shown, Statement, Study, Tables
from .text import markdown

UNMEASURED = "Not measured yet."


def page(study: Study, rows: Rows) -> str:
    """The whole page."""
    tables = rows.tables(study)
    shown = {part.name: show(part, tables) for part in study.parts}
    lines = [
        f"# {study.number}: {study.title}",
        "",
        study.reference,
        "",
        study.about.strip(),
        "",
        f"The page is written by `verifolio study {study.number} --output PAGE` from the rows in",
        "`benchmarks/rows/studies`; *n* is the number of inputs that a number of ours rests on.",
        "",
        "## What came out",
        "",
        *summary(study, shown),
        "",
    ]
    for part in study.parts:
        lines += section(study, part, shown[part.name], rows)
    return "\n".join(lines).rstrip() + "\n"


def show(part: Part, tables: Tables) -> Shown:
    """What there is to see of a part."""
    if part.absent:
        return Shown([part.absent])
    return part.show(tables) if part.show else Shown([UNMEASURED])


def summary(study: Study, shown: dict[str, Shown]) -> list[str]:
    """Every statement with its judgement."""
    found = [(name, s) for name, one in shown.items() for s in one.statements]
    if not found:
        return ["No statement of the paper is judged yet."]
    return markdown(
        ("where", "the paper says", "judgement", "rests on", "why"),
        [(name, s.text, f"**{s.judgement}**", s.sample, s.reason) for name, s in found],
    )


def section(study: Study, part: Part, shown: Shown, rows: Rows) -> list[str]:
    """One table or figure."""
    lines = [f"## {part.name.capitalize()}: {part.title}", "", *shown.lines, ""]
    lines += [f"- {sentence(s)}" for s in shown.statements]
    lines += [""] if shown.statements else []
    told = [t for one in part.needs if (t := origin(rows.read(one), rows.path(one.name).name))]
    if told:
        lines += [f"*Command:* `{command(study, part)}`. *Rows:* {'; '.join(dict.fromkeys(told))}.", ""]
    return lines


def sentence(statement: Statement) -> str:
    """A statement as a line."""
    why = f" {statement.reason}" if statement.reason else ""
    return f"{statement.text}: **{statement.judgement}** ({statement.sample}).{why}"


def command(study: Study, part: Part) -> str:
    """What measures a part."""
    return f"verifolio study {study.number} --{part.kind} {part.number}"


def origin(found: Sequence[Record], name: str) -> str:
    """Where rows come from: how many, when, and which code."""
    if not found:
        return ""
    days = sorted({r["date"] for r in found})
    commits = list(dict.fromkeys(r["commit"] for r in found))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    loads = sorted(float(r["load"]) for r in found)
    busy = f"load {loads[len(loads) // 2]:.1f}"
    return f"`{name}`, {len(found)}, {when}, commit {', '.join(commits)}, {busy}"
