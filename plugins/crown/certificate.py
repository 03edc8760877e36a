"""What proves the end of a search on neurons: every closed subproblem with its phases and the variables of its bound.

`check` needs no search. It computes the root's bounds anew, sees that the subproblems cover every phase of every open
disjunct, and proves each bound in float64.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.errors import InputError
from verifolio.model.problem import Problem
from verifolio.plugins.crown.ascent import Variables
from verifolio.plugins.crown.deepen import deepen
from verifolio.plugins.crown.layers import Space
from verifolio.plugins.crown.root import Root, plant
from verifolio.plugins.crown.subproblems import Subproblems
from verifolio.plugins.crown.sweep import Effort
from verifolio.run.budget import Budget

FIELDS = ("disjunct", "phase", "alpha", "beta", "mix")
AT_ONCE = 512
MOST_ROUNDS = 64
Phases = NDArray[np.int8]


@dataclass(frozen=True)
class Depth:
    """The rounds of splits on the intermediate neurons behind a root, and whether each came to its end."""

    rounds: tuple[int, ...] = ()
    complete: bool = True

    def after(self, rounds: int, complete: bool) -> Depth:
        return Depth((*self.rounds, rounds), self.complete and complete)


@dataclass
class Ledger:
    """Closed subproblems as they come; one that outgrows its room (bytes) is dropped, and says so."""

    room: int
    parts: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in FIELDS})
    size: int = 0

    def full(self) -> bool:
        return self.size > self.room

    def add(self, items: Subproblems, variables: Variables) -> None:
        """Subproblems and the variables with which each was proved."""
        if self.full() or not len(items):
            return
        held = (items.disjunct, items.phase, variables.alpha, variables.beta, variables.mix)
        for name, part in zip(FIELDS, held, strict=True):
            kept = part if part.dtype in (torch.int8, torch.int64) else part.double()
            self.parts[name].append(kept.cpu())
            self.size += kept.numel() * kept.element_size()
        if self.full():
            self.parts = {name: [] for name in FIELDS}

    def save(self, path: Path, problem: Problem, effort: Effort, depth: Depth) -> str:
        """Write the certificate of a finished search, with the effort that its root took; says what came of it."""
        if self.full():
            return f"not written: it outgrew {self.room} bytes"
        if not depth.complete:
            return "not written: the bounds it rests on were cut short by the clock"
        arrays: dict[str, Any] = {
            name: torch.cat(p).numpy() if p else np.zeros(0) for name, p in self.parts.items()
        }
        key = (problem.graph.sha256, problem.condition_sha256, problem.domain.sha256)
        with path.open("wb") as file:
            took = np.array([effort.steps, effort.elements, *depth.rounds], np.int64)
            np.savez(file, key=np.array(key), effort=took, **arrays)
        return str(path)


def check(problem: Problem, path: Path) -> str | None:
    """Why the file does not prove the problem impossible; None: it does."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in (*FIELDS, "key", "effort")}
        _check_form(held)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(str(path), "a certificate of crown", str(error)) from error
    if tuple(held["key"]) != (problem.graph.sha256, problem.condition_sha256, problem.domain.sha256):
        return "it is about another network, condition or input set"
    root = _root(problem, held["effort"].tolist())
    if not len(root.disjuncts):
        return None
    if root.condensed is None or held["phase"].shape[1:] != (root.condensed.kept,):
        return "the root's bounds leave other neurons open on this machine"
    for d in range(len(root.disjuncts)):
        if not covers(held["phase"][held["disjunct"] == d]):
            return f"its subproblems do not cover disjunct {int(root.disjuncts[d])}"
    shapes = (held["phase"].shape, held["phase"].shape, (len(held["phase"]), root.goal.rhs.shape[1]))
    known = np.isin(held["disjunct"], range(len(root.disjuncts))).all()
    if not known or tuple(held[name].shape for name in ("alpha", "beta", "mix")) != shapes:
        return "its variables or disjuncts are not those of this problem"
    exact = root.double()
    tensors = {name: torch.as_tensor(held[name]) for name in FIELDS}
    for part in torch.arange(len(tensors["disjunct"])).split(AT_ONCE):
        variables = Variables(*(tensors[name][part] for name in ("alpha", "beta", "mix")))
        margin = exact.prove(tensors["disjunct"][part], tensors["phase"][part], variables).margin[:, 0]
        if not bool((margin > 0).all()):
            return f"{int((~(margin > 0)).sum())} of its bounds are not positive"
    return None


def _root(problem: Problem, took: list[int]) -> Root:
    """The root that a search began with, for the effort it took."""
    steps, elements, *depth = took
    effort = Effort(steps=steps, elements=elements)
    trunk = plant(problem, Space(torch.float32), effort, Budget())
    for rounds in depth:
        if len(trunk.live):  # another machine's rounding may have proved more before
            deepen(trunk, rounds, effort, Budget())
    return trunk.root()


def _check_form(held: dict[str, Any]) -> None:
    """Arrays of the right kinds and shapes, or a ValueError."""
    count = len(held["disjunct"])
    for name in FIELDS:
        wanted = "if" if name in ("alpha", "beta", "mix") else "i"
        if len(held[name]) != count or (count and held[name].dtype.kind not in wanted):
            raise ValueError(f"{name} does not fit the other arrays")
    if held["effort"].ndim != 1 or len(held["effort"]) < 2 or held["effort"].dtype.kind != "i":
        raise ValueError("the root's effort is missing")
    if (held["effort"] < 0).any() or (held["effort"][2:] > MOST_ROUNDS).any():
        raise ValueError(f"the root's effort is negative, or more than {MOST_ROUNDS} rounds of splits")


def covers(phases: Phases) -> bool:
    """Whether every assignment of phases agrees with a row: split on a neuron that all rows fix, both ways."""
    groups = [(phases, np.zeros(phases.shape[1], bool))]
    while groups:
        rows, done = groups.pop()
        if not len(rows):
            return False
        if ((rows == 0) | done).all(1).any():  # nothing more is asked of some row
            continue
        fixed = np.flatnonzero((rows != 0).all(0) & ~done)
        if not len(fixed):
            return False
        after = done.copy()
        after[fixed[0]] = True
        groups += [(rows[rows[:, fixed[0]] == sign], after) for sign in (1, -1)]
    return True
