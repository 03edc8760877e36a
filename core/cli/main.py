"""The entry point: builds the application, runs it, and turns every error into a message and an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from typing import Any, NoReturn

DONE, BUG, BAD_INPUT, UNDECIDED, ALARM, INTERRUPTED = 0, 1, 2, 3, 4, 130
DEBUG_VARIABLE = "VERIFOLIO_DEBUG"


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; gives the exit code."""
    code = _run(arguments)
    if code == INTERRUPTED:
        complain("interrupted")
    return code


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
        error.show()
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (nobody reads on; exit quietly)
        return DONE
    except Exception as error:
        return report(error)


def report(error: Exception) -> int:
    """Print an error for people; gives the exit code."""
    from verifolio.errors import SoundnessAlarm, VerifolioError

    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error)
    if isinstance(error, SoundnessAlarm):
        complain(f"soundness alarm: {error}")
        return ALARM
    if isinstance(error, VerifolioError):
        complain(str(error))
        return BAD_INPUT
    with tempfile.NamedTemporaryFile("w", prefix="verifolio-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    text = " ".join(str(error).split())
    complain(f"a bug: {type(error).__name__}: {text}; details in {log.name}")
    return BUG


def complain(text: str) -> None:
    """One message on standard error."""
    sys.stderr.write(text.rstrip() + "\n")
    sys.stderr.flush()
