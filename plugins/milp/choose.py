"""Which solver to use, and why not the other."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from .solver import Solver


def choose_solver(wanted: Literal["auto", "highs", "gurobi"]) -> tuple[Solver, str]:
    """The solver, and a note where it is not the one that was asked for."""
    from .highs import Highs

    if wanted == "highs":
        return Highs(), ""
    if find_spec("gurobipy") is None:
        note = "gurobi: gurobipy is not installed; pip install 'verifolio[gurobi]'"
        return Highs(), note if wanted == "gurobi" else ""
    from .gurobi import Gurobi, licence_problem

    problem = licence_problem()
    return (Gurobi(), "") if problem is None else (Highs(), f"gurobi: {problem}")
