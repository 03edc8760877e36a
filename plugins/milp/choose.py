"""Which solver to use, and why not the other."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from verifolio.encode.model import Model

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


def willing_solver(wanted: Literal["auto", "highs", "gurobi"], model: Model) -> tuple[Solver, list[str]]:
    """The solver for one model, and notes why it is not the one that was asked for."""
    from .highs import Highs

    solver, note = choose_solver(wanted)
    refusal = solver.refuses(model)
    if refusal is None:
        return solver, [note] if note else []
    return Highs(), [f"{solver.name}: {refusal}"]
