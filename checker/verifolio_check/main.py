"""`verifolio-check`: checks certificates, counterexamples and folders of them; prints `valid` or why not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from verifolio_check.certificate import check, lines_of
from verifolio_check.files import MAGIC, load
from verifolio_check.folder import check_radii, check_value
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.witness import check_witness

VALID, UNREADABLE, INVALID = 0, 2, 5
LARGEST_WITNESS = 1 << 28


def run(*paths: Path) -> tuple[int, str]:
    """The exit code and the line to print."""
    said = "valid"
    try:
        if paths[-1].is_dir():
            said = check_folder(paths[:-1], paths[-1])
        elif len(paths) > 2:
            check_file(paths[:-2], *paths[-2:])
        else:
            raise Unreadable(f"expected networks, a property and a file, got {len(paths)} files")
    except Invalid as error:
        return INVALID, f"not valid: {error}"
    except (Unreadable, OSError, EOFError, ValueError, MemoryError, RecursionError) as error:
        return UNREADABLE, f"unreadable: {error or type(error).__name__}"
    return VALID, said


def check_file(nets: Sequence[Path], prop: Path, proof: Path) -> None:
    """What is not gzipped is a counterexample."""
    network, regions, hashes = load(nets, prop)
    with proof.open("rb") as file:
        start = file.read(LARGEST_WITNESS)
    if start[:2] == MAGIC:
        check(network, regions, hashes, lines_of(proof))
    elif len(start) < LARGEST_WITNESS:
        check_witness(network, regions, start.decode("ascii"))
    else:
        raise Unreadable("neither a certificate nor a counterexample")


def check_folder(given: Sequence[Path], folder: Path) -> str:
    """A table of proved radii, or the value of an ensemble; the networks come before."""
    try:
        if given[-1].suffix == ".csv":
            return check_radii(given[:-1], given[-1], folder)
        return check_value(given, folder)
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise Unreadable(f"{folder.name}: {type(error).__name__} {error}") from error


def main() -> None:
    if len(sys.argv) < 4 and not (len(sys.argv) == 3 and Path(sys.argv[2]).is_dir()):
        sys.exit("usage: verifolio-check NETWORK... (PROPERTY FILE | [TABLE.csv] FOLDER)")
    code, line = run(*(Path(a) for a in sys.argv[1:]))
    sys.stdout.write(line + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
