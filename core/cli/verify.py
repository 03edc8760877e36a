"""`verifolio verify`: decide one property of one or several networks."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
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
    from verifolio.network import Network
    from verifolio.query import Query
    from verifolio.vnnlib import NetworkDeclaration

Files = Annotated[
    list[str], typer.Argument(metavar="NETWORK... PROPERTY", help="ONNX files, then a VNN-LIB file.")
]
Certificate = Annotated[
    str, typer.Option(help="Write what proves unsat here, for `verifolio check`; one verifier searches then.")
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
    certificate: Certificate = "",
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
    with tempfile.TemporaryDirectory(prefix="verifolio-") as folder:
        if certificate:
            verifier, option = tracing(files, verifier, portfolio, option, store, folder)
        with open_oracle(
            verifier, portfolio, option, timeout, memory, cores, seed, store, place, device, alarm=False
        ) as oracle:
            query = load_query(files)
            oracle.executor.warm(wait=True)  # not the query's time
            answer = oracle.ask(query)
        if certificate:
            answer = certified(files, answer, Path(folder), Path(certificate))
    finish(query, answer, as_json, counterexample)


def tracing(
    files: list[str], verifier: str, portfolio: str, option: list[str] | None, store: str, folder: str
) -> tuple[str, list[str]]:
    """The verifier and its options that leave a trace; refuses at once where no certificate can be written."""
    from verifolio.certificates.writer import obstacle
    from verifolio.errors import InputError
    from verifolio.registry import installed

    able = [name for name, cls in installed().verifiers.usable().items() if cls.leaves_trace]
    if verifier not in ("", *able) or portfolio or store:
        raise InputError(
            "--certificate", f"verifier {' or '.join(able)}, no portfolio and no store", "another choice"
        )
    why = "several networks" if len(files) != 2 else obstacle(Path(files[0]), Path(files[1]))
    if why is not None:
        raise InputError("--certificate", "a query that the checker reads", why, "leave --certificate out")
    return verifier or able[0], [*(option or []), f"trace={folder}"]


def certified(files: list[str], answer: Answer, folder: Path, target: Path) -> Answer:
    """The answer; what proves it is in a file, or it says why not."""
    from verifolio.answer import Verdict
    from verifolio.certificates.writer import write

    if answer.verdict is not Verdict.UNSAT:
        return answer
    began = time.monotonic()
    said = write(Path(files[0]), Path(files[1]), folder, target, answer.seconds)
    took = round(time.monotonic() - began, 3)
    return replace(answer, stats={**answer.stats, "certificate": said, "certificate_seconds": took})


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
    shown += [f"certificate: {answer.stats['certificate']}"] if "certificate" in answer.stats else []
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
