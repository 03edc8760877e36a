"""Pytest plugins of the runner: one notes which functions every test calls, one runs chosen tests in an order."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from types import CodeType, FrameType

import pytest


class Tracer:
    """Writes a line per test: whether it passed, its seconds, and the functions of the package that it called."""

    def __init__(self, package: Path, out: Path) -> None:
        self.package, self.out = f"{package}/", out
        self.called: dict[int, CodeType] = {}
        self.failed: set[str] = set()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        self.called[id(frame.f_code)] = frame.f_code

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.called = {}
        started = time.perf_counter()
        sys.settrace(self.note)
        threading.settrace(self.note)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.write(item.nodeid, time.perf_counter() - started)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def write(self, test: str, seconds: float) -> None:
        calls: dict[str, list[int]] = {}
        for code in self.called.values():
            if code.co_filename.startswith(self.package):
                name = source_of(code.co_filename.removeprefix(self.package))
                calls.setdefault(name, []).append(code.co_firstlineno)
        row = {"test": test, "passed": test not in self.failed, "seconds": round(seconds, 3), "calls": calls}
        with self.out.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def source_of(module: str) -> str:
    """The file in the tree of a file in the package."""
    return module if module.startswith(("plugins/", "vnnlib/")) else f"core/{module}"


class Chosen:
    """Only these tests, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.rank = {test: k for k, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])
