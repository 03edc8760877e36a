"""A copy of the tree in which one file at a time is changed and tests are run."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, NoReturn

import pytest

from .server import UNUSABLE, Server, wait
from .swap import swap_functions, swap_kernel
from .tracer import module_of

KERNELS = ("plugins/crown/kernel/_boxes.c", "plugins/crown/kernel/_quadratics.c")
IN_C = (".c", ".h")
ONE_TEST = 50  # seconds; a mutant that loops for ever fails its test
AFRESH = 60  # tests whose files are collected again for one change
COLLECTING = 60  # processor seconds that this may take
HEAVY = (
    "numpy",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "torch",
    "onnx",
    "onnxruntime",
    "mpmath",
    "z3",
)
Status = Literal["killed", "survived", "timeout", "broken"]


@dataclass(frozen=True)
class Result:
    """How the tests took a change: `test` is the first that failed, or what ended the run."""

    status: Status
    test: str = ""
    seconds: float = 0.0


class Scratch:
    """The tree as git knows it, without its environment; Python finds the copy before the installed package."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        shutil.rmtree(folder, ignore_errors=True)
        command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, folder / name)
        self.package = package = folder / "build" / "path" / "verifolio"
        package.mkdir(parents=True)
        for part in [*(folder / "core").iterdir(), folder / "plugins", folder / "vnnlib"]:
            (package / part.name).symlink_to(part)
        self.changes = 0
        self.reliable: set[str] = set()
        self.doubtful: set[str] = set()
        self.compile()

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def compile(self) -> bool:
        """Build the kernels in the copy; whether the compiler accepts them."""
        return all(self._compile(self.folder / name) for name in KERNELS)

    def _compile(self, source: Path) -> bool:
        include = sysconfig.get_paths()["include"]
        target = library(source)
        command = ["cc", "-O3", "-fPIC", "-shared", f"-I{include}", str(source), "-o", str(target), "-lm"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def serve(self, tests: Sequence[str], work: Callable[[Server], None]) -> None:
        """Collect test files in a fork, so that imports are done once, and let it `work`."""
        warm()
        command = ["-p", "no:cacheprovider", "-p", "no:faulthandler", f"--timeout={ONE_TEST}", *tests]
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._become_pytest(command, [Server(work)])
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit("the tests could not be collected, or their process ended")

    def _become_pytest(self, command: list[str], plugins: list[object]) -> NoReturn:
        """In the fork: the copy is found first, by whatever processes the tests start as well."""
        os.setsid()
        os.chdir(self.folder)
        path = str(self.package.parent)
        os.environ["PYTHONPATH"] = path
        sys.path[:] = [path, *(p for p in sys.path if Path(p).resolve() != self.root.resolve())]
        for name in [n for n, module in sys.modules.items() if self._is_ours(n, module)]:
            del sys.modules[name]  # of whoever forked
        code = 1
        try:
            code = int(pytest.main([*command, "--capture=sys"], plugins))
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _is_ours(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None) or ""
        return name.split(".")[0] == "verifolio" or file.startswith(f"{self.folder}/")

    def changed(self, server: Server, name: str, text: str, tests: Sequence[str], seconds: float) -> Result:
        """The tests on the tree with one file's text replaced; the file is put back.

        A test that fails without the change, alone in a fork, says nothing; the others are asked again.
        """
        while True:
            chosen = [t for t in tests if t not in self.doubtful]
            result = self._changed(server, name, text, chosen, seconds)
            if result.test not in chosen or self._passes(server, result.test):
                return result
            self.doubtful.add(result.test)

    def _passes(self, server: Server, test: str) -> bool:
        """Whether a test passes by itself on the unchanged tree; asked once."""
        if test not in self.reliable:
            code, _ = server.try_tests([test], ONE_TEST, self.folder / "build" / "alone.txt", lambda: None)
            if code != 0:
                return False
            self.reliable.add(test)
        return True

    def _changed(self, server: Server, name: str, text: str, tests: Sequence[str], seconds: float) -> Result:
        before, started = self.read(name), time.monotonic()
        with self._replaced(name, text) as compiles:
            if not compiles:
                return Result("broken", "does not compile")
            log = self.folder / "build" / "output.txt"
            code, failed = server.try_tests(tests, seconds, log, lambda: self._in_place(name, before, text))
            if code == UNUSABLE:
                code, failed = self._afresh(tests, seconds)
        took = time.monotonic() - started
        if code is None:
            return Result("timeout", f"after {seconds:g} s", seconds)
        if code == 0:
            return Result("survived", "", took)
        return Result("killed", failed or f"exit code {code}", took)

    def _in_place(self, name: str, before: str, after: str) -> None:
        if not name.endswith(IN_C):
            swap_functions(self.package / module_of(name), before, after)
            return
        for kernel in KERNELS:
            source = Path(kernel)
            module = f"verifolio.{'.'.join(source.with_suffix('').parts)}"
            folder = self.folder / "build" / f"kernel-{self.changes}"
            swap_kernel(module, library(self.folder / kernel), folder)

    def _afresh(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Import everything again, for changes outside of functions; the first tests only, for it takes long."""
        tests = tests[:AFRESH]
        files = list(dict.fromkeys(t.split("::")[0] for t in tests))
        log = self.folder / "build" / "output.txt"
        outcome = self.folder / "build" / "outcome.txt"

        def work(server: Server) -> None:
            code, failed = server.try_tests(tests, seconds, log, lambda: None)
            outcome.write_text(f"{code} {failed}")

        outcome.write_text("1 collection")  # unless it gets as far as that
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            self._become_pytest(["-p", "no:cacheprovider", f"--timeout={ONE_TEST}", *files], [Server(work)])
        if wait(child, COLLECTING + seconds) is None:
            return None, ""
        code, failed = outcome.read_text().split(" ", 1)
        return None if code == "None" else int(code), failed

    @contextmanager
    def _replaced(self, name: str, text: str) -> Iterator[bool]:
        """A file with another text, compiled if it is C; its time is its own, so that no stale bytecode is used."""
        path = self.folder / name
        before, times = path.read_text(encoding="utf-8"), path.stat().st_mtime
        self.changes += 1
        path.write_text(text, encoding="utf-8")
        os.utime(path, (times, times + self.changes))
        try:
            yield not name.endswith(IN_C) or self.compile()
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, (times, times))
            if name.endswith(IN_C):
                self.compile()


def library(source: Path) -> Path:
    return source.with_name(f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}")


def warm() -> None:
    """Import what the tests need and no change touches."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in HEAVY:
        importlib.import_module(name)
