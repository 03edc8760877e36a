"""`python -m verifolio`: the command line."""

from __future__ import annotations

from verifolio.cli.main import main

if __name__ == "__main__":
    main()
