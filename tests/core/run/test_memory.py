"""What work may use: what the user says, or a share of the machine's memory, or of the container's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from verifolio.run import memory


@pytest.fixture(autouse=True)
def nothing_said() -> Iterator[None]:
    memory.allow(None)
    yield
    memory.allow(None)


def test_without_a_limit_it_is_a_share_of_the_machine() -> None:
    total = psutil.virtual_memory().total
    assert 0 < memory.machine_memory() <= total
    assert memory.allowed_memory() == memory.default_memory() <= total * memory.SHARE


def test_a_limit_counts_until_it_is_taken_back() -> None:
    memory.allow(1 << 20)
    assert memory.allowed_memory() == 1 << 20
    memory.allow(None)
    assert memory.allowed_memory() == memory.default_memory()


@pytest.mark.parametrize(
    ("text", "limit"), [("1048576\n", 1 << 20), ("max\n", None), ("", None), ("0", None)]
)
def test_a_container_has_less_than_its_machine(
    text: str, limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "memory.max"
    group.write_text(text)
    monkeypatch.setattr(memory, "_GROUP", group)
    assert memory.machine_memory() == (limit or psutil.virtual_memory().total)
