"""The chooser `default`: with few free inputs branching on them begins, otherwise an attack does.

What else a query's features change is in the trees themselves (`at_most`), and what the members refuse (operators,
unbounded inputs) is found out by the walk, which divides time accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from verifolio.model.problem import free_inputs
from verifolio.portfolio.chooser import Chooser
from verifolio.portfolio.file import read_portfolio
from verifolio.portfolio.tree import Portfolio

if TYPE_CHECKING:
    from verifolio.model.query import Query

MANY, FEW = "default", "default_few"
FEW_INPUTS = 12  # so few that branching on them beats everything else


class Default(Chooser):
    """Chooses by the number of inputs that can vary."""

    name = "default"

    def choose(self, query: Query) -> Portfolio:
        return built_in(FEW if most_free(query) <= FEW_INPUTS else MANY)

    def conditions(self) -> Sequence[tuple[str, Portfolio]]:
        return (
            (f"with at most {FEW_INPUTS} free inputs", built_in(FEW)),
            (f"with more than {FEW_INPUTS} free inputs", built_in(MANY)),
        )


def most_free(query: Query) -> int:
    """The most inputs that can vary in any case of the query."""
    cases = query.specification.cases
    return max((free_inputs(c.lower, c.upper) for c in cases), default=0)


@cache
def built_in(name: str) -> Portfolio:
    """The portfolio of a file beside this one."""
    return read_portfolio(Path(__file__).parent / f"{name}.yaml")
