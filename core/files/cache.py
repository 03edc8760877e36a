"""Files that verifolio makes for itself and finds again, by what is in them."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """$VERIFOLIO_CACHE, or `verifolio` in the user's folder for caches."""
    own = os.environ.get("VERIFOLIO_CACHE", "")
    shared = os.environ.get("XDG_CACHE_HOME", "") or str(Path.home() / ".cache")
    return Path(own) if own else Path(shared) / "verifolio"


def keep_network(data: bytes, name: str) -> Path:
    """A file with these bytes, under its hash and a name for people; written once."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._")[:60] or "network"
    target = cache_folder() / "networks" / hashlib.sha256(data).hexdigest()[:16] / f"{plain}.onnx"
    if target.is_file() and target.read_bytes() == data:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    number, draft = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(number, "wb") as file:
        file.write(data)
    Path(draft).replace(target)
    return target
