"""auto_LiRPA: conformance and comparison where it is installed, and what is said where it is not."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from verifolio.graph import Conv, Dense, Graph, GraphBuilder, Relu, Scale, Select, Sum
from verifolio.model.answer import Verdict
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.model.query import Query
from verifolio.plugin.bounder import Bounders
from verifolio.plugin.evidence import Bounds
from verifolio.plugins.auto_lirpa.bounder import AutoLirpaBounder
from verifolio.plugins.auto_lirpa.presence import missing
from verifolio.plugins.auto_lirpa.rounding import Losses
from verifolio.plugins.auto_lirpa.verifier import AutoLirpa, AutoLirpaOptions
from verifolio.plugins.crown.bounder import CrownBounder
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing import BounderConformance, VerifierConformance
from verifolio.testing.networks import bells, plus_minus
from verifolio.testing.trial import sample, untrue
from verifolio.vnnlib import make_rows

NETWORKS = Path(__file__).resolve().parents[3] / "examples" / "networks"
here = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def residual(seed: int) -> Graph:
    """A convolution, a scale, a skip connection and a choice of entries, all with ReLUs between them."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(18)
    conv = Conv(
        27, rng.normal(size=3), rng.normal(size=(3, 2, 2, 2)), (2, 3, 3), (3, 3, 3), pads=(1, 1, 0, 0)
    )
    first = builder.add(Relu(27), builder.add(conv, 0))
    even = Conv(
        27, rng.normal(size=3), rng.normal(size=(3, 3, 3, 3)), (3, 3, 3), (3, 3, 3), pads=(1, 1, 1, 1)
    )
    second = builder.add(Relu(27), builder.add(even, first))
    both = builder.add(Sum(27, (1.0, -1.0)), first, second)
    scaled = builder.add(Scale(27, rng.normal(size=27), rng.normal(size=27)), both)
    few = builder.add(Select(9, np.arange(0, 27, 3)), builder.add(Relu(27), scaled))
    return builder.finish(builder.add(Dense(3, rng.normal(size=3), rng.normal(size=(3, 9))), few))


def robust(graph: Graph, centre: np.ndarray, radius: float) -> Problem:
    n, m = graph.input_size, graph.output_size
    rows = make_rows([({n: 1.0, n + k: -1.0}, 0.25 * k) for k in range(1, m)])
    return Problem(graph, Domain(centre - radius, centre + radius), (rows,))


@here
class TestBounder(BounderConformance):
    make = AutoLirpaBounder


@here
class TestVerifier(VerifierConformance):
    make = AutoLirpa


def test_it_says_what_is_missing() -> None:
    assert (missing() is None) <= (find_spec("auto_LiRPA") is not None)
    assert AutoLirpa.available() == AutoLirpaBounder.available() == missing()


def test_what_it_has_no_error_term_for_is_refused() -> None:
    bounder = AutoLirpaBounder()
    smooth = bounder.refuses(robust(bells(), np.zeros(bells().input_size), 1.0))
    assert smooth is not None
    assert "no error term" in smooth
    plain = robust(plus_minus(), np.zeros(2), 1.0)
    ball = plain.with_domain(Domain(-np.ones(2), np.ones(2), ball=Ball(np.zeros(2), 0.5, 2.0)))
    assert bounder.refuses(plain) is None
    assert bounder.refuses(ball) is not None


def test_ours_is_preferred() -> None:
    assert AutoLirpaBounder.tightness < CrownBounder.tightness


