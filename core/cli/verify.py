"""`verifolio verify`: decide one property of one or several networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verifolio.cli.common import (
    Address,
    AsJson,
    Cores,
    Device,
    ExecutorName,
    Memory,
    OptionPairs,
    PortfolioFile,
    Seed,
    StoreFile,
    Timeout,
    VerifierName,
    at,
    open_oracle,
)

if TYPE_CHECKING:
    from verifolio.answer import Answer
    from verifolio.query import Query

Files = Annotated[
    list[str], typer.Argument(metavar="NETWORK... PROPERTY", help="ONNX files, then a VNN-LIB file.")
]
Counterexample = Annotated[str, typer.Option(help="Write the counterexample here (VNN-COMP format).")]


def verify(
    files: Files,
    verifier: VerifierName = "",
    portfolio: PortfolioFile = "",
    option: OptionPairs = None,
    timeout: Timeout = 300.0,
    memory: Memory = 0.0,
    cores: Cores = 0,
    seed: Seed = 0,
    as_json: AsJson = False,
    counterexample: Counterexample = "",
    store: StoreFile = "",
    executor: ExecutorName = "process",
    address: Address = "",
    device: Device = "cpu",
) -> None:
    """Decide whether a network has a counterexample to a property.

    The first line is the verdict: sat (a counterexample, replayed), unsat (proved that there is none), or
    why it is undecided.
    """
    place = at(executor, address)
    with open_oracle(
        verifier, portfolio, option, timeout, memory, cores, seed, store, place, device, alarm=False
    ) as oracle:
        query = load_query(files)
        oracle.executor.warm(wait=True)  # not the query's time
        answer = oracle.ask(query)
    finish(query, answer, as_json, counterexample)


def load_query(files: list[str]) -> Query:
    """The query of `NETWORK... PROPERTY`."""
    from verifolio.errors import InputError
    from verifolio.query import Query

    if len(files) < 2:
        raise InputError("command line", "at least one network and a property", f"{len(files)} file(s)")
    return Query.from_files(files[:-1], files[-1])


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
    if Flag.EMPTY in answer.flags:
        complain(f"warning: {answer.reason}; nothing about the network was proved")
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
