"""`verifolio-check NETWORK PROPERTY FILE`: checks a certificate or a counterexample, prints `valid` or why not."""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path

from verifolio_check import operators, vnnlib
from verifolio_check.certificate import check, lines_of
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.network import Network
from verifolio_check.witness import check_witness

VALID, UNREADABLE, INVALID = 0, 2, 5
LARGEST_FILE = 1 << 31
LARGEST_WITNESS = 1 << 28
MAGIC = b"\x1f\x8b"  # of gzip


def load(net: Path, prop: Path) -> tuple[Network, list[vnnlib.Region], tuple[str, str]]:
    """The network, the regions of the property, and the hashes of both files; a property may be gzipped."""
    data, text = (path.open("rb").read(LARGEST_FILE) for path in (net, prop))
    hashes = hashlib.sha256(data).hexdigest(), hashlib.sha256(text).hexdigest()
    if text[:2] == MAGIC:
        with gzip.open(prop, "rb") as file:
            text = file.read(LARGEST_FILE)
    if max(len(data), len(text)) >= LARGEST_FILE:
        raise Unreadable(f"a file of {LARGEST_FILE} bytes or more")
    network = operators.read(data)
    sizes = network.nodes[0].size, network.nodes[network.output].size
    return network, vnnlib.read(text.decode("utf-8"), *sizes), hashes


def run(net: Path, prop: Path, proof: Path) -> tuple[int, str]:
    """The exit code and the line to print; what is not gzipped is a counterexample."""
    try:
        network, regions, hashes = load(net, prop)
        with proof.open("rb") as file:
            start = file.read(LARGEST_WITNESS)
        if start[:2] == MAGIC:
            check(network, regions, hashes, lines_of(proof))
        elif len(start) < LARGEST_WITNESS:
            check_witness(network, regions, start.decode("ascii"))
        else:
            raise Unreadable("neither a certificate nor a counterexample")
    except Invalid as error:
        return INVALID, f"not valid: {error}"
    except (Unreadable, OSError, EOFError, ValueError, MemoryError, RecursionError) as error:
        return UNREADABLE, f"unreadable: {error or type(error).__name__}"
    return VALID, "valid"


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: verifolio-check NETWORK PROPERTY FILE")
    code, line = run(*(Path(a) for a in sys.argv[1:]))
    sys.stdout.write(line + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