def test_losses_cover_rounding_done_badly() -> None:
    """Rows pushed back in float32 lose no more than the same analysis allows with float32's unit."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder(40)
    a, b = rng.normal(size=(60, 40)), rng.normal(size=(5, 60))
    middle = builder.add(Relu(60), builder.add(Dense(60, np.zeros(60), a), 0))
    graph = builder.finish(builder.add(Dense(5, np.zeros(5), b), middle))
    domain = Domain(np.full(40, 0.9), np.full(40, 1.1))
    active = {1: (np.full(60, 1.0), np.full(60, 100.0))}  # as if all neurons were surely active
    losses = Losses(graph, domain, active)
    rounded = (b.astype(np.float32) @ a.astype(np.float32)).astype(np.float64)
    error = np.abs((rounded - b @ a) @ np.ones(40))
    allowed = losses.margin(np.eye(5), np.zeros(5)) * 2.0**29  # 2^-24 / 2^-53
    assert (error > 0).any()
    assert (error <= allowed).all()
    assert (losses.margin(np.eye(5), np.zeros(5)) < 1e-9).all()


def test_an_inactive_neuron_loses_nothing() -> None:
    builder = GraphBuilder(1)
    hidden = builder.add(Relu(2), builder.add(Dense(2, np.array([-5.0, 5.0]), np.ones((2, 1))), 0))
    graph = builder.finish(builder.add(Dense(1, np.zeros(1), np.ones((1, 2))), hidden))
    found = {1: (np.array([-6.0, 4.0]), np.array([-4.0, 6.0]))}
    loss = Losses(graph, Domain(-np.ones(1), np.ones(1)), found).loss[2]
    assert loss[0] < 1e-299
    assert 0 < loss[1] < 1e-12


@here
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["CROWN", "CROWN-Optimized"])
def test_bounds_hold_and_are_as_tight_as_ours(seed: int, method: str) -> None:
    """Convolutions, skips and scales: sampled points stay inside, plain CROWN equals ours up to rounding."""
    graph = residual(seed)
    rng = np.random.default_rng(seed)
    problems = [robust(graph, rng.normal(size=18), r) for r in (0.05, 0.3)]
    for problem, bounds in zip(problems, AutoLirpaBounder(method).bound(problems), strict=True):
        assert set(bounds.lower) == {n.parents[0] for n in graph.nodes if isinstance(n.op, Relu)}
        assert not untrue(bounds, problem, sample(problem.domain))
        ours = CrownBounder().bound([problem])[0]
        assert _gap(bounds, ours) < 1e-6
        theirs, mine = bounds.margins_of(problem)[0], ours.margins_of(problem)[0]
        if method == "CROWN":
            assert (theirs <= mine + 1e-9).all()
        else:
            assert (theirs >= mine - 0.5 * np.abs(mine) - 1e-6).all()


def _gap(theirs: Bounds, ours: Bounds) -> float:
    """By how much ours are looser at most; plain CROWN of both starts from the same slopes."""
    return max(float((theirs.lower[i] - ours.lower[i]).max()) for i in theirs.lower if i == 1)


@here
@pytest.mark.parametrize(("file", "verdict"), [("0.01", Verdict.UNSAT), ("0.2", Verdict.UNKNOWN)])
def test_the_example_networks(file: str, verdict: Verdict) -> None:
    query = Query.from_files(
        [NETWORKS / "digits_dense.onnx"], NETWORKS / "properties" / f"digits_dense_45_{file}.vnnlib"
    )
    with Oracle(single_verifier(AutoLirpa(AutoLirpaOptions(unsat="trusted"))), timeout=60.0) as oracle:
        assert oracle.ask(query).verdict is verdict


def test_what_it_says_counts_only_where_asked_for() -> None:
    assert AutoLirpaOptions().unsat == "untrusted"
    problem = robust(residual(0), np.zeros(18), 0.05)
    assert Bounders({"auto_lirpa": AutoLirpaBounder()}).best(problem) is None


@here
def test_untrusted_proofs_are_only_reported() -> None:
    query = Query.from_files(
        [NETWORKS / "digits_dense.onnx"], NETWORKS / "properties" / "digits_dense_45_0.01.vnnlib"
    )
    with Oracle(single_verifier(AutoLirpa()), timeout=60.0) as oracle:
        answer = oracle.ask(query)
    assert answer.verdict is Verdict.UNKNOWN
    assert "not trusted" in answer.reason
