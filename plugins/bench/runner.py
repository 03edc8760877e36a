"""The run itself: instances side by side, each decided once, each result kept as soon as it is there."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from verifolio.errors import VerifolioError
from verifolio.files.names import safe_name
from verifolio.model.answer import Verdict

from .instances import Instance
from .ledger import BenchLedger, content_of, content_of_query
from .results import InstanceResult, Line, write_results, write_text

if TYPE_CHECKING:
    from verifolio.model.answer import Answer
    from verifolio.model.query import Query
    from verifolio.solve.oracle import Oracle

LEAST_SECONDS = 0.01  # less than it takes to begin


@dataclass(frozen=True)
class Places:
    """Where a run writes: VNN-COMP's table, and a folder for logs, counterexamples and pictures."""

    table: Path
    folder: Path

    def log(self, instance: Instance) -> Path:
        return self.folder / "logs" / safe_name(instance.category) / f"{instance.name}.log"

    def counterexample(self, instance: Instance) -> Path:
        folder = self.folder / "counterexamples" / safe_name(instance.category)
        return folder / f"{instance.name}.counterexample"


@dataclass
class Run:
    """A benchmark run. `listen(instance, result, resumed)` hears of every result."""

    key: str
    instances: Sequence[Instance]
    oracle: Oracle
    ledger: BenchLedger
    places: Places
    jobs: int = 1
    again: bool = False
    listen: Callable[[Instance, InstanceResult, bool], None] = lambda i, r, resumed: None
    before: Sequence[Line] = ()  # rows of the table that stay, where only some instances are run
    results: dict[int, InstanceResult] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> list[tuple[Instance, InstanceResult]]:
        """Decide what is not decided yet; gives every instance with its result, in order."""
        waiting = self._resume()
        with ThreadPoolExecutor(self.jobs, "bench") as threads:
            try:
                self._work(threads, waiting)
            except BaseException:
                self._stop.set()
                self.oracle.close()  # cancels what runs, so that the threads come to an end
                raise
        self._save()
        return self.finished()

    def finished(self) -> list[tuple[Instance, InstanceResult]]:
        """What is known so far, in the order of the instances."""
        return [(self.instances[k], self.results[k]) for k in sorted(self.results)]

    def _resume(self) -> list[int]:
        """Take over what the ledger has; gives the numbers of the others."""
        waiting = []
        for number, instance in enumerate(self.instances):
            try:
                content = content_of(instance)
            except (OSError, VerifolioError) as error:
                self._settle(number, InstanceResult(Verdict.ERROR, 0.0, reason=_said(error)))
                continue
            known = self.ledger.find(self.key, content, instance.timeout)
            if known is None or (self.again and not known.verdict.decided):
                waiting.append(number)
            else:
                self._settle(number, known, resumed=True)
        self._save()
        return waiting

    def _work(self, threads: ThreadPoolExecutor, waiting: Sequence[int]) -> None:
        todo, running = list(reversed(waiting)), dict[Future[tuple[InstanceResult, str]], int]()
        while todo or running:
            while todo and len(running) < self.jobs:
                number = todo.pop()
                running[threads.submit(self._decide, self.instances[number])] = number
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                result, content = future.result()
                if content:
                    self.ledger.add(self.key, content, self.instances[number], result)
                self._settle(number, result)
                self._save()

    def _settle(self, number: int, result: InstanceResult, resumed: bool = False) -> None:
        instance = self.instances[number]
        self.results[number] = result
        if result.counterexample:
            path = self.places.counterexample(instance)
            if not resumed or not path.exists():
                write_text(path, result.counterexample)
        self.listen(instance, result, resumed)

    def _save(self) -> None:
        write_results(self.places.table, self.finished(), self.before)

    def _decide(self, instance: Instance) -> tuple[InstanceResult, str]:
        """A result, and the hash of the content that it is about: files may change while a run lasts."""
        content = ""
        started = time.monotonic()
        log: list[str] = [f"{instance.category} {instance.onnx} {instance.vnnlib} {instance.timeout:g} s"]
        try:
            query = load(instance)
            content = content_of_query(instance, query)
            left = instance.timeout - (time.monotonic() - started)
            result = self._ask(query, instance, started, left, log)
        except VerifolioError as error:
            result = InstanceResult(Verdict.ERROR, time.monotonic() - started, reason=str(error))
            log.append(str(error))
        except Exception as error:  # a bug met by one instance must not cost the others their answers
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            result = InstanceResult(Verdict.ERROR, time.monotonic() - started, reason=reason)
            log.append(traceback.format_exc())
        if not self._stop.is_set():
            write_text(self.places.log(instance), "\n".join([*log, f"{result.verdict.value}", ""]))
        return result, content

    def _ask(
        self, query: Query, instance: Instance, started: float, left: float, log: list[str]
    ) -> InstanceResult:
        from verifolio.model.counterexample import counterexample_text

        if left < LEAST_SECONDS:
            return InstanceResult(
                Verdict.TIMEOUT, time.monotonic() - started, reason="reading the files took all time"
            )
        answer = self.oracle.ask(query, left)
        log += describe(answer)
        wall = time.monotonic() - started
        seconds = max(answer.seconds, wall)  # an answer from the store says how long it took
        text = "" if answer.witness is None else counterexample_text(query, answer.witness)
        flags = tuple(sorted(f.value for f in answer.flags))
        return InstanceResult(answer.verdict, seconds, answer.verifier, answer.reason, flags, text)


def _said(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def load(instance: Instance) -> Query:
    """The query of an instance, its networks in the order of the property's declarations."""
    from verifolio.model.query import Query

    named = dict(instance.networks)
    files = [path for _, path in instance.networks] if "" in named else named
    return Query.from_files(files, instance.specification)


def describe(answer: Answer) -> list[str]:
    """An answer and its attempts, for the log."""
    lines = [f"{answer.verdict.value} by {answer.verifier} in {answer.seconds:.3f} s"]
    lines += [f"reason: {answer.reason}"] if answer.reason else []
    lines += [f"flags: {', '.join(sorted(answer.flags))}"] if answer.flags else []
    for attempt in answer.attempts:
        peak = f", {attempt.peak_memory / 2**20:.0f} MB" if attempt.peak_memory else ""
        lines.append(f"  {attempt.verifier}: {attempt.verdict.value} in {attempt.seconds:.3f} s{peak}")
        lines += [f"    {attempt.reason}"] if attempt.reason else []
        lines += [f"    {key}: {value}" for key, value in attempt.stats.items()]
        lines += [f"    | {line}" for line in attempt.log.splitlines()]
    return lines
