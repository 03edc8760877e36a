"""Checks a certificate with the proved checker: `valid` (exit code 0), `not valid` (5), or what is unreadable (2).

    python proof/check.py NETWORK PROPERTY CERTIFICATE [PROGRAM]

PROGRAM is `build/proof/verifolio-proof-check`, which `make proof` builds.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parent / "build" / "proof" / "verifolio-proof-check"
UNREADABLE = 2


def run(
    net: Path, prop: Path, certificate: Path, program: Path, seconds: float | None = None
) -> tuple[int, str]:
    """The exit code and the line that the program prints."""
    try:
        text = gzip.decompress(certificate.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        return UNREADABLE, f"unreadable: certificate: {error}"
    with TemporaryDirectory() as scratch:
        terms = Path(scratch) / "terms"
        with terms.open("w") as file:
            command = [sys.executable, str(HERE / "terms.py"), str(net), str(prop)]
            told = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
        if told.returncode:
            return UNREADABLE, f"unreadable: {told.stderr.strip()[-300:]}"
        done = subprocess.run(
            [str(program), str(terms)], input=text, capture_output=True, check=False, timeout=seconds
        )
    return done.returncode, done.stdout.decode().strip()


def main() -> None:
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: check.py NETWORK PROPERTY CERTIFICATE [PROGRAM]")
    program = Path(sys.argv[4]) if len(sys.argv) == 5 else PROGRAM
    if not program.is_file():
        sys.exit(f"{program}: expected the proved checker, got no file; `make proof` builds it")
    net, prop, certificate = (Path(a) for a in sys.argv[1:4])
    code, line = run(net, prop, certificate, program)
    sys.stdout.write(line + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
