"""verifolio: a portfolio of neural network verifiers.

The names below and those of `verifolio.graph`, `verifolio.vnnlib` and `verifolio.testing` are public; every other
module is private and may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifolio.model.batch import Atom, Batch, Sighting
    from verifolio.model.joint import Joint
    from verifolio.model.neighbourhood import Neighbourhood
    from verifolio.model.radius import RadiusBounds, RadiusStart
    from verifolio.plugin.batch import BatchContext, Spot

    __version__: str

    from verifolio.api.ask import AskOptions, ManyOptions, attack, compare, robustness, verify
    from verifolio.api.models import ExportedModel, export
    from verifolio.api.radii import RadiusOptions, critical, distribution
    from verifolio.errors import (
        InputError,
        SoundnessAlarm,
        UnknownPlugin,
        UnsupportedNetwork,
        VerifolioError,
    )
    from verifolio.graph import Graph
    from verifolio.graph.module import GraphModule
    from verifolio.model.answer import Answer, Attempt, Closest, Flag, Outcome, Verdict, Witness
    from verifolio.model.problem import Ball, Domain, Problem
    from verifolio.model.query import Query
    from verifolio.onnx_import.network import Compute, Network, TensorSignature
    from verifolio.plugin.account import Account, Asked, Event, Example, InputResult, Reader
    from verifolio.plugin.bounder import Bounder, Bounders
    from verifolio.plugin.choice import Choice
    from verifolio.plugin.data_source import Dataset, DataSource
    from verifolio.plugin.estimator import AskingLike, Claim, Estimator, OracleLike
    from verifolio.plugin.evidence import Assumptions, Bounds, Evidence, Margins
    from verifolio.plugin.executor import Executor, Handle
    from verifolio.plugin.exporter import Export, Exporter
    from verifolio.plugin.hookspecs import hookimpl
    from verifolio.plugin.manager import Plugins, current_plugins
    from verifolio.plugin.options import NoOptions
    from verifolio.plugin.property import Geometry, Growth, Points, Property, Reference
    from verifolio.plugin.regime import BatchBall, Regime
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.section import Content, Material, Section, Table
    from verifolio.plugin.verifier import Context, Verifier
    from verifolio.portfolio.chooser import Chooser, default_portfolio
    from verifolio.portfolio.file import parse_portfolio, read_portfolio
    from verifolio.portfolio.tree import Member, Portfolio, Race, Series, single_verifier
    from verifolio.results.comparison import Comparison
    from verifolio.results.counterexample import Counterexample
    from verifolio.results.radii import CriticalRadius, Distribution
    from verifolio.results.robustness import InputVerdict, Robustness
    from verifolio.run.budget import Budget
    from verifolio.run.job import End, Job, Limits, Link, Result
    from verifolio.run.settings import Settings
    from verifolio.solve.asking import Asking
    from verifolio.solve.oracle import Oracle
    from verifolio.storage.store import Store
    from verifolio.trust.referee import Rejection, judge_counterexample
    from verifolio.vnnlib import Specification

# Where each public name lives; modules are imported on first use, so that `import verifolio` is cheap.
_HOMES = {
    "api.ask": ("AskOptions", "ManyOptions", "attack", "compare", "robustness", "verify"),
    "api.models": ("ExportedModel", "export"),
    "api.radii": ("RadiusOptions", "critical", "distribution"),
    "plugin.exporter": ("Export", "Exporter"),
    "results.comparison": ("Comparison",),
    "results.counterexample": ("Counterexample",),
    "results.radii": ("CriticalRadius", "Distribution"),
    "results.robustness": ("InputVerdict", "Robustness"),
    "model.neighbourhood": ("Neighbourhood",),
    "model.joint": ("Joint",),
    "plugin.batch": ("BatchContext", "Spot"),
    "model.radius": ("RadiusBounds", "RadiusStart"),
    "model.batch": ("Atom", "Batch", "Sighting"),
    "errors": ("InputError", "SoundnessAlarm", "UnknownPlugin", "UnsupportedNetwork", "VerifolioError"),
    "graph": ("Graph",),
    "graph.module": ("GraphModule",),
    "model.answer": ("Answer", "Attempt", "Closest", "Flag", "Outcome", "Verdict", "Witness"),
    "model.problem": ("Ball", "Domain", "Problem"),
    "model.query": ("Query",),
    "onnx_import.network": ("Compute", "Network", "TensorSignature"),
    "plugin.account": ("Account", "Asked", "Event", "Example", "InputResult", "Reader"),
    "plugin.bounder": ("Bounder", "Bounders"),
    "plugin.choice": ("Choice",),
    "plugin.data_source": ("DataSource", "Dataset"),
    "plugin.estimator": ("AskingLike", "Claim", "Estimator", "OracleLike"),
    "plugin.evidence": ("Assumptions", "Bounds", "Evidence", "Margins"),
    "plugin.executor": ("Executor", "Handle"),
    "plugin.hookspecs": ("hookimpl",),
    "plugin.manager": ("Plugins", "current_plugins"),
    "plugin.options": ("NoOptions",),
    "plugin.property": ("Geometry", "Growth", "Points", "Property", "Reference"),
    "plugin.regime": ("BatchBall", "Regime"),
    "plugin.registry": ("Registry",),
    "plugin.section": ("Content", "Material", "Section", "Table"),
    "plugin.verifier": ("Context", "Verifier"),
    "portfolio.chooser": ("Chooser", "default_portfolio"),
    "portfolio.file": ("parse_portfolio", "read_portfolio"),
    "portfolio.tree": ("Member", "Portfolio", "Race", "Series", "single_verifier"),
    "run.budget": ("Budget",),
    "run.job": ("End", "Job", "Limits", "Link", "Result"),
    "run.settings": ("Settings",),
    "solve.asking": ("Asking",),
    "solve.oracle": ("Oracle",),
    "storage.store": ("Store",),
    "trust.referee": ("Rejection", "judge_counterexample"),
    "vnnlib": ("Specification",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("verifolio")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])


__all__ = [
    "Account",
    "Answer",
    "AskOptions",
    "Asked",
    "Asking",
    "AskingLike",
    "Assumptions",
    "Atom",
    "Attempt",
    "Ball",
    "Batch",
    "BatchBall",
    "BatchContext",
    "Bounder",
    "Bounders",
    "Bounds",
    "Budget",
    "Choice",
    "Chooser",
    "Claim",
    "Closest",
    "Comparison",
    "Compute",
    "Content",
    "Context",
    "Counterexample",
    "CriticalRadius",
    "DataSource",
    "Dataset",
    "Distribution",
    "Domain",
    "End",
    "Estimator",
    "Event",
    "Evidence",
    "Example",
    "Executor",
    "Export",
    "ExportedModel",
    "Exporter",
    "Flag",
    "Geometry",
    "Graph",
    "GraphModule",
    "Growth",
    "Handle",
    "InputError",
    "InputResult",
    "InputVerdict",
    "Job",
    "Joint",
    "Limits",
    "Link",
    "ManyOptions",
    "Margins",
    "Material",
    "Member",
    "Neighbourhood",
    "Network",
    "NoOptions",
    "Oracle",
    "OracleLike",
    "Outcome",
    "Plugins",
    "Points",
    "Portfolio",
    "Problem",
    "Property",
    "Query",
    "Race",
    "RadiusBounds",
    "RadiusOptions",
    "RadiusStart",
    "Reader",
    "Reference",
    "Regime",
    "Registry",
    "Rejection",
    "Result",
    "Robustness",
    "Section",
    "Series",
    "Settings",
    "Sighting",
    "SoundnessAlarm",
    "Specification",
    "Spot",
    "Store",
    "Table",
    "TensorSignature",
    "UnknownPlugin",
    "UnsupportedNetwork",
    "Verdict",
    "Verifier",
    "VerifolioError",
    "Witness",
    "attack",
    "compare",
    "critical",
    "current_plugins",
    "default_portfolio",
    "distribution",
    "export",
    "hookimpl",
    "judge_counterexample",
    "parse_portfolio",
    "read_portfolio",
    "robustness",
    "single_verifier",
    "verify",
]
