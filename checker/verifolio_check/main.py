"""`verifolio-check NETWORK PROPERTY FILE`: checks a certificate or a counterexample, prints `valid` or why not."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from verifolio_check import network, vnnlib, witness
from verifolio_check.certificate import check, hash_of, lines_of
from verifolio_check.integers import Invalid, Unreadable

VALID, UNREADABLE, INVALID = 0, 2, 5
LARGEST_PROPERTY = 1 << 28
MAGIC = b"\x1f\x8b"  # of gzip


def run(net: Path, prop: Path, certificate: Path) -> tuple[int, str]:
    """The exit code and the line to print."""
    try:
        hashes = hash_of(net), hash_of(prop)
        with certificate.open("rb") as file:
            packed = file.read(2) == MAGIC
        if packed:
            check(network.read(net), hashes, vnnlib.read(text_of(prop)), lines_of(certificate))
        else:
            witness.check(network.read(net), vnnlib.read(text_of(prop)), text_of(certificate))
    except Unreadable as error:
        return UNREADABLE, f"unreadable: {error}"
    except Invalid as error:
        return INVALID, f"not valid: {error}"
    except OSError as error:
        return UNREADABLE, f"unreadable: {error}"
    except (MemoryError, RecursionError) as error:
        return UNREADABLE, f"unreadable: {type(error).__name__}"
    return VALID, "valid"


def text_of(path: Path) -> str:
    """A property file, gzipped or not."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == MAGIC
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            data = file.read(LARGEST_PROPERTY + 1)
        if len(data) > LARGEST_PROPERTY:
            raise Unreadable(f"property: larger than {LARGEST_PROPERTY} bytes")
        return data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise Unreadable(f"property: {error}") from error


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: verifolio-check NETWORK PROPERTY CERTIFICATE")
    code, line = run(*(Path(a) for a in sys.argv[1:]))
    sys.stdout.write(line + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
