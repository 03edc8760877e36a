"""The proved checker, where `make proof` has built it: what it says beside the one in Python."""

from __future__ import annotations

import gzip
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from verifolio_check.files import load
from verifolio_check.integers import Unreadable

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "proof" / "verifolio-proof-check"


@cache
def terms() -> Any:
    """`proof/terms.py`, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location("verifolio_proof_terms", ROOT / "proof" / "terms.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def proved(network: Path, prop: Path, certificate: Path) -> int | None:
    """The exit code of the proved checker; None if it is not built or does not know the network."""
    if not PROGRAM.is_file():
        return None
    words = certificate.with_suffix(".terms")
    try:
        words.write_text("\n".join(map(str, terms().words(*load(network, prop)))) + "\n")
    except (Unreadable, ArithmeticError):
        return None
    text = gzip.decompress(certificate.read_bytes())
    done = subprocess.run(
        [str(PROGRAM), str(words)], input=text, capture_output=True, check=False, timeout=120
    )
    return done.returncode
