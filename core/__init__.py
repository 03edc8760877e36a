"""verifolio: a portfolio of neural network verifiers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifolio.errors import InputError, SoundnessAlarm, UnknownPlugin, UnsupportedNetwork, VerifolioError
    from verifolio.model.answer import Answer, Attempt, Flag, Outcome, Verdict, Witness
    from verifolio.model.problem import Ball, Domain, Problem
    from verifolio.model.query import Query
    from verifolio.onnx_import.network import Network
    from verifolio.plugin.bounder import Bounder, Bounders
    from verifolio.plugin.estimator import Estimator
    from verifolio.plugin.evidence import Assumptions, Bounds, Evidence
    from verifolio.plugin.executor import Executor, Handle
    from verifolio.plugin.hookspecs import hookimpl
    from verifolio.plugin.property import Property, Reference
    from verifolio.plugin.registry import Registry, installed
    from verifolio.plugin.verifier import Context, NoOptions, Verifier
    from verifolio.portfolio.file import parse_portfolio, read_portfolio
    from verifolio.portfolio.tree import Member, Portfolio, Race, Series, choose, single
    from verifolio.run.budget import Budget
    from verifolio.solve.oracle import Asking, Oracle
    from verifolio.storage.store import Store
    from verifolio.trust.referee import Rejection, judge

# Where each public name lives; modules are imported on first use, so that `import verifolio` is cheap.
_HOMES = {
    "model.answer": ("Answer", "Attempt", "Flag", "Outcome", "Verdict", "Witness"),
    "plugin.bounder": ("Bounder", "Bounders"),
    "run.budget": ("Budget",),
    "errors": ("InputError", "SoundnessAlarm", "UnknownPlugin", "UnsupportedNetwork", "VerifolioError"),
    "plugin.estimator": ("Estimator",),
    "plugin.evidence": ("Assumptions", "Bounds", "Evidence"),
    "plugin.executor": ("Executor", "Handle"),
    "plugin.hookspecs": ("hookimpl",),
    "onnx_import.network": ("Network",),
    "solve.oracle": ("Asking", "Oracle"),
    "portfolio.tree": ("Member", "Portfolio", "Race", "Series", "choose", "single"),
    "portfolio.file": ("parse_portfolio", "read_portfolio"),
    "model.problem": ("Ball", "Domain", "Problem"),
    "plugin.property": ("Property", "Reference"),
    "model.query": ("Query",),
    "trust.referee": ("Rejection", "judge"),
    "plugin.registry": ("Registry", "installed"),
    "storage.store": ("Store",),
    "plugin.verifier": ("Context", "NoOptions", "Verifier"),
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
