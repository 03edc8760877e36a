"""Boxes of large networks with few inputs: zonotopes and a few steps on the condition's rows, never too tight."""

from __future__ import annotations

import numpy as np
import pytest

from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.kernel.boxes import BoxBatch
from verifolio.plugins.crown.search.inputs import tensor_engine
from verifolio.plugins.crown.search.inputs.input_search import InputSearch
from verifolio.plugins.crown.search.inputs.tensor_engine import TensorEngine
from verifolio.run.budget import Budget
from verifolio.testing.realistic import NETWORKS
from verifolio.testing.reference import attained
from verifolio.testing.trial import evaluate, sample
from verifolio.vnnlib import make_rows

NAMES = ["upsampled", "conv_norm", "residual", "sigmoid_deep", "softmax", "gate"]


@pytest.fixture(autouse=True)
def every_network_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_engine, "MAX_TIGHTENED", 0)


def domain_of(inputs: int, radius: float) -> Domain:
    """Five inputs vary."""
    rng = np.random.default_rng(5)
    centre, reach = rng.normal(size=inputs) * 0.3, np.zeros(inputs)
    reach[rng.choice(inputs, 5, replace=False)] = radius
    return Domain(centre - reach, centre + reach)


def parts(domain: Domain, seed: int) -> BoxBatch:
    """The domain, and boxes inside it."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.uniform(domain.lower, domain.upper, (2, 4, domain.size)), 0)
    lower, upper = np.r_[domain.lower[None], ends[0]], np.r_[domain.upper[None], ends[1]]
    return BoxBatch(lower, upper, np.zeros((5, 0), np.int8))


@pytest.mark.parametrize("name", NAMES)
def test_no_box_with_an_attained_value_is_closed(name: str) -> None:
    graph = NETWORKS[name](np.random.default_rng(6))
    domain = domain_of(graph.input_size, 0.3)
    points = sample(domain, 60, seed=7)
    values = evaluate(graph, points)[graph.output][:, 0]
    m = graph.input_size
    for rhs in np.quantile(values, (0.0, 0.3)):
        problem = Problem(graph, domain, (make_rows([({m: 1.0}, float(rhs))]),))
        engine = TensorEngine(problem, Budget())
        assert engine.apart
        batch = parts(domain, 8)
        found = engine.bound(batch)
        for k in range(len(batch)):
            inside = ((points >= batch.lower[k]) & (points <= batch.upper[k])).all(1)
            assert not (found.closed[k] and (values[inside] <= rhs).any()), f"box {k}"
        assert not found.closed[0]


@pytest.mark.parametrize("name", ["upsampled", "sigmoid_deep"])
def test_a_search_proves_what_lies_below_all_values(name: str) -> None:
    graph = NETWORKS[name](np.random.default_rng(6))
    domain = domain_of(graph.input_size, 0.2)
    one = np.eye(graph.output_size)[:1]
    least, most = float(attained(graph, domain, one)[0]), -float(attained(graph, domain, -one)[0])
    below = least - 0.1 * (most - least)
    for rhs, verdict, seconds in ((below, Verdict.UNSAT, 300.0), (least + 1e-9, Verdict.UNKNOWN, 1.0)):
        problem = Problem(graph, domain, (make_rows([({graph.input_size: 1.0}, rhs)]),))
        budget = Budget(seconds)
        search = InputSearch(problem, TensorEngine(problem, budget), Context(budget), 4)
        assert search.run().verdict is verdict
