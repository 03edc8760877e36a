"""The chooser interface: a portfolio for each query where the user gives none; `default` is asked then."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from verifolio.plugin.manager import Plugins, current_plugins
from verifolio.portfolio.file import read_portfolio
from verifolio.portfolio.tree import Portfolio

if TYPE_CHECKING:
    from verifolio.model.query import Query

DEFAULT = "default"


class Chooser(ABC):
    """Picks a portfolio by the features of a query. Subclasses set `name`."""

    name: ClassVar[str]

    @classmethod
    def available(cls) -> str | None:
        """Why this chooser cannot be used here, or None; must not import heavy modules."""
        return None

    @abstractmethod
    def choose(self, query: Query) -> Portfolio:
        """The portfolio for a query; one of those in `conditions`. The network is not imported yet."""

    @abstractmethod
    def conditions(self) -> Sequence[tuple[str, Portfolio]]:
        """Everything that `choose` may give, each with its condition in words."""

    @cached_property
    def key(self) -> str:
        """A hash of all portfolios and their conditions: what a run goes by that is to be continued."""
        text = "".join(f"{condition}\n{portfolio.key}\n" for condition, portfolio in self.conditions())
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def width(self) -> int:
        """How many members run at the same time at most."""
        return max(portfolio.width for _, portfolio in self.conditions())


def find_chooser(name: str = DEFAULT, plugins: Plugins | None = None) -> Chooser:
    """The chooser of that name."""
    registry = (current_plugins() if plugins is None else plugins).choosers
    chooser: Chooser = registry.get(name)()
    return chooser


def find_portfolio(spec: str, plugins: Plugins | None = None) -> Portfolio | Chooser:
    """What `--portfolio SPEC` names: a file, or else a chooser."""
    known = (current_plugins() if plugins is None else plugins).choosers
    if not Path(spec).exists() and spec in known:
        return find_chooser(spec, plugins)
    return read_portfolio(spec)


def default_portfolio(query: Query) -> Portfolio:
    """The portfolio for a query when the user names none."""
    return find_chooser().choose(query)
