"""What can be set about the verifier `milp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MilpOptions:
    """Options of `milp`.

    solver: which solver; auto takes Gurobi where it is installed and its licence fits the model.
    bounder: name of the bounder for big-M constants; empty takes the tightest willing one.
    tighten: seconds for linear programs that tighten unstable neurons, at most a fifth of the budget.
    disjuncts: one model per disjunct (auto does that too), or one joint model with a binary per disjunct.
    certify: branch and bound with safe dual bounds: never, where tolerances leave a doubt, or always.
    tolerance: feasibility tolerance of the first solve; the second one uses `tight`.
    threads: 0 takes the budget's cores.
    """

    solver: Literal["auto", "highs", "gurobi"] = "auto"
    bounder: str = ""
    tighten: float = 5.0
    disjuncts: Literal["auto", "one", "joint"] = "auto"
    certify: Literal["never", "doubt", "always"] = "doubt"
    tolerance: float = 1e-7
    tight: float = 1e-9
    threads: int = 0
