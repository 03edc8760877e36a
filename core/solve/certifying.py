"""Certificates through the oracle: who can leave one, about which queries, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from verifolio.certificates.make import Made, find_obstacle, make_certificate
from verifolio.errors import InputError, VerifolioError
from verifolio.model.query import Query
from verifolio.plugin.choice import Choice
from verifolio.vnnlib import write

if TYPE_CHECKING:
    from verifolio.solve.oracle import Oracle


class Certifying:
    """Makes certificates in an oracle's workers, by a verifier of the portfolio that the user chose, if any."""

    def __init__(self, oracle: Oracle) -> None:
        self.portfolio, self.plugins, self.compute = oracle.portfolio, oracle.plugins, oracle.compute

    def require(self, query: Query) -> None:
        """Say at once (InputError) that a command can write no certificates."""
        why = self.obstacle(query)
        if why is not None:
            raise InputError(
                "--certificate", "a query that the checker reads", why, "leave --certificate out"
            )

    def obstacle(self, query: Query, prop: bytes | None = None) -> str | None:
        """Why there can be no certificate of this query, before any search; None: nothing is known against it."""
        if query.ball is not None:
            return "the input set is a ball that is no box"
        if len(query.networks) > 1 and not query.shared_input:
            return "several networks with inputs of their own"
        if query.specification.version != "1.0":
            return "a property in VNN-LIB 2.0"
        if self._searcher() is None:
            return f"verifier {', '.join(self._named())} leaves nothing to make one of"
        return self.compute(find_obstacle, query.networks, text_of(query, prop))

    def make(self, query: Query, seconds: float, prop: bytes | None = None) -> Made:
        """A certificate, by a search of so many seconds at most."""
        why = self.obstacle(query, prop)
        chosen = self._searcher()
        if why is not None or chosen is None:
            return Made(reason=why or "nobody can leave one")
        name, options = chosen
        try:
            return self.compute(
                make_certificate, query.networks, text_of(query, prop), name, options, seconds
            )
        except InputError:
            raise
        except VerifolioError as error:  # a worker that ran out of memory, for example
            return Made(reason=str(error))

    def _named(self) -> list[str]:
        return [] if self.portfolio is None else [m.name for m in self.portfolio.members]

    def _searcher(self) -> tuple[str, Mapping[str, object]] | None:
        """The verifier that searches: the first of the chosen ones that leaves a trace, or of all."""
        usable = self.plugins.verifiers.usable()
        able = [name for name, cls in usable.items() if cls.leaves_trace]
        for member in () if self.portfolio is None else self.portfolio.members:
            if member.name in able:
                chosen = member.verifier
                return member.name, chosen.options if isinstance(chosen, Choice) else {}
        alone = self.portfolio is not None and len(self.portfolio.members) == 1
        return None if alone or not able else (able[0], {})


def text_of(query: Query, prop: bytes | None = None) -> bytes:
    """The property that a certificate is about: the user's file, or the query in VNN-LIB."""
    return write(query.specification).encode() if prop is None else prop
