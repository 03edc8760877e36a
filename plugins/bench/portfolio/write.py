"""A schedule as a portfolio file: plain YAML that any command reads, with what is known about it on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from verifolio.portfolio.tree import Portfolio

from .table import Lane, Schedule, Step, Table


def portfolio_text(schedule: Schedule, table: Table, about: Sequence[str]) -> str:
    """The file's text; `about` becomes comments."""
    head = "".join(f"# {line}\n" if line else "#\n" for line in about)
    return head + str(yaml.safe_dump(_tree(schedule, table), sort_keys=False, allow_unicode=True))


def read_back(text: str, name: str) -> Portfolio:
    """What was written, read as every command will read it."""
    from verifolio.portfolio.file import parse_portfolio

    return parse_portfolio(text, name)


def _tree(schedule: Schedule, table: Table) -> dict[str, Any]:
    lanes = [_lane(lane, table) for lane in schedule]
    return lanes[0] if len(lanes) == 1 else {"race": lanes}


def _lane(lane: Lane, table: Table) -> dict[str, Any]:
    steps = [_step(step, table) for step in lane]
    return steps[0] if len(steps) == 1 else {"sequence": steps}


def _step(step: Step, table: Table) -> dict[str, Any]:
    chosen = table.configurations[step.row]
    entry: dict[str, Any] = {"verifier": chosen.verifier}
    entry |= {"seconds": step.seconds} if step.seconds is not None else {}
    return entry | ({"options": dict(chosen.options)} if chosen.options else {})
