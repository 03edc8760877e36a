"""The commands `verifolio ensemble attack` and `verifolio ensemble select`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from verifolio.cli.common import (
    Address,
    AsJson,
    Cores,
    ExecutorName,
    Layout,
    Memory,
    PortfolioFile,
    Seed,
    StoreFile,
    Timeout,
    VerifierName,
    Workers,
    at,
)

if TYPE_CHECKING:
    from verifolio.portfolio.tree import Portfolio
    from verifolio.solve.oracle import Oracle

app = typer.Typer(help="Attack ensembles of networks, and select diverse members.", no_args_is_help=True)

Networks = Annotated[list[str], typer.Argument(metavar="NETWORK", help="ONNX files.")]
Data = Annotated[str, typer.Option(help="Points: NAME[:SPLIT] or a file.")]
Picture = Annotated[str, typer.Option(help="Draw the result into this file (png, svg, pdf).")]
Clip = Annotated[bool, typer.Option("--clip/--no-clip", help="Keep attack points inside [0, 1].")]
Time = Annotated[float, typer.Option("--time", "--budget", help="Seconds for everything, 0 for no limit.")]
Keep = Annotated[str, typer.Option(help="Write every query that reaches a verifier into this folder.")]


class AttackMethod(StrEnum):
    """See docs/guides/ensembles.md."""

    DECOMPOSITION = "decomposition"
    MILP = "milp"
    MAXMILP = "maxmilp"
    MAXMIN = "maxmin"
    SMT = "smt"
    UNIFORM = "uniform"
    DETERMINISTIC = "deterministic"


class SelectMethod(StrEnum):
    """Proofs, or one of three gradient attacks."""

    VERIFY = "verify"
    GA1 = "ga1"
    GA2 = "ga2"
    GA3 = "ga3"


class Norm(StrEnum):
    """How far is measured."""

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"


class Form(StrEnum):
    """How joint queries are written."""

    AUTO = "auto"
    DNF = "dnf"
    MARGIN = "margin"


@app.callback()
def _group() -> None:
    """Attack ensembles of networks, and select diverse members."""


@app.command("attack")
def attack(
    networks: Networks,
    data: Data,
    epsilon: Annotated[float, typer.Option(min=0, help="Radius of the attacks.")],
    alpha: Annotated[
        str, typer.Option(help="Loss from which it is not robust, e.g. 0.4; without, the value.")
    ] = "",
    indices: Annotated[str, typer.Option(help="Which points, e.g. 0:10,17.")] = "0:4",
    norm: Annotated[Norm, typer.Option(help="Norm of the radius.")] = Norm.L1,
    clip: Clip = False,
    layout: Layout = "",
    attacks: Annotated[
        int, typer.Option(min=0, help="How many the programs may mix; 0: one per network.")
    ] = 0,
    method: Annotated[AttackMethod, typer.Option(help="How to search.")] = AttackMethod.DECOMPOSITION,
    exact: Annotated[bool, typer.Option("--exact", help="Go on until the value is known.")] = False,
    form: Annotated[Form, typer.Option(help="How joint queries are written.")] = Form.AUTO,
    timeout: Timeout = 60.0,
    time: Time = 0.0,
    store: StoreFile = "",
    keep_queries: Keep = "",
    verifier: VerifierName = "",
    portfolio: PortfolioFile = "",
    executor: ExecutorName = "process",
    address: Address = "",
    workers: Workers = 1,
    cores: Cores = 1,
    memory: Memory = 0.0,
    seed: Seed = 0,
    as_json: AsJson = False,
    picture: Picture = "",
) -> None:
    """Decide whether a randomized attack can reach a loss of alpha against every network.

    The first line is the verdict: robust (no attack does), not-robust (the printed one does), or unknown.
    """
    from .run_attack import AttackCall, run_attack

    place = at(executor, address)
    limits = Limits(
        timeout, time, store, keep_queries, verifier, portfolio, place, workers, cores, memory, seed
    )
    call = AttackCall(
        tuple(networks),
        data,
        indices,
        epsilon,
        alpha,
        norm.value,
        clip,
        attacks,
        method.value,
        exact,
        form.value,
        layout,
    )
    raise typer.Exit(run_attack(call, limits, as_json, picture))


@app.command("select")
def select(
    networks: Networks,
    data: Data,
    size: Annotated[int, typer.Option(min=2, help="Members of the ensemble; the first ones to begin with.")],
    epsilons: Annotated[str, typer.Option(help="Radii in the maximum norm, e.g. 0.01,0.02,0.03.")],
    points: Annotated[int, typer.Option(min=1, help="Agreement points.")] = 200,
    label: Annotated[int, typer.Option(help="Only points of this label; -1 for all.")] = -1,
    method: Annotated[SelectMethod, typer.Option(help="How mutual errors are found.")] = SelectMethod.VERIFY,
    iterations: Annotated[int, typer.Option(min=0, help="Replacements at most.")] = 20,
    rank: Annotated[float, typer.Option(help="Radius that ranks the members; 0 for all together.")] = 0.0,
    together: Annotated[int, typer.Option(min=2, help="Count errors that so many networks share.")] = 2,
    reverse: Annotated[bool, typer.Option("--reverse", help="Replace the best by the worst.")] = False,
    certified: Annotated[bool, typer.Option("--certified", help="Replace only where proved better.")] = False,
    clip: Clip = False,
    layout: Layout = "",
    test_data: Annotated[str, typer.Option(help="Points for the robust accuracy (default: --data).")] = "",
    test_points: Annotated[int, typer.Option(min=0, help="So many, drawn at random; 0 for none.")] = 20,
    timeout: Timeout = 60.0,
    time: Time = 0.0,
    store: StoreFile = "",
    keep_queries: Keep = "",
    verifier: VerifierName = "",
    portfolio: PortfolioFile = "",
    executor: ExecutorName = "process",
    address: Address = "",
    workers: Workers = 1,
    cores: Cores = 1,
    memory: Memory = 0.0,
    seed: Seed = 0,
    as_json: AsJson = False,
    picture: Picture = "",
) -> None:
    """Replace ensemble members that tend to err together with others, until none is better."""
    from .run_select import SelectCall, run_select

    place = at(executor, address)
    limits = Limits(
        timeout, time, store, keep_queries, verifier, portfolio, place, workers, cores, memory, seed
    )
    call = SelectCall(
        tuple(networks),
        data,
        size,
        epsilons,
        points,
        label,
        method.value,
        iterations,
        rank,
        reverse,
        certified,
        clip,
        test_data,
        test_points,
        together,
        layout,
    )
    raise typer.Exit(run_select(call, limits, as_json, picture))


@dataclass(frozen=True)
class Limits:
    """What both commands share: time, places, seeds."""

    timeout: float
    budget: float
    store: str
    keep: str
    verifier: str
    portfolio: str
    executor: str
    workers: int
    cores: int
    memory: float
    seed: int

    @property
    def seconds(self) -> float:
        """The time for everything."""
        return self.budget or float("inf")

    @contextmanager
    def oracle(self, norm: float = math.inf) -> Iterator[Oracle]:
        """The oracle, with a portfolio of ours for balls of this norm unless one was named."""
        import torch

        from verifolio.cli.common import open_oracle

        torch.set_num_threads(self.cores)  # batches of small networks: more threads only wait for each other
        with open_oracle(
            self.verifier,
            self.portfolio,
            timeout=self.timeout,
            memory=self.memory,
            cores=self.cores,
            seed=self.seed,
            store=self.store,
            executor=self.executor,
            workers=self.workers,
        ) as oracle:
            if not (self.verifier or self.portfolio):
                oracle.portfolio = after_attacks(norm)
            yield oracle


def after_attacks(norm: float = math.inf) -> Portfolio:
    """For queries on which gradient attacks have failed already: a short attack, bounds, then rows.

    Bounds know little of the corners of an L1 ball, which is two rows per input: there rows are tried first.
    """
    from verifolio.plugin.choice import Choice
    from verifolio.portfolio.tree import Member, Portfolio, Series

    quick = Member(Choice("pgd", {"rounds": 2}), seconds=0.2, share=0.1, optional=True)
    rows = (Member(Choice("milp"), seconds=5.0, share=0.3, optional=True),) if norm == 1 else ()
    deep = Member(Choice("crown"), share=0.6 if norm != 1 else 0.3, optional=True)
    return Portfolio(Series((quick, *rows, deep, Member(Choice("milp"), optional=True))), "ensemble")
