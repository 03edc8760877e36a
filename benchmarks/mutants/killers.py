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

from .areas import tests_of
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


def trace(
    scratch: Scratch, server: Server, tests: Collection[str], files: Collection[str], kept: Path
) -> list[Traced]:
    """Run test files once on the unchanged tree and note lines of `files`; what was `kept` of one serves as well."""
    folder = kept / f"traced-{contents(scratch.folder, files)}"
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Traced] = []
    for name in tests:
        text = (scratch.folder / name).read_bytes()
        done = folder / f"{hashlib.sha256(name.encode() + text).hexdigest()[:16]}.jsonl"
        if not done.is_file():
            out = scratch.folder / "build" / "traced.jsonl"
            out.write_text("")
            tracer = Tracer(scratch.folder, files, (WORKERS,), out)
            chosen = [test for test in server.items if test.split("::")[0] == name]
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


@dataclass(frozen=True)
class Kill:
    """A test noticed a change of a file."""

    file: str
    test: str


def untraced(root: Path, file: str, tests: Iterable[str], closing: str, kills: Iterable[Kill]) -> list[str]:
    """The `tests` of a file's area where nothing is known about the lines that they run.

    First those named `closing`, then those that noticed other changes of the file, those of nearer test files, and
    those that noticed changes elsewhere.
    """
    kills = list(kills)
    here = Counter(k.test for k in kills if k.file == file)
    before = Counter(k.test for k in kills)
    files = {name: (_distance(root / name, file), k) for k, name in enumerate(tests_of(root, file))}
    found = [t for t in tests if t.split("::")[0] in files]

    def order(test: str) -> tuple[bool, int, int, int, int]:
        far, place = files[test.split("::")[0]]
        return closing not in test, -here[test], far, -before[test], place

    return sorted(found, key=order)


def _distance(test_file: Path, source: str) -> int:
    """0 for the test file that has the name of a source file, 1 for those that import it, 2 for others."""
    if test_file.stem == f"test_{Path(source).stem.lstrip('_')}":
        return 0
    module = Path(source).with_suffix("").as_posix().removeprefix("core/").replace("/", ".")
    return 1 if f"{module} import" in test_file.read_text(encoding="utf-8") else 2
