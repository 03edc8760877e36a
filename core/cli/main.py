"""The entry point: builds the application, runs it, and turns every error into a message and an exit code."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from typing import Any, NoReturn

from verifolio.cli.codes import ALARM, BAD_INPUT, BUG, CLOSED, DONE, INTERRUPTED

DEBUG_VARIABLE = "VERIFOLIO_DEBUG"
SAME_PRESS = 0.5  # seconds: people who press a key again to be sure take longer, a second delivery does not


def main() -> NoReturn:
    """Run the command line and leave with its exit code.

    While modules are imported there is nothing to lose, and an interrupt ends the process without a word.
    """
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from verifolio.cli.clock import process_start
    from verifolio.cli.keeper import keep
    from verifolio.cli.output import complain

    try:
        if hears:
            signal.signal(signal.SIGINT, _Interrupts())
        started = process_start()
        if sys.argv[1:2] == ["verify"]:  # the command whose limit holds from outside
            keep()
            _begin(sys.argv[2:])
        code = run(sys.argv[1:], started)
    except KeyboardInterrupt:  # before the command began, or a second one
        complain("interrupted")
        code = INTERRUPTED
    if hears:  # another interrupt would only interrupt the cleaning up; a first one ends it without a word
        signal.signal(signal.SIGINT, signal.SIG_IGN if code == INTERRUPTED else signal.SIG_DFL)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = leave_pipe()
    sys.exit(code)


class _Interrupts:
    """Ctrl-C raises KeyboardInterrupt; once, where the same key press arrives by several ways."""

    def __init__(self) -> None:
        self.last = -math.inf

    def __call__(self, _number: int, _frame: object) -> None:
        before, self.last = self.last, time.monotonic()
        if self.last - before > SAME_PRESS:
            raise KeyboardInterrupt


def _begin(options: list[str]) -> None:
    """Start what takes longest, the imports of the workers, before options are understood; they may go unused."""
    if any(word.startswith(("--help", "--executor")) for word in options):
        return
    from verifolio.run.template import begin

    begin()


def run(arguments: list[str], started: float | None = None) -> int:
    """Run one command, whose time counts from `started` or from now; gives the exit code."""
    from verifolio.cli.clock import begin
    from verifolio.cli.output import complain
    from verifolio.storage.invocation import ARGUMENTS

    begin(started)
    ARGUMENTS.set(tuple(arguments))
    code = _run(arguments)
    if code == INTERRUPTED:
        complain("interrupted")
    return code


def leave_pipe() -> int:
    """Nobody reads on: what is still written goes nowhere, also at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED


def _run(arguments: list[str]) -> int:
    import typer

    from verifolio.cli.app import build_app

    # click is a package of its own or a part of typer, depending on the version; this is its ClickException
    usage_error: Any = typer.BadParameter.__mro__[2]
    try:
        command = typer.main.get_command(build_app(arguments))
        result = command.main(arguments, prog_name="verifolio", standalone_mode=False)
        return result if isinstance(result, int) else DONE
    except typer.Exit as leaving:
        return leaving.exit_code
    except usage_error as error:
        from verifolio.cli.renamed import explain

        explain(error)
        error.show()
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return leave_pipe()
    except SystemExit as leaving:  # click's own way to end when the pipe is closed
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise
        return leave_pipe()
    except Exception as error:
        return report(error)


def report(error: Exception) -> int:
    """Print an error for people; gives the exit code."""
    import tempfile
    import traceback

    from verifolio.cli.output import complain
    from verifolio.errors import SoundnessAlarm, VerifolioError

    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error)
    if isinstance(error, SoundnessAlarm):
        complain(f"soundness alarm: {error}")
        return ALARM
    if isinstance(error, VerifolioError):
        complain(str(error))
        return BAD_INPUT
    if isinstance(error, OSError) and error.filename is not None:
        got = error.strerror or type(error).__name__
        complain(
            f"{error.filename}: expected a file that can be used, got {got}; check the path and the disk"
        )
        return BAD_INPUT
    with tempfile.NamedTemporaryFile("w", prefix="verifolio-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    text = " ".join(str(error).split())
    complain(f"a bug: {type(error).__name__}: {text}; details in {log.name}")
    return BUG
