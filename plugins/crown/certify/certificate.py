"""What proves the end of a search on neurons: every closed subproblem with its phases and the variables of its bound.

`check` needs no search. It computes the root's bounds anew, sees that the subproblems cover every phase of every open
disjunct, and proves each bound in float64.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.model.problem import Problem
from verifolio.plugins.crown.optimise.ascent import Variables
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.neurons.record import FIELDS, ProofRecord, RefinementRounds
from verifolio.plugins.crown.search.neurons.refinement import refine_bounds
from verifolio.plugins.crown.search.root import Root, bound_root
from verifolio.run.budget import Budget

AT_ONCE = 512  # subproblems proved in one pass; memory grows with it, fewer pay more for calling operations
MOST_ROUNDS = 64  # of splits that a file may ask for: a search takes 8 at most, and each costs time
Phases = NDArray[np.int8]


def save(record: ProofRecord, path: Path, problem: Problem, effort: Effort, rounds: RefinementRounds) -> str:
    """Write the certificate of a finished search, with the effort that its root took; says what came of it."""
    if record.full():
        return f"not written: it outgrew {record.room} bytes"
    if not rounds.complete:
        return "not written: the bounds it rests on were cut short by the clock"
    arrays: dict[str, Any] = {
        name: torch.cat(p).numpy() if p else np.zeros(0) for name, p in record.parts.items()
    }
    key = (problem.graph.sha256, problem.condition_sha256, problem.domain.sha256)
    with path.open("wb") as file:
        took = np.array([effort.steps, effort.elements, *rounds.rounds], np.int64)
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
    root_bounds = bound_root(problem, Space(torch.float32), effort, Budget())
    for rounds in depth:
        if len(root_bounds.live):  # another machine's rounding may have proved more before
            refine_bounds(root_bounds, rounds, effort, Budget())
    return root_bounds.root()


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
