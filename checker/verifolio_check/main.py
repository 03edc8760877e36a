"""`verifolio-check`: checks certificates, counterexamples and folders of them; prints `valid` or why not."""

from __future__ import annotations

import sys
from pathlib import Path

from verifolio_check.certificate import check, lines_of
from verifolio_check.files import GZIP, load, read_bytes
from verifolio_check.folder import check_radii, check_value
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.witness import check_witness

VALID, UNREADABLE, INVALID = 0, 2, 5
# what is raised about files that are not what they should be
FILES = (OSError, EOFError, MemoryError, RecursionError)
NUMBERS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def run(*paths: Path) -> tuple[int, str]:
    """The exit code and the line to print."""
    *nets, prop, proof = paths
    try:
        if proof.is_dir():
            table = prop.suffix == ".csv"
            return VALID, check_radii(nets, prop, proof) if table else check_value([*nets, prop], proof)
        network, regions, hashes = load(nets, prop)
        data = read_bytes(proof)
        if data.startswith(GZIP):
            check(network, regions, hashes, lines_of(proof))
        else:
            check_witness(network, regions, data.decode("ascii"))
    except Invalid as error:
        return INVALID, f"not valid: {error}"
    except Unreadable as error:
        return UNREADABLE, f"unreadable: {error}"
    except (*FILES, *NUMBERS) as error:
        return UNREADABLE, f"unreadable: {type(error).__name__} {error}".strip()
    return VALID, "valid"


def main() -> None:
    if len(sys.argv) < 4 and not (len(sys.argv) == 3 and Path(sys.argv[2]).is_dir()):
        sys.exit("usage: verifolio-check NETWORK... (PROPERTY FILE | [TABLE.csv] FOLDER)")
    code, line = run(*(Path(a) for a in sys.argv[1:]))
    sys.stdout.write(line + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
