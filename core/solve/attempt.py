"""Running an attempt to its report: the function a worker calls, whatever happens in it."""

from __future__ import annotations

import sys
import traceback

from verifolio.errors import VerifolioError
from verifolio.model.answer import Verdict
from verifolio.run import Link
from verifolio.solve.report import Report
from verifolio.solve.task import AttemptTask
from verifolio.solve.trial import Trial


def run_attempt(task: AttemptTask, link: Link) -> Report:
    """The function a worker calls. Errors of ours and of the verifier become reports, not crashes."""
    return guarded(Trial, task, link)


def guarded(kind: type[Trial], task: AttemptTask, link: Link) -> Report:
    """Run a trial to a report, whatever happens in it."""
    trial: Trial | None = None
    try:
        trial = kind(task, link)
        return trial.run()
    except VerifolioError as error:
        return Report(Verdict.ERROR, str(error), error=error)
    except MemoryError:
        return Report(Verdict.MEMOUT, "out of memory")
    except Exception as error:  # a verifier may raise anything; the attempt ends, the query goes on
        traceback.print_exc(file=sys.stderr)
        return Report(Verdict.ERROR, one_line(error))
    finally:
        if trial is not None:
            trial.evidence.close()


def one_line(error: BaseException) -> str:
    """An exception as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
