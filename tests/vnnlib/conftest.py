"""Fixtures of the VNN-LIB tests: the shared data, and equality of specifications in exact numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from verifolio.vnnlib import Specification


@pytest.fixture(scope="session")
def public() -> Path:
    """The folder of public instances; tests that need it are skipped without it."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("VERIFOLIO_SHARED", default)) / "public"
    if not folder.is_dir():
        pytest.skip(f"no public instances in {folder}; set VERIFOLIO_SHARED")
    return folder


def _same(one: Specification, other: Specification) -> None:
    assert (one.input_size, one.output_size) == (other.input_size, other.output_size)
    assert len(one.cases) == len(other.cases)
    assert one.monomials == other.monomials
    for left, right in zip(one.cases, other.cases, strict=True):
        assert list(left.exact_lower) == list(right.exact_lower)
        assert list(left.exact_upper) == list(right.exact_upper)
        assert left.lower.tolist() == right.lower.tolist()
        assert left.upper.tolist() == right.upper.tolist()
        assert left.input_rows.linear_rows() == right.input_rows.linear_rows()
        rows = [[rows.linear_rows() for rows in case.disjuncts] for case in (left, right)]
        assert rows[0] == rows[1]


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Specification, Specification], None]:
    """Two specifications mean the same, number by number."""
    return _same
