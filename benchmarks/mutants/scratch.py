"""A copy of the tree in which one file at a time is changed and tests are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KERNEL = "plugins/crown/kernel/_boxes.c"
ONE_TEST = 40  # seconds; a mutant that loops for ever fails its test
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
        package = folder / "build" / "path" / "verifolio"
        package.mkdir(parents=True)
        for part in [*(folder / "core").iterdir(), folder / "plugins", folder / "vnnlib"]:
            (package / part.name).symlink_to(part)
        self.compile()

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def compile(self) -> bool:
        """Build the kernel in the copy; whether the compiler accepts it."""
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        target = (self.folder / KERNEL).with_name(f"_boxes{suffix}")
        include = sysconfig.get_paths()["include"]
        command = [
            "cc",
            "-O3",
            "-fPIC",
            "-shared",
            f"-I{include}",
            str(self.folder / KERNEL),
            "-o",
            str(target),
            "-lm",
        ]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def run(self, tests: list[str], seconds: float) -> Result:
        """Run test files one after another until one fails or time is up."""
        started = time.monotonic()
        for test in tests:
            left = seconds - (time.monotonic() - started)
            if left <= 0:
                return Result("timeout", test, time.monotonic() - started)
            try:
                done = self.pytest(test, left)
            except subprocess.TimeoutExpired:
                return Result("timeout", test, time.monotonic() - started)
            if done.returncode not in (0, 5):  # 5: every test of the file is deselected
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                text = failed[0].split(" - ")[0] if failed else test
                return Result("killed", text, time.monotonic() - started)
        return Result("survived", "", time.monotonic() - started)

    def pytest(self, test: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """One test file in a process of its own; it is stopped with everything it started."""
        path = str(self.folder / "build" / "path")
        environment = dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--timeout={ONE_TEST}",
            test,
        ]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output)

    def changed(self, name: str, text: str, tests: list[str], seconds: float) -> Result:
        """The tests on the tree with one file's text replaced; the file is put back."""
        path = self.folder / name
        before = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        try:
            if name == KERNEL and not self.compile():
                return Result("broken", "does not compile")
            return self.run(tests, seconds)
        finally:
            path.write_text(before, encoding="utf-8")
            if name == KERNEL:
                self.compile()
