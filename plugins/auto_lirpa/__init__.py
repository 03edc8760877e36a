"""auto_LiRPA, where a user has installed it: the bounder and the incomplete verifier `auto_lirpa`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.bounder import Bounder
    from verifolio.plugin.registry import Registry
    from verifolio.plugin.verifier import Verifier


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    from .verifier import AutoLirpa

    registry.add(AutoLirpa)


@hookimpl
def register_bounders(registry: Registry[Bounder]) -> None:
    from .bounder import AutoLirpaBounder

    registry.add(AutoLirpaBounder)


@hookimpl
def register_packages(packages: set[str]) -> None:
    packages |= {"auto_LiRPA"}
