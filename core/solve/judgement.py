"""Judging points in a worker: those whose finder was stopped, and those that were witnesses once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import SoundnessAlarm, VerifolioError
from verifolio.model.answer import Answer, Verdict, Witness
from verifolio.model.query import Query
from verifolio.run import Link
from verifolio.solve.warm import warm_query
from verifolio.trust.referee import Rejection, confirm, judge_counterexample


@dataclass(frozen=True)
class ConfirmTask:
    """A witness whose finder was stopped before it could be evaluated exactly."""

    query: Query
    witness: Witness


def run_confirm(task: ConfirmTask, link: Link) -> Witness:
    """The function a worker calls to complete the judgement of a replayed witness."""
    return confirm(warm_query(task.query), task.witness)


@dataclass(frozen=True)
class JudgeTask:
    """A point that was a witness once."""

    query: Query
    x: NDArray[np.float32]


def run_judge(task: JudgeTask, link: Link) -> Witness | Rejection:
    """The function a worker calls to judge a point from the start."""
    return judge_counterexample(warm_query(task.query), task.x)


Judge = Callable[[Query, NDArray[np.floating], float], Witness | None]


def still_a_witness(judge: Judge, query: Query, x: NDArray[np.floating], seconds: float) -> Answer | None:
    """The answer by a stored point, if it is judged to be a witness; where nobody can judge it, there is none."""
    began = time.monotonic()
    try:
        witness = judge(query, x, seconds)
    except SoundnessAlarm:
        raise
    except VerifolioError:  # then it is decided as if there were none
        return None
    if witness is None:
        return None
    spent, reason = time.monotonic() - began, "a stored witness, replayed"
    return Answer(Verdict.SAT, "store", reason, witness, witness.flags, spent)
