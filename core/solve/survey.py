"""Asking all members of a portfolio at once whether they would take a query, before time is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verifolio.errors import UnknownPlugin, VerifolioError
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.plugin.choice import build
from verifolio.portfolio.features import beyond
from verifolio.portfolio.tree import Member
from verifolio.reductions import reduce_for
from verifolio.run import Link
from verifolio.run.memory import allow
from verifolio.solve.warm import warm_query


@dataclass(frozen=True)
class SurveyTask:
    """A query and the members that may have to decide it."""

    query: Query
    members: tuple[Member, ...]
    memory: int | None = None


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
    allow(task.memory)
    try:
        problems = warm_query(task.query).problems
        sizes: dict[str, int] = {}
        return [_ask(member, problems, sizes) for member in task.members]
    except VerifolioError as error:
        return error


def _ask(member: Member, problems: Sequence[Problem], sizes: dict[str, int]) -> Opinion:
    try:
        verifier = build(member.verifier)
    except UnknownPlugin as error:
        if member.optional:
            return Missing(str(error))
        raise
    plans = [reduce_for(verifier.refuses, p) for p in problems]
    refusals = [p for p in plans if isinstance(p, str)]
    if refusals and (not verifier.can_falsify or len(refusals) == len(plans)):
        return refusals[0]
    return beyond(member.at_most, problems, sizes)
