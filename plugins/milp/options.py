"""Options of the verifier `milp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MilpOptions:
    """Options of `milp`.

    search: a tree of our own over HiGHS's linear programs, every leaf certified; or first the solver's own tree,
        for half of the time at most. A point it finds is replayed; that it finds none, our tree has to prove.
    solver: who runs its own tree; auto takes Gurobi where it is installed and its licence fits.
    bounder: name of the bounder for big-M constants; empty takes the tightest willing one.
    tighten: seconds for linear programs that tighten unstable neurons, at most a fifth of the budget.
    split: boxes with at most this many inputs of some width are bisected where the tree is slow; 0 for never.
    disjuncts: one model per disjunct (auto does that too), or one joint model with a binary per disjunct.
    tolerance: feasibility tolerance of solvers; `tight` is that of tightening and of closest counterexamples.
    threads: 0 takes the budget's cores.
    """

    search: Literal["tree", "solver"] = "tree"
    solver: Literal["auto", "highs", "gurobi"] = "auto"
    bounder: str = ""
    tighten: float = 5.0
    split: int = 16
    disjuncts: Literal["auto", "one", "joint"] = "auto"
    tolerance: float = 1e-7
    tight: float = 1e-9
    threads: int = 0
