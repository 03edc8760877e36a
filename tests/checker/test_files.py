"""Certificates made elsewhere, with their networks and properties; changed ones never prove what is false."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from verifolio_check.main import INVALID, VALID, run

FOLDER = Path(__file__).parent / "certificates"
ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in FOLDER.glob("*.gz"))


@pytest.fixture
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_there_are_some() -> None:
    assert {"boxes", "phases", "claims", "conjunction", "sigmoid", "convolution"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_committed_certificates_are_valid(name: str) -> None:
    files = [FOLDER / f"{name}.{end}" for end in ("onnx", "vnnlib", "gz")]
    assert run(*files) == (VALID, "valid")
    other = "boxes" if name != "boxes" else "phases"
    assert run(FOLDER / f"{other}.onnx", files[1], files[2])[0] != VALID
    assert run(files[0], files[1], FOLDER / f"{other}.gz")[0] == INVALID


@pytest.mark.usefixtures("_benchmarks")
def test_mutations_end_with_a_right_verdict(tmp_path: Path) -> None:
    """A sample of what `benchmarks/mutations.py` does 20 000 times."""
    from benchmarks.mutations import examine

    rng, cases = np.random.default_rng(1), sorted(FOLDER.glob("*.gz"))
    said = [examine(rng, cases, tmp_path) for _ in range(80)]
    assert [wrong for _, wrong in said if wrong is not None] == []
    assert {verdict for verdict, _ in said} == {"valid", "not valid", "unreadable"}
