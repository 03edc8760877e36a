"""The commands `verifolio ensemble attack` and `verifolio ensemble select`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, SEARCH, NetworkFiles
from verifolio.cli.expand import add_command, make_group
from verifolio.cli.output import going_on, kept_in
from verifolio.plugin.options import REQUIRED, described

if TYPE_CHECKING:
    from verifolio.portfolio.tree import Member, Portfolio
    from verifolio.solve.oracle import Oracle


@dataclass(frozen=True, kw_only=True)
class Running(bundles.TotalBudget, bundles.RunningMany):
    """What runs, and for how long."""

    @property
    def seconds(self) -> float:
        """The time for everything."""
        return self.total_budget or math.inf

    @contextmanager
    def oracle(self, norm: float = math.inf, method: str = "verify") -> Iterator[Oracle]:
        """The oracle, with a portfolio of ours for balls of this norm unless one was named.

        A `method` that is an attack of its own takes the place of the portfolio's.
        """
        from dataclasses import replace

        from verifolio.cli.common import open_oracle
        from verifolio.errors import InputError

        if method != "verify" and self.verifier:
            raise InputError("--verifier", f"none, because --method {method} names the attack", self.verifier)
        with open_oracle(self, self.jobs) as oracle:
            portfolio = oracle.portfolio or after_attacks(norm)
            named = portfolio if method == "verify" else replace(portfolio, attack=gradient(method))
            oracle.portfolio = named
            yield oracle


@dataclass(frozen=True, kw_only=True)
class Written(bundles.Picture, bundles.KeepQueries, bundles.Json):
    """What is written."""


@dataclass(frozen=True, kw_only=True)
class AttackWritten(bundles.Certificate, Written):
    """What is written about a value."""


@dataclass(frozen=True, kw_only=True)
class AttackInputs(bundles.Norm, bundles.Epsilon, bundles.Indices, bundles.Data):
    """Around which points, and how far."""


@dataclass(frozen=True, kw_only=True)
class AttackSearch(bundles.Bundle):
    """How a randomized attack is searched."""

    panel: ClassVar[str] = SEARCH
    alpha: str = described(
        "",
        "The loss from which it is not robust, such as 0.4; without it the value is computed.",
        metavar="LOSS",
    )
    method: Literal["decomposition", "milp", "maxmilp", "maxmin", "smt", "uniform", "deterministic"] = (
        described("decomposition", "How to search.")
    )
    attacks: int = described(0, "How many attacks the programs may mix; 0: one per network.", min=0)
    exact: bool = described(False, "Go on until the value is known.")
    form: Literal["auto", "dnf", "margin"] = described("auto", "How joint queries are written.")


@dataclass(frozen=True, kw_only=True)
class SelectInputs(bundles.TestData, bundles.Epsilon, bundles.Data):
    """Which points, and how far around them, in the maximum norm."""

    panel: ClassVar[str] = INPUTS
    points: int = described(200, "How many points on which all networks agree.", min=1)
    label: int = described(-1, "Only points of this label; -1 for all.")
    test_points: int = described(
        20, "At how many points, drawn at random, the robust accuracy is measured; 0 for none.", min=0
    )


@dataclass(frozen=True, kw_only=True)
class SelectSearch(bundles.Bundle):
    """How members are replaced."""

    panel: ClassVar[str] = SEARCH
    size: int = described(REQUIRED, "Members of the ensemble; the first networks to begin with.", min=2)
    method: Literal["verify", "ga1", "ga2", "ga3"] = described("verify", "How to search.")
    iterations: int = described(20, "Replacements at most.", min=0)
    rank: float = described(0.0, "The radius that ranks the members; 0 for all together.", min=0.0)
    together: int = described(2, "Count errors that so many networks share.", min=2)
    reverse: bool = described(False, "Replace the best member by the worst candidate.")
    proved_only: bool = described(False, "Replace only where it is proved to be better.")


def make_commands() -> typer.Typer:
    """The group `ensemble`."""
    group = make_group("Attack ensembles of networks, and select diverse members.")
    add_command(group, "attack", attack)
    add_command(group, "select", select)
    return group


def attack(
    networks: NetworkFiles,
    inputs: AttackInputs,
    search: AttackSearch,
    running: Running,
    written: AttackWritten,
) -> None:
    """Decide whether one attack can hurt all networks.

    The question is whether a randomized attack can reach a loss of alpha against every network. The first
    line is the verdict: robust (no attack does), not-robust (the printed one does), or unknown.

    Example:
        verifolio ensemble attack examples/ensemble/pair_a.onnx examples/ensemble/pair_b.onnx \\
            --data examples/ensemble/pair.npz --indices 0:2 --epsilon 2.5 --norm l1 --range=-inf,inf
    """
    from .run_attack import run_attack

    with going_on(*kept_in(running.store)):
        code = run_attack(networks, inputs, search, running, written)
    raise typer.Exit(code)


def select(
    networks: NetworkFiles, inputs: SelectInputs, search: SelectSearch, running: Running, written: Written
) -> None:
    """Select members that seldom err together.

    Members that tend to err together are replaced by others until no replacement is better. `--method verify`
    proves or refutes every mutual error; ga1, ga2 and ga3 are gradient attacks. Without --test-data the
    robust accuracy is measured on --data.

    Example:
        verifolio ensemble select examples/ensemble/digits_a.onnx examples/ensemble/digits_b.onnx \\
            examples/ensemble/digits_c.onnx --size 2 --data digits:test --epsilon 0.02,0.04 \\
            --points 5 --test-points 2 --method ga1
    """
    from .run_select import run_select

    with going_on(*kept_in(running.store)):
        code = run_select(networks, inputs, search, running, written)
    raise typer.Exit(code)


def after_attacks(norm: float = math.inf) -> Portfolio:
    """For queries on which gradient attacks have failed already: a short attack, bounds, then rows.

    Bounds know little of the corners of an L1 ball, which is two rows per input: there rows are tried first.
    """
    from verifolio.plugin.choice import Choice
    from verifolio.portfolio.tree import Member, Portfolio, Series

    quick = Member(Choice("pgd", {"rounds": 2}), seconds=0.2, share=0.1, optional=True)
    rows = (Member(Choice("milp"), seconds=5.0, share=0.3, optional=True),) if norm == 1 else ()
    deep = Member(Choice("crown"), share=0.6 if norm != 1 else 0.3, optional=True)
    stages = Series((quick, *rows, deep, Member(Choice("milp"), optional=True)))
    bounder = Member(Choice("crown"), optional=True)
    return Portfolio(stages, "ensemble", attack=gradient(), bounder=bounder)


def gradient(method: str = "search", **options: int) -> Member:
    """The attack on sets of networks."""
    from verifolio.plugin.choice import Choice
    from verifolio.portfolio.tree import Member

    return Member(Choice("joint-gradient", {"method": method, **options}), optional=True)
