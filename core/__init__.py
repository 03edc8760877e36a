"""verifolio: a portfolio of neural network verifiers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifolio.answer import Answer, Attempt, Flag, Outcome, Verdict, Witness
    from verifolio.bounder import Bounder, Bounders
    from verifolio.budget import Budget
    from verifolio.errors import InputError, SoundnessAlarm, UnknownPlugin, UnsupportedNetwork, VerifolioError
    from verifolio.estimator import Estimator
    from verifolio.evidence import Assumptions, Bounds, Evidence
    from verifolio.executor import Executor, Handle
    from verifolio.hookspecs import hookimpl
    from verifolio.network import Network
    from verifolio.oracle import Asking, Oracle
    from verifolio.portfolio import Member, Portfolio, Race, Series, choose, single
    from verifolio.portfolio_file import parse_portfolio, read_portfolio
    from verifolio.problem import Ball, Domain, Problem
    from verifolio.property import Property, Reference
    from verifolio.query import Query
    from verifolio.referee import Rejection, judge
    from verifolio.registry import Registry, installed
    from verifolio.store import Store
    from verifolio.verifier import Context, NoOptions, Verifier

# Where each public name lives; modules are imported on first use, so that `import verifolio` is cheap.
_HOMES = {
    "answer": ("Answer", "Attempt", "Flag", "Outcome", "Verdict", "Witness"),
    "bounder": ("Bounder", "Bounders"),
    "budget": ("Budget",),
    "errors": ("InputError", "SoundnessAlarm", "UnknownPlugin", "UnsupportedNetwork", "VerifolioError"),
    "estimator": ("Estimator",),
    "evidence": ("Assumptions", "Bounds", "Evidence"),
    "executor": ("Executor", "Handle"),
    "hookspecs": ("hookimpl",),
    "network": ("Network",),
    "oracle": ("Asking", "Oracle"),
    "portfolio": ("Member", "Portfolio", "Race", "Series", "choose", "single"),
    "portfolio_file": ("parse_portfolio", "read_portfolio"),
    "problem": ("Ball", "Domain", "Problem"),
    "property": ("Property", "Reference"),
    "query": ("Query",),
    "referee": ("Rejection", "judge"),
    "registry": ("Registry", "installed"),
    "store": ("Store",),
    "verifier": ("Context", "NoOptions", "Verifier"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])


__all__ = [
    "Answer",
    "Asking",
    "Assumptions",
    "Attempt",
    "Ball",
    "Bounder",
    "Bounders",
    "Bounds",
    "Budget",
    "Context",
    "Domain",
    "Estimator",
    "Evidence",
    "Executor",
    "Flag",
    "Handle",
    "InputError",
    "Member",
    "Network",
    "NoOptions",
    "Oracle",
    "Outcome",
    "Portfolio",
    "Problem",
    "Property",
    "Query",
    "Race",
    "Reference",
    "Registry",
    "Rejection",
    "Series",
    "SoundnessAlarm",
    "Store",
    "UnknownPlugin",
    "UnsupportedNetwork",
    "Verdict",
    "Verifier",
    "VerifolioError",
    "Witness",
    "choose",
    "hookimpl",
    "installed",
    "judge",
    "parse_portfolio",
    "read_portfolio",
    "single",
]
