"""A finished search leaves a certificate that proves itself, and only itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.certify.certificate import check, covers, save
from verifolio.plugins.crown.optimise.intermediate import Effort
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.propagate.layers import Space
from verifolio.plugins.crown.search.neurons import stages
from verifolio.plugins.crown.search.neurons.record import ProofRecord, RefinementRounds
from verifolio.plugins.crown.search.root import bound_root
from verifolio.plugins.crown.verifier import Crown
from verifolio.run.budget import Budget
from verifolio.testing.generate import Shape, random_graph
from verifolio.testing.trial import evaluate, sample
from verifolio.vnnlib import make_rows


def searched(tmp_path: Path, seed: int) -> tuple[Problem, Path, int]:
    """A condition that bounds alone do not refute, and the certificate of the search that does."""
    graph = random_graph(np.random.default_rng(seed), Shape("dense", inputs=4, width=10, depth=3))
    domain = Domain(-np.ones(4), np.ones(4))
    values = evaluate(graph, sample(domain, 2000))[graph.output][:, 0]
    path = tmp_path / f"{seed}.npz"
    for share in (0.02, 0.1, 0.3, 1.0):
        rhs = float(values.min() - share * np.ptp(values))
        problem = Problem(graph, domain, (make_rows([({4: 1.0}, rhs)]), make_rows([({4: 1.0}, rhs - 0.1)])))
        crown = Crown(CrownOptions(split="neuron", certificate=str(path)))
        outcome = crown.run(problem, Context(Budget(20.0)))
        if outcome.verdict is Verdict.UNSAT:
            return problem, path, int(outcome.stats["domains"])
    pytest.fail("nothing was proved")


TAMPERINGS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("phase", lambda p: -p, "not positive"),
    ("beta", lambda b: 0 * b, "not positive"),
    ("disjunct", lambda d: d + 1, "cover"),
    ("phase", lambda p: p[:, 1:], "other neurons"),
    ("key", lambda k: k[::-1], "another network"),
]


def test_certificates_prove_and_tampered_ones_do_not(tmp_path: Path) -> None:
    splits = 0
    for seed in range(4):
        problem, path, domains = searched(tmp_path, seed)
        if not domains:
            continue
        splits += domains
        assert check(problem, path) is None
        with np.load(path) as file:
            held = dict(file)
        for name, change, complaint in TAMPERINGS:
            np.savez(tmp_path / "bad.npz", **{**held, name: change(held[name])})
            assert complaint in (check(problem, tmp_path / "bad.npz") or "")
        short = {name: held[name] if name in ("key", "effort") else held[name][1:] for name in held}
        np.savez(tmp_path / "bad.npz", **short)
        assert "cover" in (check(problem, tmp_path / "bad.npz") or "")
    assert splits > 10


def test_what_is_no_certificate_is_said_to_be_none(tmp_path: Path) -> None:
    problem, path, _ = searched(tmp_path, 0)
    whole = path.read_bytes()
    for damaged in (b"not a certificate", b"", whole[: len(whole) // 2], whole[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="certificate"):
            check(problem, path)


@pytest.mark.parametrize("effort", [[-5, 100], [2, 100, -1], [2, 100, 65], [2], [[2, 100]], [2.0, 100.0]])
def test_an_effort_that_nobody_makes_is_no_certificate(tmp_path: Path, effort: list[Any]) -> None:
    problem, path, _ = searched(tmp_path, 0)
    with np.load(path) as file:
        held = dict(file)
    np.savez(path, **{**held, "effort": np.array(effort)})
    with pytest.raises(InputError, match="certificate"):
        check(problem, path)


def test_slopes_that_are_no_lines_prove_nothing(tmp_path: Path) -> None:
    """A condition that holds somewhere, a certificate that covers all, and slopes as one likes."""
    problem, path, _ = searched(tmp_path, 1)
    with np.load(path) as file:
        held = dict(file)
    rows = tuple(make_rows([({4: 1.0}, float(d.rhs[0]) + 100.0)]) for d in problem.disjuncts)
    false = Problem(problem.graph, problem.domain, rows)
    steps, elements = (int(v) for v in held["effort"][:2])
    root = bound_root(false, Space(torch.float32), Effort(steps=steps, elements=elements), Budget()).root()
    assert root.condensed is not None
    key = (false.graph.sha256, false.condition_sha256, false.domain.sha256)
    count, kept = len(root.disjuncts), root.condensed.kept
    nothing = np.zeros((count, kept))
    for slope in (-1e6, 1e6, np.nan, np.inf):
        forged = {
            "key": np.array(key),
            "effort": held["effort"][:2],
            "disjunct": np.arange(count),
            "phase": nothing.astype(np.int8),
            "alpha": nothing + slope,
            "beta": nothing,
            "mix": np.ones((count, 1)),
        }
        np.savez(tmp_path / "forged.npz", **forged)
        assert check(false, tmp_path / "forged.npz") is not None


def test_bounds_that_were_refined_are_refined_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search stops at once for better bounds, and its certificate is about the neurons these leave open."""
    monkeypatch.setattr(stages, "STAGES", (stages.Stage(0.0, 3, 0.5),))
    depths = set()
    for seed in range(4):
        problem, path, _ = searched(tmp_path, seed)
        with np.load(path) as file:
            depths.add(len(file["effort"]) - 2)
        assert check(problem, path) is None
    assert depths == {0, 1} or depths == {1}


def test_bounds_cut_short_by_the_clock_leave_no_certificate(tmp_path: Path) -> None:
    problem, path, _ = searched(tmp_path, 0)
    path.unlink()
    said = save(ProofRecord(1 << 20), path, problem, Effort(steps=1), RefinementRounds().after(4, False))
    assert "cut short" in said and not path.exists()


@pytest.mark.parametrize(
    ("phases", "complete"),
    [
        ([[0, 0]], True),
        ([[1, 0], [-1, 0]], True),
        ([[1, 0], [-1, 1], [-1, -1]], True),
        ([[1, 1], [-1, 1], [-1, -1]], False),
        ([[1, 0], [0, -1]], False),
        ([], False),
    ],
)
def test_cover(phases: list[list[int]], complete: bool) -> None:
    assert covers(np.array(phases, np.int8).reshape(-1, 2)) is complete


def test_room_is_kept(tmp_path: Path) -> None:
    problem, path, _ = searched(tmp_path, 1)
    path.unlink()
    crown = Crown(CrownOptions(split="neuron", certificate=str(path), memory=1024))
    outcome = crown.run(problem, Context(Budget(20.0)))
    assert outcome.verdict is Verdict.UNSAT and "outgrew" in str(outcome.stats["certificate"])
    assert not path.exists()
