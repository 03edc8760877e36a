"""`verifolio verify`: decide one property of one or several networks."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn

import typer

from verifolio.cli.bundles import WRITTEN, Certificate, Expect, Json, RunningMany
from verifolio.cli.codes import ALARM, UNDECIDED
from verifolio.cli.common import certificate_notes, exit_code, open_oracle
from verifolio.cli.expand import add_command
from verifolio.cli.output import going_on
from verifolio.cli.verify_inputs import AroundInputs, verify_inputs
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.model.answer import Answer
    from verifolio.model.query import Query
    from verifolio.vnnlib import Specification

# Why there is no answer where the process is ended from outside.
STARTING = "reading the files and starting the workers took all the time"
WORKING = (
    "out of time after the files were read: workers took too long to start, or to stop and give back memory"
)
SHOWN_WARNINGS = 3  # about one property: files repeat the same slip on every line
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="NETWORK... [PROPERTY]", help="ONNX files, then a VNN-LIB file unless --data is given."
    ),
]


@dataclass(frozen=True, kw_only=True)
class Written(Certificate, Json):
    """What is written."""

    panel: ClassVar[str] = WRITTEN
    counterexample: str = described("", "Write the counterexample here (VNN-COMP's format).", metavar="FILE")
    certified: bool = described(False, "Count unsat only when the checker accepts its certificate.")
    pictures: str = described("", "Draw every counterexample into this folder.", metavar="FOLDER")
    verbose: bool = described(False, "Show on standard error what verifiers report.")


def add_commands(app: typer.Typer) -> None:
    """Register the command."""
    add_command(app, "verify", verify)


def verify(
    files: Files, around: AroundInputs, running: RunningMany, expect: Expect, written: Written
) -> None:
    """Decide whether a network has a counterexample to a property.

    The property is a VNN-LIB file; or, with --data and --epsilon, that nothing within a radius of some inputs
    changes their class: then there is a line for each input and a summary, and the timeout is for each input.
    With a file, the first line is the verdict: sat (a counterexample, replayed), unsat (proved that there is none),
    or why it is undecided, and the timeout counts from the start of the process, reading files and starting workers
    included; it is overrun by at most half a second. Without --expect both sat and unsat exit with 0; with it, an
    empty input set exits with 5 like the opposite verdict, as it proves nothing about the network.
    Several networks are given in the order of the property's declarations; one declared `equal-to` another need
    not be given again.

    Example:
        verifolio verify examples/networks/digits_dense.onnx --data digits --indices 0:3 --epsilon 0.02
        verifolio verify examples/networks/digits_dense.onnx \\
            examples/networks/properties/digits_dense_45_0.2.vnnlib --timeout 20 --json
    """
    if around.data:
        verify_inputs(files, around, running, expect.expect, written.pictures, written.json)
    from verifolio.cli.clock import elapsed, guard, left

    timeout = running.timeout
    # jobs of `inline` run under a debugger, whose user takes time
    limit = math.inf if running.executor == "inline" or not timeout else timeout
    with ExitStack() as stack:
        stack.enter_context(going_on("nothing is kept of a query that is not decided", "ask it again"))
        with guard(limit, UNDECIDED, too_late(timeout, written.json, STARTING)) as otherwise:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="verifolio-"))
            if written.certificate or written.certified:
                running = tracing(files, running, folder, written.certificate)
            warm = running.executor != "process"  # whose workers begin to start with this process
            oracle = stack.enter_context(
                open_oracle(running, alarm=False, verbose=written.verbose, warm=warm)
            )
            oracle.start_counts = True
            query = load_query(files)
            seconds = left(timeout) if timeout else None
            otherwise(too_late(timeout, written.json, WORKING))
            in_time = seconds is None or seconds > 0
            answer = oracle.ask(query, seconds) if in_time else late(elapsed(), STARTING)
        if written.certificate or written.certified:
            target = Path(written.certificate or Path(folder) / "certificate.gz")
            answer = with_certificate(files, answer, Path(folder), target)
            answer = checked(files, answer, target) if written.certified else answer
        notes = certificate_notes(answer) if written.certificate else []
        code = finish(query, answer, written, expect.expect, notes)
        leave_in_time(limit, code)


def leave_in_time(limit: float, code: int) -> NoReturn:
    """End with the code; where workers take until the limit to go, without waiting for them."""
    from verifolio.cli.clock import OVERRUN, at
    from verifolio.cli.keeper import announce

    sys.stdout.flush()
    announce(at(limit + OVERRUN), code)
    raise typer.Exit(code)


def too_late(seconds: float, as_json: bool, reason: str) -> str:
    """What is printed where the driver itself does not come back in time."""
    from verifolio.cli.output import plain

    answer = late(seconds, reason)
    if as_json:
        return json.dumps(plain(describe(None, answer, {}) | {"notes": []})) + "\n"
    return "\n".join(lines(answer)) + "\n"


def late(seconds: float, reason: str) -> Answer:
    """The answer where verifiers got no time, or could not be waited for."""
    from verifolio.model.answer import Answer, Verdict

    return Answer(Verdict.TIMEOUT, reason=reason, seconds=seconds)


def tracing(files: list[str], running: RunningMany, folder: str, target: str) -> RunningMany:
    """With a verifier and an option that leave a trace; refuses at once where no certificate can be written."""
    from verifolio.certificates.writer import obstacle
    from verifolio.errors import InputError
    from verifolio.plugin.manager import current_plugins

    able = [name for name, cls in current_plugins().verifiers.usable().items() if cls.leaves_trace]
    if running.verifier not in ("", *able) or running.portfolio or running.store:
        raise InputError(
            "--certificate", f"verifier {' or '.join(able)}, no portfolio and no store", "another choice"
        )
    if not Path(target).absolute().parent.is_dir():
        raise InputError("--certificate", "a file in a folder that exists", target, "make the folder")
    why = "several networks" if len(files) != 2 else obstacle(Path(files[0]), Path(files[1]))
    if why is not None:
        raise InputError("--certificate", "a query that the checker reads", why, "leave --certificate out")
    option = (*running.option, f"trace={folder}")
    return replace(running, verifier=running.verifier or able[0], option=option)


def checked(files: list[str], answer: Answer, target: Path) -> Answer:
    """The answer with a flag if the checker accepts its certificate; without one, an unsat counts for nothing."""
    from verifolio.model.answer import Flag, Verdict
    from verifolio_check.main import VALID, run

    if answer.verdict is not Verdict.UNSAT:
        return answer
    if not target.exists():
        said = str(answer.stats.get("certificate", "not written"))
    else:
        code, said = run(Path(files[0]), Path(files[1]), target)
        if code == VALID:
            return replace(answer, flags=answer.flags | {Flag.CERTIFIED})
    return replace(answer, verdict=Verdict.UNKNOWN, reason=f"unsat, but its certificate is {said}")


def with_certificate(files: list[str], answer: Answer, folder: Path, target: Path) -> Answer:
    """The answer; what proves it is in a file, or it says why not."""
    from verifolio.certificates.writer import write
    from verifolio.model.answer import Verdict

    if answer.verdict is not Verdict.UNSAT:
        return answer
    began = time.process_time()
    said = write(Path(files[0]), Path(files[1]), folder, target, answer.seconds)
    took = round(time.process_time() - began, 3)
    return replace(answer, stats={**answer.stats, "certificate": said, "certificate_seconds": took})


def load_query(files: list[str]) -> Query:
    """The query of `NETWORK... PROPERTY`."""
    from verifolio.errors import InputError
    from verifolio.model.query import Query

    if len(files) < 2:
        got = "one file" if files else "none"
        remedy = "verify NETWORK PROPERTY, or verify NETWORK --data FILE --epsilon RADIUS"
        raise InputError("command line", "a network and a property", got, remedy)
    if files[-1].endswith((".onnx", ".onnx.gz")):
        raise InputError(files[-1], "a property", "a network", "networks come first, and the property last")
    query = Query.from_files(files[:-1], files[-1])
    show_warnings(query.specification)
    return query


def show_warnings(specification: Specification) -> None:
    """What was read although the standard does not allow it, on standard error."""
    from verifolio.cli.output import complain

    for text in specification.warnings[:SHOWN_WARNINGS]:
        complain(f"warning: {text}")
    if len(specification.warnings) > SHOWN_WARNINGS:
        complain(f"warning: {len(specification.warnings) - SHOWN_WARNINGS} more like this")


def finish(
    query: Query,
    answer: Answer,
    written: Written,
    expect: str | None,
    notes: Sequence[str] = (),
) -> int:
    """Print, write the counterexample; gives the exit code."""
    from verifolio.cli.output import complain
    from verifolio.model.answer import Flag
    from verifolio.model.counterexample import counterexample_text

    if written.counterexample and answer.witness is not None:  # first: a closed pipe must not cost the file
        Path(written.counterexample).write_text(counterexample_text(query, answer.witness))
    show(query, answer, written.json, notes)
    for note in notes:
        complain(note)
    if Flag.EMPTY in answer.flags:
        more = " (so this is not what --expect asks for)" if expect else ""
        complain(f"warning: {answer.reason}; nothing about the network was proved{more}")
    if Flag.ALARM in answer.flags:
        complain(f"soundness alarm: {answer.reason}")
        return ALARM
    hollow = expect is not None and Flag.EMPTY in answer.flags
    return exit_code([answer.verdict], expect or answer.verdict.value, hollow)


def show(query: Query, answer: Answer, as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print the answer."""
    from verifolio.cli.output import say, say_json

    if as_json:
        from verifolio.storage.versions import versions

        say_json(describe(query, answer, versions()) | {"notes": list(notes)})
        return
    for line in lines(answer, query):
        say(line)


