"""Which tests can notice a change, the likeliest first: those that call the changed function."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .scratch import IN_C, ONE_TEST, Scratch

# a test that takes a good part of its limit on the unchanged tree may reach it for no other reason than load
LONGEST = ONE_TEST / 8
WRAPPERS = {"_boxes.c": "plugins/crown/kernel/boxes.py"}  # call the kernels, which no tracer sees
OTHER_WRAPPER = "plugins/crown/kernel/quadratics.py"
WORKERS = "core/run/"  # what a test does in worker processes, no tracer sees either


@dataclass(frozen=True, eq=False)
class Traced:
    """A test that passes on the unchanged tree, and the first lines of the functions that it calls."""

    test: str
    seconds: float
    calls: Mapping[str, frozenset[int]]

    @property
    def elsewhere(self) -> bool:
        return any(file.startswith(WORKERS) for file in self.calls)

    def calls_into(self, file: str, lines: range | None) -> bool:
        return any(lines is None or line in lines for line in self.calls.get(file, ()))


def trace(scratch: Scratch, files: Iterable[str], kept: Path) -> list[Traced]:
    """Run test files once on the unchanged tree; what an earlier run `kept` of the same tree serves as well."""
    chosen = sorted(files)
    done = kept / f"traced-{contents(scratch.folder, chosen)}.jsonl"
    if not done.is_file():
        out = scratch.folder / "build" / "traced.jsonl"
        out.unlink(missing_ok=True)
        scratch.trace(chosen, out)
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out, done)
    return read_traced(done)


def contents(folder: Path, files: Iterable[str]) -> str:
    """A hash of test files and of all that they may test."""
    digest = hashlib.sha256()
    sources = [p for part in ("core", "plugins", "vnnlib") for p in (folder / part).rglob("*.py")]
    kernels = (folder / "plugins").rglob("*.[ch]")
    for path in [*sorted(sources), *sorted(kernels), *(folder / f for f in files)]:
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def read_traced(path: Path) -> list[Traced]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [r for r in rows if r["passed"] and r["seconds"] <= LONGEST]
    return [
        Traced(r["test"], r["seconds"], {f: frozenset(lines) for f, lines in r["calls"].items()})
        for r in kept
    ]


def function_around(source: str, line: int) -> range | None:
    """The lines of the innermost function around a line; None outside functions."""
    found: range | None = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines = range(first, (node.end_lineno or node.lineno) + 1)
            if line in lines and (found is None or len(lines) < len(found)):
                found = lines
    return found


def killers(file: str, source: str, line: int, traced: Iterable[Traced], before: Counter[str]) -> list[str]:
    """Tests that call the function around a line; those that killed before come first, then the quick ones.

    Outside functions, and where no test calls the function itself: all that call into the file. Tests that have
    work done by worker processes come last.
    """
    tests = list(traced)
    if file.endswith(IN_C):
        wrapper = WRAPPERS.get(Path(file).name, OTHER_WRAPPER)
        chosen = [t for t in tests if t.calls_into(wrapper, None)]
    else:
        lines = function_around(source, line)
        chosen = [t for t in tests if t.calls_into(file, lines)]
        chosen = chosen or [t for t in tests if t.calls_into(file, None)]
    known = {t.test for t in chosen}
    chosen.sort(key=lambda t: (-before[t.test], t.seconds))
    others = sorted((t for t in tests if t.elsewhere and t.test not in known), key=lambda t: t.seconds)
    return [t.test for t in [*chosen, *others]]
