"""The portfolios that come with verifolio, and who chooses between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry
    from verifolio.portfolio.chooser import Chooser


@hookimpl
def register_choosers(registry: Registry[Chooser]) -> None:
    from .chooser import Default

    registry.add(Default)
