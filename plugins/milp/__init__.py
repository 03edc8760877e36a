"""Mixed-integer linear programming: the verifier `milp`, on HiGHS or Gurobi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Milp

    registry.add(Milp)


@hookimpl
def register_packages(packages: set[str]) -> None:
    packages |= {"highspy", "gurobipy"}
