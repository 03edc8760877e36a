"""Whether auto_LiRPA is here, and new enough."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

PACKAGE = "auto_LiRPA"
LEAST = (0, 5)  # older ones have not been tried
REMEDY = "install 0.5 or newer from https://github.com/Verified-Intelligence/auto_LiRPA"


def missing() -> str | None:
    """Why auto_LiRPA cannot be used here, or None; imports nothing of it."""
    if find_spec(PACKAGE) is None:
        return f"auto_LiRPA is not installed; {REMEDY}"
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        return f"auto_LiRPA does not say its version; {REMEDY}"
    return None if _numbers(found) >= LEAST else f"auto_LiRPA is {found}; {REMEDY}"


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(".")[:2]
    return tuple(int(p) if p.isdigit() else 0 for p in parts)
