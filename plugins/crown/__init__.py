"""Bound propagation with branch and bound.

The verifiers `boxes`, `crown` and `smooth`, the bounders `interval`, `crown` and `alpha`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.bounder import Bounder
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from verifolio.plugins.crown.boxes import Boxes
    from verifolio.plugins.crown.smooth import Smooth
    from verifolio.plugins.crown.verifier import Crown

    registry.add(Boxes)
    registry.add(Crown)
    registry.add(Smooth)


@hookimpl
def register_bounders(registry: Registry[Bounder]) -> None:
    from verifolio.plugins.crown.bounder import AlphaBounder, CrownBounder, IntervalBounder

    registry.add(IntervalBounder)
    registry.add(CrownBounder)
    registry.add(AlphaBounder)
