"""Damaged certificates, as checkers must refuse or read them alike."""

from __future__ import annotations

import random

ALPHABET = b"0123456789.*/@pr[]abm-,<>\n "  # what certificates are written in


def damaged(text: bytes, rng: random.Random) -> bytes:
    """One character after the first lines: another one, none, or one more."""
    at = rng.randrange(text.index(b"region"), len(text) - 1)
    new = rng.choice([b"", bytes([rng.choice(ALPHABET)])])
    return text[:at] + new + text[at + rng.randint(0, 1) :]
