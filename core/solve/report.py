"""The report of one attempt, and what several outcomes add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verifolio.errors import VerifolioError
from verifolio.model.answer import Outcome, Stats, Verdict, Witness


@dataclass(frozen=True)
class Report:
    """What one attempt came to.

    `refused`: the member did not want the problem, in any form. `distance`: where asked, the proved distance
    below which there is no counterexample. `false_proof`: the member claimed a proof, which the witness refutes.
    """

    verdict: Verdict
    reason: str = ""
    witness: Witness | None = None
    bound: float | None = None
    stats: Stats = field(default_factory=dict)
    refused: bool = False
    distance: float | None = None
    error: VerifolioError | None = None
    false_proof: bool = False


def merge_stats(outcomes: Sequence[Outcome]) -> Stats:
    """Numbers of several outcomes added up, texts kept from the last."""
    merged: dict[str, float | int | str] = {}
    for outcome in outcomes:
        for name, value in outcome.stats.items():
            before = merged.get(name)
            added = isinstance(before, int | float) and isinstance(value, int | float)
            merged[name] = before + value if added else value  # type: ignore[operator]
    return merged
