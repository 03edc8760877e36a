"""`verifolio-check`: checks certificates, counterexamples and folders of them; prints `valid` or why not."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from verifolio_check.certificate import check, lines_of
from verifolio_check.files import GZIP, load, read_bytes
from verifolio_check.folder import check_radii, check_value
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.witness import check_witness

VALID, UNREADABLE, INVALID = 0, 2, 5
MOST_MEMORY = 1 << 33  # bytes of address space; what a file would need beyond that is refused


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
        return UNREADABLE, " ".join(f"unreadable: {error}".split())
    except Exception as error:  # whatever readers raise about a file that is not what it should be
        return UNREADABLE, " ".join(f"unreadable: {type(error).__name__} {error}".split())
    return VALID, "valid"


def limit_memory() -> None:
    """Where the system can: an allocation beyond the limit fails and is reported, instead of taking all memory."""
    with suppress(ImportError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (min(MOST_MEMORY, most) if most > 0 else MOST_MEMORY, most))


def main() -> None:
    if len(sys.argv) < 4 and not (len(sys.argv) == 3 and Path(sys.argv[2]).is_dir()):
        sys.exit("usage: verifolio-check NETWORK... (PROPERTY FILE | [TABLE.csv] FOLDER)")
    limit_memory()
    code, line = run(*(Path(a) for a in sys.argv[1:]))
    sys.stdout.write(line + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
