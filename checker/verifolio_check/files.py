"""Reads what is checked: networks, a property, and their hashes."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

from verifolio_check import operators, vnnlib
from verifolio_check.integers import Unreadable
from verifolio_check.network import Network

LARGEST_FILE, LARGEST_TEXT = 1 << 31, 1 << 29  # of a network or a certificate, of an unpacked property
GZIP = b"\x1f\x8b"  # the first bytes of a gzipped file


def read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE)
    if len(data) == LARGEST_FILE:
        raise Unreadable(f"a file of {LARGEST_FILE} bytes or more")
    return data


def load(nets: Path | Sequence[Path], prop: Path) -> tuple[Network, list[vnnlib.Region], tuple[str, str]]:
    """The network (of several files: side by side on one input), the regions of the property, and the hashes.

    A property may be gzipped.
    """
    *files, text = (read_bytes(path) for path in (*([nets] if isinstance(nets, Path) else nets), prop))
    *names, last = (hashlib.sha256(data).hexdigest() for data in (*files, text))
    if text.startswith(GZIP):
        with gzip.open(prop) as file:
            text = file.read(LARGEST_TEXT)
    if len(text) >= LARGEST_TEXT:
        raise Unreadable(f"a property of {LARGEST_TEXT} bytes or more")
    network = operators.read(*files)
    sizes = network.nodes[0].size, network.nodes[network.output].size
    return network, vnnlib.read(text.decode("utf-8"), *sizes), (" ".join(names), last)
