"""A pytest plugin that notes which lines of the trust base every test runs."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Local = Callable[[FrameType, str, Any], Any]


class Tracer:
    """Writes a line per test: whether it passed, its processor seconds, and the lines that it ran, by file.

    Lines are noted in `files` only; of a file in `folders` it is noted that something in it was called.
    """

    def __init__(self, package: Path, files: Collection[str], folders: tuple[str, ...], out: Path) -> None:
        self.package, self.files, self.folders, self.out = f"{package}/", set(files), folders, out
        self.names: dict[str, str] = {}
        self.ran: dict[str, set[int]] = {}
        self.failed: set[str] = set()

    def called(self, frame: FrameType, event: str, _: object) -> Local | None:
        path = frame.f_code.co_filename
        name = self.names.get(path)
        if name is None:
            name = self.names[path] = self.name_of(path)
        if not name:
            return None
        ran = self.ran.setdefault(name, set())
        ran.add(frame.f_code.co_firstlineno)
        return self.line_of(ran) if name in self.files else None

    def name_of(self, path: str) -> str:
        """The file in the tree, "" where nothing is noted."""
        name = source_of(path.removeprefix(self.package)) if path.startswith(self.package) else ""
        return name if name in self.files or name.startswith(self.folders) else ""

    def line_of(self, ran: set[int]) -> Local:
        def note(frame: FrameType, event: str, _: object) -> Local:
            ran.add(frame.f_lineno)
            return note

        return note

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.ran = {}
        started = used()
        sys.settrace(self.called)
        threading.settrace(self.called)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.write(item.nodeid, used() - started)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def write(self, test: str, seconds: float) -> None:
        lines = {name: sorted(ran) for name, ran in self.ran.items()}
        row = {"test": test, "passed": test not in self.failed, "seconds": round(seconds, 3), "lines": lines}
        with self.out.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def source_of(module: str) -> str:
    """The file in the tree of a file in the package."""
    return module if module.startswith(("plugins/", "vnnlib/")) else f"core/{module}"


def module_of(source: str) -> str:
    """The file in the package of a file in the tree."""
    return source.removeprefix("core/")
