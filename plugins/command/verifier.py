"""A verifier that runs an external tool in a folder and a process group of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from verifolio.errors import InputError
from verifolio.model.answer import Outcome, Verdict
from verifolio.model.problem import Problem, finite
from verifolio.plugin.verifier import Context, Verifier
from verifolio.trust.audit import audited

from .description import Description
from .files import read_point, read_text, write_files
from .verdict import read_verdict

POLL = 0.02  # seconds
TAIL = 2000  # characters of output kept for people


@dataclass(frozen=True)
class ToolOptions:
    """`category`: what VNN-COMP scripts are told. `arguments`: added to the command."""

    category: str = "verifolio"
    arguments: tuple[str, ...] = ()


class Tool(Verifier):
    """Subclasses carry the description of one tool."""

    can_prove = True
    can_falsify = True
    Options: ClassVar[type] = ToolOptions
    options: ToolOptions
    description: ClassVar[Description]

    @classmethod
    def available(cls) -> str | None:
        return cls.description.missing()

    def refuses(self, problem: Problem) -> str | None:
        about = self.description
        if problem.domain.ball is not None:
            return "a ball has no form in VNN-LIB"
        if not finite(problem.domain):
            return "an input has no finite bounds"
        if about.max_inputs and problem.graph.input_size > about.max_inputs:
            return f"more than {about.max_inputs} inputs"
        unfit = sorted(problem.graph.operators & set(about.refuses))
        return f"{about.name} does not support {', '.join(unfit)}" if unfit else None

    def run(self, problem: Problem, context: Context) -> Outcome:
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-", ignore_cleanup_errors=True) as place:
            folder = Path(place)
            try:
                onnx, vnnlib = write_files(problem, context.query, folder)
            except InputError as error:
                return Outcome.unknown(f"cannot be written for {self.name}: {error}")
            call = _Call(self, folder, onnx, vnnlib, context)
            about = self.description
            return audited(call.run(problem), about.unsat, problem, context, about.audit_seconds)


class _Call:
    """One run of the tool on one pair of files."""

    def __init__(self, tool: Tool, folder: Path, onnx: Path, vnnlib: Path, context: Context) -> None:
        self.tool, self.about = tool, tool.description
        self.folder, self.context = folder, context
        self.results, self.output = folder / "results.txt", folder / "output.txt"
        reserve = min(self.about.audit_seconds + 0.5, context.budget.remaining / 4)
        self.deadline = time.monotonic() + min(context.budget.remaining - reserve, 1e9)
        self.values = {
            "onnx": str(onnx),
            "vnnlib": str(vnnlib),
            "results": str(self.results),
            "timeout": str(max(1, int(self.deadline - time.monotonic()))),
            "folder": str(folder),
            "path": os.path.expandvars(self.about.path),
            "cores": str(context.budget.cores),
        }

    def run(self, problem: Problem) -> Outcome:
        started = time.monotonic()
        code: int | None = 0
        for command in self._commands():
            code = self._execute(command)
            if code is None:
                return Outcome(Verdict.TIMEOUT, reason=f"{self.about.name} was stopped")
        text = read_text(self.results if self.about.answer == "results" else self.output)
        stats = {"tool_seconds": round(time.monotonic() - started, 3), "exit_code": code or 0}
        return self._read(text, code or 0, problem.graph.input_size, stats)

    def _commands(self) -> list[list[str]]:
        about, given = self.about, self.values
        more = list(self.tool.options.arguments)
        if not about.scripts:
            filled = [_fill(part, given) for part in about.command]
            return [[str(about.expanded(about.command[0])), *filled[1:], *more]]
        place, files = about.expanded(about.scripts), [given["onnx"], given["vnnlib"]]
        first = ["v1", self.tool.options.category, *files]
        run = [str(place / "run_instance.sh"), *first, given["results"], given["timeout"], *more]
        return [*([[str(place / "prepare_instance.sh"), *first]] if about.prepare else []), run]

    def _execute(self, command: Sequence[str]) -> int | None:
        """The exit code, or None if time was up; then, and in any case, nothing of the tool is left."""
        environment = dict(os.environ) | {k: _fill(v, self.values) for k, v in self.about.environment.items()}
        with self.output.open("ab") as output:
            try:
                process = subprocess.Popen(
                    list(command),
                    cwd=self.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                output.write(f"{command[0]}: {error.strerror}\n".encode())
                return 127
        try:
            return self._wait(process)
        finally:
            _end_group(process)

    def _wait(self, process: subprocess.Popen[bytes]) -> int | None:
        asked = False
        end = self.deadline + self.about.grace
        while process.poll() is None:
            now = time.monotonic()
            if now >= end or self.context.budget.expired():
                return None
            if now >= self.deadline and not asked:
                asked = True
                _signal_group(process, signal.SIGTERM)
            time.sleep(POLL)
        return process.returncode

    def _read(self, text: str, code: int, size: int, stats: dict[str, float | int]) -> Outcome:
        said = read_verdict(self.about, text)
        if said.conflict:
            reason = f"{self.about.name} contradicts itself: {said.conflict}"
            return Outcome(Verdict.ERROR, reason=reason, stats=stats)
        if said.verdict == "sat":
            point = read_point(text, size)
            if point is None:
                return Outcome.unknown("says sat without a complete counterexample", stats=stats)
            return Outcome.found(point, stats=stats)
        if said.verdict == "timeout":
            return Outcome(Verdict.TIMEOUT, reason=f"{self.about.name} says timeout", stats=stats)
        if said.verdict == "unsat":
            return Outcome.proved(stats=stats)
        words = " ".join((text or read_text(self.output))[-TAIL:].split())[-200:] or "nothing"
        return Outcome.unknown(f"no verdict (exit code {code}); it said: {words}", stats=stats)


def _fill(text: str, values: dict[str, str]) -> str:
    """{name} replaced for known names; other braces stay, they may be the tool's own."""
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), os.path.expandvars(text))


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the tool and its children, and collect it."""
    _signal_group(process, signal.SIGKILL)
    process.wait()


def make_class(description: Description) -> type[Tool]:
    """A verifier class for one tool, importable by name in every process that reads the same files."""
    return type(f"Tool_{description.name}", (Tool,), {"name": description.name, "description": description})
