"""Writes docs/studies/NNN.md, a page for each paper that is repeated, from the rows that are kept.

    python docs/build_studies.py [--check]

`make reference` runs every docs/build_*.py. With --check nothing is written; exit code 1 says that a page is stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verifolio.plugins.studies.page import page
from verifolio.plugins.studies.papers import PAPERS, find_study
from verifolio.plugins.studies.rows import Rows

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "benchmarks" / "rows" / "studies"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    check: bool = parser.parse_args().check
    stale = []
    for number in PAPERS:
        path = ROOT / "docs" / "studies" / f"{number}.md"
        text = page(find_study(number), Rows(ROWS, number))
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.stderr.write(
            f"{', '.join(stale)}: expected what the rows say now, got older pages; run `make reference`\n"
        )
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
