"""Where a picture goes, checked before anything is computed."""

from __future__ import annotations

from pathlib import Path

from verifolio.errors import InputError

ENDINGS = (".png", ".svg", ".pdf")


def picture_path(text: str) -> Path | None:
    """The file that was named, if any."""
    if not text:
        return None
    path = Path(text)
    if path.suffix.lower() not in ENDINGS:
        raise InputError("--picture", f"a file ending in {', '.join(ENDINGS)}", repr(text))
    if not path.parent.is_dir():
        raise InputError("--picture", "a file in an existing folder", repr(text), f"make {path.parent} first")
    return path
