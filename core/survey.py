"""Asking all members of a portfolio at once whether they would take a query, before time is divided."""

from __future__ import annotations

from dataclasses import dataclass

from verifolio.attempt import Choice, build, warm_query
from verifolio.errors import UnknownPlugin, VerifolioError
from verifolio.problem import Problem
from verifolio.query import Query
from verifolio.reductions import reduce_for
from verifolio.run import Link
from verifolio.verifier import Verifier


@dataclass(frozen=True)
class SurveyTask:
    """A query and the members that may have to decide it; `optional` ones may be missing."""

    query: Query
    members: tuple[Choice | Verifier, ...]
    optional: tuple[bool, ...]


@dataclass(frozen=True)
class Missing:
    """An optional member that is not installed or cannot be used here."""

    reason: str


Opinion = str | Missing | None


def run_survey(task: SurveyTask, link: Link) -> list[Opinion] | VerifolioError:
    """The function a worker calls."""
    return survey(task)


def survey(task: SurveyTask) -> list[Opinion] | VerifolioError:
    """For each member why it refuses, that it is missing, or None."""
    try:
        problems = warm_query(task.query).problems
        return [_ask(m, o, problems) for m, o in zip(task.members, task.optional, strict=True)]
    except VerifolioError as error:
        return error


def _ask(member: Choice | Verifier, optional: bool, problems: tuple[Problem, ...]) -> Opinion:
    try:
        verifier = build(member)
    except UnknownPlugin as error:
        if optional:
            return Missing(str(error))
        raise
    plans = [reduce_for(verifier.refuses, p) for p in problems]
    refusals = [p for p in plans if isinstance(p, str)]
    return refusals[0] if refusals and (not verifier.can_falsify or len(refusals) == len(plans)) else None