def lines(answer: Answer, query: Query | None = None) -> list[str]:
    """The answer for people, verdict first."""
    shown = [str(answer.verdict.value), f"by {answer.verifier or 'nobody'} in {answer.seconds:.3f} s"]
    shown += [f"reason: {answer.reason}"] if answer.reason else []
    if answer.verdict.value == "timeout":
        shown.append("advice: give it more time with --timeout, or ask about a smaller set of inputs")
    shown += [f"flags: {', '.join(sorted(answer.flags))}"] if answer.flags else []
    if answer.witness is not None:
        shown.append(f"margins: {', '.join(f'{m:.6g}' for m in answer.witness.margins)}")
        if query is not None:
            from verifolio.results.witness import witness_lines

            shown += witness_lines(query, answer.witness)
    shown += [f"certificate: {answer.stats['certificate']}"] if "certificate" in answer.stats else []
    for attempt in answer.attempts if len(answer.attempts) > 1 else ():
        why = f" ({attempt.reason})" if attempt.reason else ""
        shown.append(f"  {attempt.verifier}: {attempt.verdict.value} in {attempt.seconds:.3f} s{why}")
    return shown


def describe(query: Query | None, answer: Answer, versions: Mapping[str, object]) -> dict[str, Any]:
    """The answer for programs; without a query its hashes are not known."""
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
        "versions": dict(versions),
    }
