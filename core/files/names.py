"""Names of files made from texts that strangers chose."""

from __future__ import annotations

import hashlib
import re

LONGEST = 100  # characters; file systems take 255 bytes, and endings are added
DIGITS = 8  # of the hash that tells apart what would look alike


def safe_name(text: str) -> str:
    """A file's name for a text: readable, without folders, and another one for every other text.

    A text that is a good name already stays as it is; any other gets a part of its hash.
    """
    plain = re.sub(r"[^A-Za-z0-9_.=+@-]", "_", text)[:LONGEST].strip(".-") or "_"
    return plain if plain == text else f"{plain}-{digest(text)}"


def digest(text: str) -> str:
    """A few digits that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
