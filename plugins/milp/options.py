"""Options of the verifier `milp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verifolio.plugin.options import described


@dataclass(frozen=True)
class MilpOptions:
    """Options of `milp`."""

    search: Literal["tree", "solver"] = described(
        "tree",
        "`tree`: a tree of our own over HiGHS's linear programs, every leaf certified. `solver`: first "
        "the solver's own tree, for half of the time at most; that it finds no point, our tree has to "
        "prove.",
    )
    solver: Literal["auto", "highs", "gurobi"] = described(
        "auto", "Who runs its own tree; auto takes Gurobi where it is installed and its licence fits."
    )
    bounder: str = described(
        "", "The bounder for big-M constants; none named takes the tightest willing one."
    )
    tighten: float = described(
        5.0, "Seconds for linear programs that tighten unstable neurons, at most a fifth of the budget."
    )
    split: int = described(
        16,
        "Boxes with at most this many inputs of some width are bisected where the tree is slow; 0 for never.",
    )
    disjuncts: Literal["auto", "one", "joint"] = described(
        "auto", "One model per disjunct (auto does that too), or one joint model with a binary per disjunct."
    )
    tolerance: float = described(1e-7, "The feasibility tolerance of solvers.")
    tight: float = described(1e-9, "The same for tightening and for closest counterexamples.")
    trace: str = described("", "A folder for the trees of proofs, of which certificates are made.")
    threads: int = described(0, "Threads of a solver; 0 takes the budget's cores.")
