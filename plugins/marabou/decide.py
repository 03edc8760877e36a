"""From a problem to an outcome: one disjunct after another, each solved in a process that can be stopped."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verifolio.encode.known import known_bounds
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem
from verifolio.plugin.verifier import Context
from verifolio.run.budget import Budget

from .tableau import Tableau

if TYPE_CHECKING:
    from .verifier import MarabouOptions

POLL = 0.01  # seconds between two looks at the process and at the clock
MODULE = "verifolio.plugins.marabou.solve"


def decide(problem: Problem, context: Context, options: MarabouOptions) -> Outcome:
    """All disjuncts refuted, a point that replays, or why not."""
    if context.budget.expired():
        return Outcome(_stopped(context), reason="stopped before it began")
    bounds = known_bounds(problem, context, context.bounders.best(problem))
    reason, tableau = "", Tableau(problem, bounds)
    with tempfile.TemporaryDirectory(prefix="marabou-", ignore_cleanup_errors=True) as folder:
        for number, rows in enumerate(problem.disjuncts):
            file = Path(folder) / f"{number}.npz"
            tableau.save(file, rows)
            share = context.budget.share(context.budget.remaining / (len(problem.disjuncts) - number))
            said, point = solve(file, share, options)
            if point:
                found = np.clip(np.array(point), problem.domain.lower, problem.domain.upper)
                if context.check(found):
                    return Outcome.found(found)
            if said != "unsat":
                reason = reason or ("its point does not replay" if point else f"Marabou says {said}")
            if context.budget.expired():
                return Outcome(_stopped(context), reason=reason or "stopped")
    return Outcome.unknown(reason) if reason else Outcome.proved()


def _stopped(context: Context) -> Verdict:
    return Verdict.TIMEOUT if context.budget.remaining <= 0 else Verdict.CANCELLED


def solve(file: Path, budget: Budget, options: MarabouOptions) -> tuple[str, list[float]]:
    """What Marabou says, and its point if it has one."""
    answer, log = file.with_suffix(".json"), file.with_suffix(".log")
    seconds = 0 if math.isinf(budget.remaining) else max(1, math.ceil(budget.remaining))  # 0 is no limit
    more = (file, answer, seconds, budget.cores, options.split, options.tighten)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, *map(str, more)],
            cwd=file.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None and not budget.expired():
            time.sleep(POLL)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        said = json.loads(answer.read_text())
        return str(said["verdict"]), [float(v) for v in said["point"]]
    except (OSError, ValueError, KeyError, TypeError):
        return ("timeout" if budget.expired() else f"nothing (exit code {process.returncode})"), []
