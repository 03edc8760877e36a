"""A verifier by name and options, as files and command lines give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verifolio.errors import UnknownPlugin
from verifolio.plugin.verifier import Verifier


@dataclass(frozen=True)
class Choice:
    """A verifier by its registered name and untyped options, looked up where it runs.

    `where` is the place in a file that errors should name.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    where: str = ""

    def build(self) -> Verifier:
        from verifolio.plugin.manager import current_plugins
        from verifolio.plugin.options import build_options

        try:
            cls = current_plugins().verifiers.get(self.name)
        except UnknownPlugin as error:
            raise UnknownPlugin(f"{self.where}: {error}" if self.where else str(error)) from None
        where = self.where or f"verifier {self.name}"
        return cls(build_options(cls.Options, self.options, where) if self.options else None)


def build(verifier: Choice | Verifier) -> Verifier:
    """An instance, looked up by name where needed."""
    return verifier.build() if isinstance(verifier, Choice) else verifier
