"""The conformance kit for bounders: `class TestMine(BounderConformance): make = Mine`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest

from verifolio.graph import Graph
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.evidence import Bounds
from verifolio.testing.networks import affine, bells, nought, plus_minus, tangled, zigzag
from verifolio.testing.trial import sample, untrue
from verifolio.testing.verifiers import require
from verifolio.vnnlib import make_rows

GRAPHS = (plus_minus, affine, zigzag, nought, bells, tangled)


def problems_of(make: Callable[[], Graph]) -> dict[str, Problem]:
    """One problem per kind of domain, on one network, with two disjuncts of different sizes."""
    graph = make()
    n, m = graph.input_size, graph.output_size
    first = make_rows([({n: 1.0}, 0.5), ({0: 0.5, n + m - 1: -1.0}, 0.25)])
    second = make_rows([({n + m - 1: 1.0}, -0.125)])
    low, high = -np.ones(n), np.ones(n)
    cut = make_rows([(dict.fromkeys(range(n), 1.0), 0.5)])
    domains = {
        "box": Domain(low, high),
        "small": Domain(low / 8, high / 16),
        "point": Domain(high / 4, high / 4),
        "wide": Domain(low * 1e4, high * 1e4),
        "rows": Domain(low, high, rows=cut),
        "L1": Domain(low, high, ball=Ball(np.zeros(n), 0.75, 1.0)),
        "L2": Domain(low, high, ball=Ball(np.zeros(n), 0.75, 2.0)),
        "Linf": Domain(low, high, ball=Ball(np.zeros(n), 0.75, np.inf)),
    }
    return {name: Problem(graph, domain, (first, second)) for name, domain in domains.items()}


class BounderConformance:
    """Everything other plugins take for granted of a bounder; `make` gives an instance."""

    make: ClassVar[Callable[[], Bounder]]

    @pytest.fixture
    def bounder(self) -> Bounder:
        """A fresh instance; the test is skipped where the bounder says it is unavailable."""
        made = type(self).make()
        missing = made.available()
        if missing is not None:
            pytest.skip(f"{made.name} is unavailable: {missing}")
        return made

    def test_declares_itself(self, bounder: Bounder) -> None:
        require(isinstance(bounder.name, str) and bounder.name != "", "name: expected a word")
        require(0 <= bounder.tightness <= 100, "tightness: expected a number from 0 to 100")

    @pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
    def test_contains_what_happens(self, bounder: Bounder, graph: Callable[[], Graph]) -> None:
        """Sampled inputs, corners among them, stay inside the bounds of every node and every row."""
        for kind, problem in problems_of(graph).items():
            if bounder.refuses(problem) is not None:
                continue
            bounds = bounder.bound([problem])[0]
            self.check_shape(problem, bounds, kind)
            wrong = untrue(bounds, problem, sample(problem.domain))
            require(not wrong, f"{bounder.name} on {kind}: {wrong}")

    @pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
    def test_batch_equals_single(self, bounder: Bounder, graph: Callable[[], Graph]) -> None:
        problems = [p for p in problems_of(graph).values() if bounder.refuses(p) is None]
        together = bounder.bound(problems)
        require(len(together) == len(problems), "bound: expected as many bounds as problems")
        for problem, bounds in zip(problems, together, strict=True):
            alone = bounder.bound([problem])[0]
            require(bounds.domain.sha256 == problem.domain.sha256, "bound: expected the problems' order")
            for node in alone.lower:
                close = np.allclose(alone.lower[node], bounds.lower[node], rtol=1e-6, atol=1e-6)
                close &= np.allclose(alone.upper[node], bounds.upper[node], rtol=1e-6, atol=1e-6)
                require(bool(close), f"node {node}: a batch gave other bounds than the problem alone")

    def test_several_networks_at_once(self, bounder: Bounder) -> None:
        problems = [problems_of(g)["box"] for g in GRAPHS]
        problems = [p for p in problems if bounder.refuses(p) is None]
        for problem, bounds in zip(problems, bounder.bound(problems), strict=True):
            self.check_shape(problem, bounds, "mixed batch")

    def test_known_bounds_stay(self, bounder: Bounder) -> None:
        """Bounds that are handed in are never given up for looser ones."""
        problem = problems_of(plus_minus)["box"]
        if bounder.refuses(problem) is not None:
            pytest.skip("refuses a plain box problem")
        first = bounder.bound([problem])[0]
        again = bounder.bound([problem], known=first)[0]
        for node in first.lower:
            looser = (again.lower[node] < first.lower[node] - 1e-9).any()
            looser |= (again.upper[node] > first.upper[node] + 1e-9).any()
            require(not looser, f"node {node}: looser than the known bounds")

    def test_no_problems(self, bounder: Bounder) -> None:
        require(bounder.bound([]) == [], "bound: expected nothing for nothing")

    def test_unbounded_is_refused_or_sound(self, bounder: Bounder) -> None:
        problem = problems_of(plus_minus)["box"]
        endless = problem.with_domain(Domain(np.full(2, -np.inf), np.full(2, np.inf)))
        reason = bounder.refuses(endless)
        if reason is not None:
            require(bool(reason.strip()) and "\n" not in reason, "refuses: expected a reason in one line")
            return
        wrong = untrue(bounder.bound([endless])[0], endless, sample(endless.domain))
        require(not wrong, wrong)

    def test_gradients(self, bounder: Bounder) -> None:
        """The differentiable margins are lower bounds and have a gradient in the weights."""
        if not bounder.differentiable:
            pytest.skip("is not differentiable")
        import torch

        torch.manual_seed(0)
        first = torch.nn.Linear(3, 8)
        module = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Linear(8, 2))
        centre, rows = torch.rand(5, 3), torch.tensor([[[1.0, -1.0]]]).expand(5, 1, 2)
        margins = bounder.margins(module, centre - 0.1, centre + 0.1, rows)
        require(margins.shape == (5, 1), f"margins: expected shape (5, 1), got {tuple(margins.shape)}")
        for _ in range(50):
            outputs = module(centre + (torch.rand(5, 3) * 2 - 1) * 0.1)
            value = (rows * outputs[:, None]).sum(-1)
            require(bool((margins <= value + 1e-5).all()), "margins: larger than a value that was found")
        margins.sum().backward()
        gradient = first.weight.grad
        require(gradient is not None and bool(torch.isfinite(gradient).all()), "margins: no finite gradient")

    def check_shape(self, problem: Problem, bounds: Bounds, kind: str) -> None:
        """Sizes, order and numbers; a missing node is no fault."""
        require(bounds.graph == problem.graph.sha256, f"{kind}: bounds of another graph")
        require(set(bounds.lower) == set(bounds.upper), f"{kind}: nodes with one bound only")
        for node, lower in bounds.lower.items():
            upper, size = bounds.upper[node], problem.graph.nodes[node].op.size
            require(lower.shape == upper.shape == (size,), f"{kind}: node {node} has {size} values")
            require(
                bool((lower <= upper).all()), f"{kind}: node {node} has a lower bound above its upper bound"
            )
        if bounds.margins is None:
            return
        same = bounds.margins.condition == problem.condition_sha256
        require(same, f"{kind}: margins of another condition than the problem's; use Margins.of")
        counts = [len(m) for m in bounds.margins.values]
        wanted = [rows.count for rows in problem.disjuncts]
        require(counts == wanted, f"{kind}: expected margins for {wanted} rows, got {counts}")
        for margin in bounds.margins.values:
            require(not np.isnan(margin).any(), f"{kind}: a margin is not a number")
