"""The versions an answer depends on."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

PACKAGES = (
    *("verifolio", "numpy", "onnx", "onnxruntime", "torch"),
    *("highspy", "z3-solver", "ray", "gurobipy", "maraboupy"),
)


@cache
def versions() -> dict[str, str]:
    """Installed versions by distribution name, and Python's own; nothing is imported."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
