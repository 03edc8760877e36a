"""Mixed-integer linear programming: the verifier `milp`, on HiGHS or Gurobi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.registry import Registry
    from verifolio.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import Milp

    registry.add(Milp)
