"""Answers of a store in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from verifolio.cli.output import complain, say, say_json, table
from verifolio.plugin.account import Account, Asked, InputResult

from .sentence import answer, short
from .sources import find_sources, read_accounts


def show_accounts(names: Sequence[str], asked: Asked, as_json: bool) -> None:
    """Print every run, the newest of its kind: a sentence and a line per input."""
    accounts = read_accounts(find_sources(names), asked)
    if as_json:
        say_json({"runs": [describe(a) for a in accounts]})
        return
    for account in accounts:
        for text in account.alarms:
            complain(f"soundness alarm: {text}")
        say(answer(account))
        columns = columns_of(account)
        table(list(columns), [[cell(r, c) for c in columns] for r in account.results])


def describe(account: Account) -> dict[str, object]:
    """A run for programs."""
    return {
        "kind": account.kind,
        "run": account.run,
        "answer": answer(account),
        "alarms": account.alarms,
        "networks": dict(account.networks),
        "results": [asdict(r) for r in account.results],
        "provenance": dict(account.provenance),
    }


def columns_of(account: Account) -> list[str]:
    """What there is to say about inputs."""
    wanted = (
        "network",
        "data",
        "index",
        "label",
        "epsilon",
        "status",
        "lower",
        "upper",
        "verifier",
        "seconds",
    )
    return [c for c in wanted if any(getattr(r, c) not in (None, "") for r in account.results)]


def cell(result: InputResult, column: str) -> str:
    value = getattr(result, column)
    if column == "network":
        return short(value)
    if column == "seconds" and result.reused:
        return f"{value:.3g} (reused)"
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
