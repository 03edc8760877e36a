"""Which tests can notice a change, the likeliest first: those that run the changed statement."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .scratch import IN_C, ONE_TEST, Scratch
from .server import Server
from .tracer import Tracer

# a test that takes a good part of its limit on the unchanged tree may reach it for no other reason than load
LONGEST = ONE_TEST / 8
WRAPPERS = {"_boxes.c": "plugins/crown/kernel/boxes.py"}  # call the kernels, which no tracer sees
OTHER_WRAPPER = "plugins/crown/kernel/quadratics.py"
WORKERS = "core/run/"  # what a test does in worker processes, no tracer sees either
A_DAY = 86400.0  # seconds: tracing has no limit


@dataclass(frozen=True, eq=False)
class Traced:
    """A test that passes on the unchanged tree, and the lines that it runs."""

    test: str
    seconds: float
    lines: Mapping[str, frozenset[int]]

    @property
    def elsewhere(self) -> bool:
        return any(file.startswith(WORKERS) for file in self.lines)

    def runs(self, file: str, lines: range | None) -> bool:
        return any(lines is None or line in lines for line in self.lines.get(file, ()))


def trace(scratch: Scratch, server: Server, files: Collection[str], kept: Path) -> list[Traced]:
    """Run the tests once on the unchanged tree, file by file; what an earlier run `kept` of a file serves as well."""
    folder = kept / f"traced-{contents(scratch.folder, files)}"
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Traced] = []
    for tests in dict.fromkeys(test.split("::")[0] for test in server.items):
        text = (scratch.folder / tests).read_bytes()
        done = folder / f"{hashlib.sha256(tests.encode() + text).hexdigest()[:16]}.jsonl"
        if not done.is_file():
            out = scratch.folder / "build" / "traced.jsonl"
            out.write_text("")
            tracer = Tracer(scratch.package, files, (WORKERS,), out)
            chosen = [test for test in server.items if test.split("::")[0] == tests]
            server.try_tests(chosen, A_DAY, out.with_name("tracing.txt"), partial(server.add, tracer), False)
            done.write_text(out.read_text())
        found += read_traced(done)
    return found


def contents(folder: Path, files: Iterable[str]) -> str:
    """A hash of the files whose lines are noted."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + (folder / name).read_bytes())
    return digest.hexdigest()[:16]


def read_traced(path: Path) -> list[Traced]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [r for r in rows if r["passed"] and r["seconds"] <= LONGEST]
    return [
        Traced(r["test"], r["seconds"], {f: frozenset(lines) for f, lines in r["lines"].items()})
        for r in kept
    ]


def statement_around(source: str, line: int) -> range | None:
    """The lines of the innermost statement around a line, of a compound one its head; None outside functions."""
    found = None
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for lines in _statements(function):
                if line in lines and (found is None or len(lines) <= len(found)):
                    found = lines
    return found


def _statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[range]:
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            yield range(node.lineno, max(node.lineno, last or 0) + 1)


def killers(file: str, source: str, line: int, traced: Iterable[Traced], before: Counter[str]) -> list[str]:
    """Tests that run the statement around a line; those that killed before come first, then the quick ones.

    Outside functions: all that run anything of the file. Where no test runs the statement, a worker process of
    some test may: those come instead.
    """
    tests = list(traced)
    if file.endswith(IN_C):
        wrapper = WRAPPERS.get(Path(file).name, OTHER_WRAPPER)
        chosen = [t for t in tests if t.runs(wrapper, None)]
    else:
        lines = statement_around(source, line)
        chosen = [t for t in tests if t.runs(file, lines)]
    chosen = chosen or [t for t in tests if t.elsewhere]
    return [t.test for t in sorted(chosen, key=lambda t: (-before[t.test], t.seconds))]
