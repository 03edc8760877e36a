"""The versions an answer depends on."""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib import metadata

from verifolio.plugin.manager import Plugins, current_plugins

OURS = ("verifolio", "numpy", "onnx", "onnxruntime", "torch")  # what core itself computes with


def versions() -> dict[str, str]:
    """Installed versions by distribution name, and Python's own; no backend is imported."""
    return dict(_versions(current_plugins()))


@lru_cache(maxsize=8)  # sets of plugins; a session has one or two
def _versions(plugins: Plugins) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in (*OURS, *sorted(plugins.packages - set(OURS))):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
