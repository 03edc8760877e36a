"""`verifolio verify`: decide one property of one or several networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from verifolio.answer import Answer
    from verifolio.executor import Executor
    from verifolio.portfolio import Portfolio
    from verifolio.query import Query

LANES = 64  # members that may race; workers only start when there is work for them
Files = Annotated[
    list[str], typer.Argument(metavar="NETWORK... PROPERTY", help="ONNX files, then a VNN-LIB file.")
]


def verify(
    files: Files,
    verifier: Annotated[str, typer.Option(help="Use this verifier alone.")] = "",
    portfolio: Annotated[str, typer.Option(help="A portfolio file (YAML).")] = "",
    option: Annotated[list[str] | None, typer.Option(help="An option of --verifier, key=value.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for the query.")] = 300.0,
    memory: Annotated[float, typer.Option(help="Gigabytes per verifier, 0 for no limit.")] = 0.0,
    cores: Annotated[int, typer.Option(min=1, help="Cores per verifier.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    counterexample: Annotated[
        str, typer.Option(help="Write the counterexample here (VNN-COMP format).")
    ] = "",
    store: Annotated[str, typer.Option(help="Look answers up here first and keep them (SQLite).")] = "",
    executor: Annotated[str, typer.Option(help="Where verifiers run: process, inline, ...")] = "process",
    device: Annotated[str, typer.Option(help="Where tensors live.")] = "cpu",
) -> None:
    """Decide whether a network has a counterexample to a property.

    The first line is the verdict: sat (a counterexample, replayed), unsat (proved that there is none), or
    why it is undecided.
    """
    from verifolio.hooks import executors

    limits = {"timeout": timeout, "memory": int(memory * 2**30) or None, "cores": cores, "seed": seed}
    place = executors().get(executor)(LANES)
    with place:
        place.warm()  # workers start while this process is still importing and parsing
        chosen = select_portfolio(verifier, portfolio, option or [])
        query = load_query(files)
        place.warm(wait=True)  # not the query's time
        answer = decide(query, chosen, place, store, limits | {"device": device})
    finish(query, answer, as_json, counterexample)


def load_query(files: list[str]) -> Query:
    """The query of `NETWORK... PROPERTY`."""
    from verifolio.errors import InputError
    from verifolio.query import Query

    if len(files) < 2:
        raise InputError("verify", "at least one network and a property", f"{len(files)} file(s)")
    return Query.from_files(list(files[:-1]), files[-1])


def select_portfolio(verifier: str, portfolio: str, options: list[str]) -> Portfolio:
    """What --verifier, --portfolio and --option ask for."""
    from verifolio.errors import InputError
    from verifolio.options import split_pairs
    from verifolio.portfolio import choose, single

    if verifier and portfolio:
        raise InputError("verify", "--verifier or --portfolio", "both")
    if options and not verifier:
        raise InputError(
            "--option", "a --verifier it belongs to", "none", "name one, or use a portfolio file"
        )
    if verifier:
        return single(verifier, split_pairs(options))
    if portfolio:
        from verifolio.portfolio_file import read_portfolio

        return read_portfolio(portfolio)
    return choose()


def decide(
    query: Query, portfolio: Portfolio, executor: Executor, store: str, limits: dict[str, Any]
) -> Answer:
    """Ask the oracle; an alarm's answer is given back, flagged."""
    from verifolio.oracle import Oracle
    from verifolio.store import Store

    kept = Store(store) if store else None
    try:
        with Oracle(portfolio, executor, kept, alarm=False, **limits) as oracle:
            return oracle.ask(query)
    finally:
        if kept is not None:
            kept.close()


def finish(query: Query, answer: Answer, as_json: bool, counterexample: str) -> None:
    """Print, write the counterexample, leave with the exit code."""
    from verifolio.answer import Flag
    from verifolio.cli.main import ALARM, DONE, UNDECIDED, complain
    from verifolio.cli.output import say, say_json
    from verifolio.counterexample import counterexample_text

    if as_json:
        say_json(describe(query, answer))
    else:
        for line in lines(answer):
            say(line)
    if counterexample and answer.witness is not None:
        Path(counterexample).write_text(counterexample_text(query, answer.witness))
    if Flag.ALARM in answer.flags:
        complain(f"soundness alarm: {answer.reason}")
        raise typer.Exit(ALARM)
    raise typer.Exit(DONE if answer.verdict.decided else UNDECIDED)


def lines(answer: Answer) -> list[str]:
    """The answer for people, verdict first."""
    shown = [str(answer.verdict.value), f"by {answer.verifier} in {answer.seconds:.3f} s"]
    shown += [f"reason: {answer.reason}"] if answer.reason else []
    shown += [f"flags: {', '.join(sorted(answer.flags))}"] if answer.flags else []
    if answer.witness is not None:
        shown.append(f"margins: {', '.join(f'{m:.6g}' for m in answer.witness.margins)}")
    for attempt in answer.attempts if len(answer.attempts) > 1 else ():
        why = f" ({attempt.reason})" if attempt.reason else ""
        shown.append(f"  {attempt.verifier}: {attempt.verdict.value} in {attempt.seconds:.3f} s{why}")
    return shown


def describe(query: Query, answer: Answer) -> dict[str, Any]:
    """The answer for programs."""
    from verifolio.versions import versions

    witness = answer.witness
    return {
        "verdict": answer.verdict.value,
        "verifier": answer.verifier,
        "seconds": round(answer.seconds, 6),
        "reason": answer.reason,
        "flags": sorted(f.value for f in answer.flags),
        "witness": None if witness is None else {"x": witness.x, "y": witness.y},
        "margins": None if witness is None else witness.margins,
        "bound": answer.bound,
        "network_sha256": [n.sha256 for n in query.networks],
        "property_sha256": query.specification.sha256,
        "query_sha256": query.sha256,
        "stats": dict(answer.stats),
        "attempts": [
            {
                "verifier": a.verifier,
                "verdict": a.verdict.value,
                "reason": a.reason,
                "seconds": round(a.seconds, 6),
                "peak_memory": a.peak_memory,
                "stats": dict(a.stats),
            }
            for a in answer.attempts
        ],
        "versions": versions(),
    }
