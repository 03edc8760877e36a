"""`verifolio verify`: decide one property of one or several networks."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verifolio.cli.common import (
    Address,
    AsJson,
    Cores,
    Device,
    ExecutorName,
    Expect,
    Memory,
    OptionPairs,
    PortfolioFile,
    Seed,
    StoreFile,
    Timeout,
    VerifierName,
    at,
    certificate_notes,
    exit_code,
    open_oracle,
)

if TYPE_CHECKING:
    from verifolio.answer import Answer
    from verifolio.network import Network
    from verifolio.query import Query
    from verifolio.vnnlib import NetworkDeclaration

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
    expect: Expect = None,
) -> None:
    """Decide whether a network has a counterexample to a property.

    The first line is the verdict: sat (a counterexample, replayed), unsat (proved that there is none), or
    why it is undecided. Without --expect both sat and unsat exit with 0.
    """
    from verifolio.cli.clock import elapsed, guard
    from verifolio.cli.main import UNDECIDED

    def give_up() -> int:
        show(None, late(elapsed()), as_json)
        sys.stdout.flush()
        return UNDECIDED

    place = at(executor, address)
    # jobs of `inline` run under a debugger, whose user takes time
    limit = math.inf if executor == "inline" or not timeout else timeout
    with ExitStack() as stack:
        with guard(limit, give_up):
            oracle = stack.enter_context(
                open_oracle(
                    verifier,
                    portfolio,
                    option,
                    timeout,
                    memory,
                    cores,
                    seed,
                    store,
                    place,
                    device,
                    alarm=False,
                )
            )
            oracle.start_counts = True
            query = load_query(files)
            left = timeout - elapsed() if timeout else None
            answer = late(elapsed()) if left is not None and left <= 0 else oracle.ask(query, left)
        finish(query, answer, as_json, counterexample, expect, certificate_notes(option, answer))


def late(seconds: float) -> Answer:
    """The answer where no verifier got any time."""
    from verifolio.answer import Answer, Verdict

    reason = "reading the files and starting the workers took all the time"
    return Answer(Verdict.TIMEOUT, reason=reason, seconds=seconds)


def load_query(files: list[str]) -> Query:
    """The query of `NETWORK... PROPERTY`."""
    from verifolio.errors import InputError
    from verifolio.network import Network
    from verifolio.query import Query
    from verifolio.vnnlib import load

    if len(files) < 2:
        raise InputError("verify", "at least one network and a property", f"{len(files)} file(s)")
    networks = [Network.load(name) for name in files[:-1]]
    specification = load(Path(files[-1]))
    matched = match_networks(specification.networks, networks, files[-1])
    return Query(matched, specification, name=files[-1])


def match_networks(
    declared: tuple[NetworkDeclaration, ...], given: list[Network], where: str
) -> tuple[Network, ...]:
    """One network per declaration; one declared `equal-to` another need not be given again."""
    from verifolio.errors import InputError

    if len(given) == len(declared):
        return tuple(given)
    own = [d for d in declared if d.equal_to is None]
    if len(given) != len(own):
        expected = f"{len(own)} network file(s), as the property declares"
        raise InputError(where, expected, str(len(given)), "give them in the order of the declarations")
    by_name = {d.name: network for d, network in zip(own, given, strict=True)}
    return tuple(by_name[d.equal_to or d.name] for d in declared)


def finish(
    query: Query,
    answer: Answer,
    as_json: bool,
    counterexample: str,
    expect: str | None,
    notes: Sequence[str] = (),
) -> None:
    """Print, write the counterexample, leave with the exit code."""
    from verifolio.answer import Flag
    from verifolio.cli.main import ALARM, complain
    from verifolio.counterexample import counterexample_text

    if counterexample and answer.witness is not None:  # first: a closed pipe must not cost the file
        Path(counterexample).write_text(counterexample_text(query, answer.witness))
    show(query, answer, as_json, notes)
    for note in notes:
        complain(note)
    if Flag.ALARM in answer.flags:
        complain(f"soundness alarm: {answer.reason}")
        raise typer.Exit(ALARM)
    raise typer.Exit(exit_code([answer.verdict], expect or answer.verdict.value))


def show(query: Query | None, answer: Answer, as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print the answer."""
    from verifolio.cli.output import say, say_json

    if as_json:
        say_json(describe(query, answer) | {"notes": list(notes)})
        return
    for line in lines(answer):
        say(line)


def lines(answer: Answer) -> list[str]:
    """The answer for people, verdict first."""
    shown = [str(answer.verdict.value), f"by {answer.verifier or 'nobody'} in {answer.seconds:.3f} s"]
    shown += [f"reason: {answer.reason}"] if answer.reason else []
    shown += [f"flags: {', '.join(sorted(answer.flags))}"] if answer.flags else []
    if answer.witness is not None:
        shown.append(f"margins: {', '.join(f'{m:.6g}' for m in answer.witness.margins)}")
    for attempt in answer.attempts if len(answer.attempts) > 1 else ():
        why = f" ({attempt.reason})" if attempt.reason else ""
        shown.append(f"  {attempt.verifier}: {attempt.verdict.value} in {attempt.seconds:.3f} s{why}")
    return shown


def describe(query: Query | None, answer: Answer) -> dict[str, Any]:
    """The answer for programs; without a query its hashes are not known."""
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
        "network_sha256": [] if query is None else [n.sha256 for n in query.networks],
        "property_sha256": None if query is None else query.specification.sha256,
        "query_sha256": None if query is None else query.sha256,
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
