"""Verifiers that misbehave, to show that neither the clock nor the verdict is in their hands.

The module is a plugin: an entry point that names it registers all of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from verifolio.model.answer import Outcome
from verifolio.model.joint import Joint
from verifolio.model.problem import Problem
from verifolio.plugin.batch import BatchContext
from verifolio.plugin.evidence import Bounds, Margins
from verifolio.plugin.hookspecs import hookimpl
from verifolio.plugin.options import described
from verifolio.plugin.verifier import Context, Verifier

if TYPE_CHECKING:
    from verifolio.plugin.registry import Registry


class _Hostile(Verifier):
    can_prove = True
    can_falsify = True


class Stubborn(_Hostile):
    """Ignores its deadline, the token and SIGTERM."""

    name = "hostile-stubborn"

    def run(self, problem: Problem, context: Context) -> Outcome:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.1)


class Greedy(_Hostile):
    """Allocates without end."""

    name = "hostile-greedy"

    def run(self, problem: Problem, context: Context) -> Outcome:
        hoard = []
        while True:
            hoard.append(np.ones(4_000_000))
            time.sleep(0.001)


class Crashing(_Hostile):
    """Dies of a signal."""

    name = "hostile-crashing"

    def run(self, problem: Problem, context: Context) -> Outcome:
        os.abort()


class Daemon(_Hostile):
    """Leaves a detached process behind and then waits; the process's number is in the log."""

    name = "hostile-daemon"

    def run(self, problem: Problem, context: Context) -> Outcome:
        code = "import os, time; os.setsid(); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        context.report(f"daemon {child.pid}")
        time.sleep(600)
        return Outcome.unknown("woke up")


class Noisy(_Hostile):
    """Prints what looks like answers on every stream, and knows nothing."""

    name = "hostile-noisy"

    def run(self, problem: Problem, context: Context) -> Outcome:
        for stream in (1, 2):
            os.write(stream, b"unsat\nsat\n\x00\xff\x1b[31m" * 1000)
        return Outcome.unknown("made some noise")


class Raising(_Hostile):
    """Raises an exception of its own, with a message of several lines."""

    name = "hostile-raising"

    def run(self, problem: Problem, context: Context) -> Outcome:
        raise ArithmeticError("the first line\nthe second line")


class WrongPoint(_Hostile):
    """Says SAT with the centre of the box, whatever the network says."""

    name = "hostile-wrong-point"

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.found((problem.domain.lower + problem.domain.upper) / 2)


class NoPoint(_Hostile):
    """Says SAT and shows nothing."""

    name = "hostile-no-point"

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.found(None)  # type: ignore[arg-type]


class WrongProof(_Hostile):
    """Says UNSAT, whatever the network says."""

    name = "hostile-wrong-proof"

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.proved()


class Presumptuous(WrongProof):
    """Says UNSAT although it declares that it cannot prove."""

    name = "hostile-presumptuous"
    can_prove = False


@dataclass(frozen=True)
class CornerOptions:
    """Options of `hostile-corners`."""

    hang: bool = described(False, "Go on for ever after the first counterexample.")
    seconds: float = described(0.0, "Wait so long before the search.")


class Corners(_Hostile):
    """Honest but simple: tries the corners of the box; may then forget to come back."""

    name = "hostile-corners"
    Options = CornerOptions
    can_prove = False

    def run(self, problem: Problem, context: Context) -> Outcome:
        time.sleep(self.options.seconds)
        n = problem.domain.size
        for k in range(2 ** min(n, 10)):
            bits = (k >> np.arange(n)) & 1
            x = np.where(bits == 1, problem.domain.upper, problem.domain.lower)
            if context.check(x):
                while self.options.hang:
                    time.sleep(0.1)
                return Outcome.found(x)
        return Outcome.unknown("no corner is a counterexample")


class Teacher(_Hostile):
    """Leaves a candidate and bounds behind and then hangs."""

    name = "hostile-teacher"

    def run(self, problem: Problem, context: Context) -> Outcome:
        domain = problem.domain
        context.evidence.add_candidate(domain.upper)
        graph = problem.graph.sha256
        context.evidence.add_bounds(
            Bounds(graph, domain, {0: domain.lower}, {0: domain.upper}, source=self.name)
        )
        while True:
            time.sleep(0.1)


class Pupil(_Hostile):
    """Knows nothing but what others found; well-behaved."""

    name = "hostile-pupil"

    def run(self, problem: Problem, context: Context) -> Outcome:
        known = context.evidence.bounds_for(problem)
        for x in context.evidence.candidates:
            if known is not None and context.check(x):
                return Outcome.found(x, stats={"source": known.source})
        return Outcome.unknown("nobody told me anything")


class Picky(_Hostile):
    """Refuses everything."""

    name = "hostile-picky"

    def refuses(self, problem: Problem) -> str | None:
        return "not today"

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.proved()


class WrongBounds(_Hostile):
    """Its bounds claim of every condition that it is out of reach; no plugin, so that nobody takes it by accident."""

    name = "hostile-wrong-bounds"
    can_bound_many = True

    def run(self, problem: Problem, context: Context) -> Outcome:
        return Outcome.unknown("only bounds")

    def bound_many(self, problems: Sequence[Problem], context: BatchContext) -> list[Bounds]:
        said = [Margins.of(p, [np.ones(rows.count) for rows in p.disjuncts]) for p in problems]
        return [Bounds(p.graph.sha256, p.domain, {}, {}, m) for p, m in zip(problems, said, strict=True)]


class HangingAttack(WrongBounds):
    """Finds a point of the second question, and then never ends."""

    name = "hostile-hanging-attack"
    can_attack_many = True

    def attack_many(self, questions: Sequence[Joint], context: BatchContext) -> None:
        context.offer(1, questions[1].domain.upper)
        while True:
            pass


ALL: tuple[type[Verifier], ...] = (
    *(Stubborn, Greedy, Crashing, Daemon, Noisy, Raising),
    *(WrongPoint, NoPoint, WrongProof, Presumptuous, Corners, Teacher, Pupil, Picky),
)


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    for cls in ALL:
        registry.add(cls)
