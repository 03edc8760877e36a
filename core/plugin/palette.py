"""One colour per network: the same in pages, pictures and files."""

from __future__ import annotations

from collections.abc import Iterable

# Told apart by people who do not see red and green apart, and readable on white and on black; no pure green and no
# pure red, which stand for proved and refuted.
PALETTE = (
    *("#2f6fde", "#e8871e", "#8f5bd6", "#0f9d9d", "#d2508e"),
    *("#b39a12", "#8d6748", "#5f7f9f", "#7f9a2a", "#4b4fa8"),
)


def colours(networks: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in the order they come; after ten they begin again."""
    return {name: PALETTE[k % len(PALETTE)] for k, name in enumerate(dict.fromkeys(networks))}
