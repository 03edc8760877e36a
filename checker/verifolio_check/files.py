"""Reads what is checked: networks, a property, and their hashes."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

from verifolio_check import operators, vnnlib
from verifolio_check.integers import Unreadable
from verifolio_check.network import Network

LARGEST_FILE = 1 << 31
MAGIC = b"\x1f\x8b"  # of gzip


def load(nets: Path | Sequence[Path], prop: Path) -> tuple[Network, list[vnnlib.Region], tuple[str, str]]:
    """The network (of several files: side by side on one input), the regions of the property, and the hashes.

    A property may be gzipped.
    """
    paths = [nets] if isinstance(nets, Path) else nets
    *files, text = (path.open("rb").read(LARGEST_FILE) for path in (*paths, prop))
    *names, last = (hashlib.sha256(data).hexdigest() for data in (*files, text))
    if text[:2] == MAGIC:
        with gzip.open(prop, "rb") as file:
            text = file.read(LARGEST_FILE)
    if max(len(data) for data in (*files, text)) >= LARGEST_FILE:
        raise Unreadable(f"a file of {LARGEST_FILE} bytes or more")
    network = operators.read(*files)
    sizes = network.nodes[0].size, network.nodes[network.output].size
    return network, vnnlib.read(text.decode("utf-8"), *sizes), (" ".join(names), last)
