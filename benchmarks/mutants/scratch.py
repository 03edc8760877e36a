"""A copy of the tree in which one file at a time is changed and tests are run."""

from __future__ import annotations

import importlib
import math
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import psutil
import pytest

from .tracer import Chosen, Tracer

KERNELS = ("plugins/crown/kernel/_boxes.c", "plugins/crown/kernel/_quadratics.c")
IN_C = (".c", ".h")
ONE_TEST = 50  # seconds; a mutant that loops for ever fails its test
NOTHING = int(pytest.ExitCode.NO_TESTS_COLLECTED)  # every test of the files is deselected
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
POLL = 0.05  # seconds
IDLE = 10  # times the limit in seconds of the clock: more than any load that was seen stretches a run
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
        self.compile()

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def compile(self) -> bool:
        """Build the kernels in the copy; whether the compiler accepts them."""
        return all(self._compile(self.folder / name) for name in KERNELS)

    def _compile(self, source: Path) -> bool:
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        include = sysconfig.get_paths()["include"]
        target = source.with_name(f"{source.stem}{suffix}")
        command = ["cc", "-O3", "-fPIC", "-shared", f"-I{include}", str(source), "-o", str(target), "-lm"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def run(self, tests: list[str], seconds: float) -> Result:
        """Run tests (files, or names of single tests) in one process until one fails or time is up."""
        started = time.monotonic()
        single = [t for t in tests if "::" in t]
        code, output = self.pytest(tests, seconds, [Chosen(single)] if single else [])
        took = time.monotonic() - started
        if code is None:
            return Result("timeout", f"after {seconds:g} s", seconds)
        if code in (0, NOTHING):
            return Result("survived", "", took)
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Result("killed", failed[0].split(" - ")[0] if failed else f"exit code {code}", took)

    def trace(self, tests: list[str], out: Path) -> None:
        """Run test files on the tree as it is; a line of `out` says of every test what it calls."""
        self.pytest(tests, math.inf, [Tracer(self.package, out)], "--maxfail=1000")

    def pytest(
        self, tests: list[str], seconds: float, plugins: list[object], *more: str
    ) -> tuple[int | None, str]:
        """The exit code, None if time was up, and what was printed; a fork, so that heavy imports are done once."""
        warm()
        files = list(dict.fromkeys(t.split("::")[0] for t in tests))
        command = ["-x", "-p", "no:cacheprovider", f"--timeout={ONE_TEST}", *more, *files]
        log = self.folder / "build" / "output.txt"
        child = os.fork()
        if child == 0:
            self._become_pytest(command, plugins, log)
        code = wait(child, seconds)
        return code, log.read_text(errors="replace")

    def _become_pytest(self, command: list[str], plugins: list[object], log: Path) -> NoReturn:
        """In the fork: the copy is found first, by whatever processes the tests start as well."""
        os.setsid()
        os.chdir(self.folder)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = os.fdopen(output, "w")
        path = str(self.package.parent)
        os.environ |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [path, *(p for p in sys.path if Path(p).resolve() != self.root.resolve())]
        for name in [n for n in sys.modules if n.split(".")[0] == "verifolio"]:
            del sys.modules[name]  # of whoever forked
        code = 1
        try:
            code = int(pytest.main(command, plugins))
        finally:
            sys.stdout.flush()
            os._exit(code)

    def changed(self, name: str, text: str, tests: list[str], seconds: float) -> Result:
        """The tests on the tree with one file's text replaced; the file is put back."""
        path = self.folder / name
        before = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        try:
            if name.endswith(IN_C) and not self.compile():
                return Result("broken", "does not compile")
            return self.run(tests, seconds)
        finally:
            path.write_text(before, encoding="utf-8")
            if name.endswith(IN_C):
                self.compile()


def warm() -> None:
    """Import what the tests need and no change touches."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in HEAVY:
        importlib.import_module(name)


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a process; None if time is up, and it is stopped with everything it started.

    Time is that of the processor, so that a busy machine makes no mutant look harmless; a process that sleeps for
    ever is stopped as well.
    """
    deadline = time.monotonic() + IDLE * seconds
    while time.monotonic() < deadline and processor_seconds(child) < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def processor_seconds(process: int) -> float:
    """What a process and its children that have ended have used."""
    try:
        used = psutil.Process(process).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(used.user + used.system + used.children_user + used.children_system)
