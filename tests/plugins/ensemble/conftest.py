"""Small ensembles for tests: random ones, hand-made ones, and the truth about them without our code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from verifolio.encode.onnx_writer import write_onnx
from verifolio.graph import Dense, Graph, GraphBuilder, Relu
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Domain, Problem
from verifolio.model.query import product_graph
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Reference
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.testing.generate import Shape, random_graph
from verifolio.testing.regions import least_margin, linear_regions
from verifolio.vnnlib import make_rows


def save(graph: Graph, path: Path) -> Network:
    write_onnx(graph, path)
    return Network.load(path)


def linear(path: Path, weight: list[list[float]], bias: list[float]) -> Network:
    """A network of one affine layer."""
    builder = GraphBuilder(len(weight[0]))
    op = Dense(len(bias), np.array(bias, np.float64), np.array(weight, np.float64))
    return save(builder.finish(builder.add(op, 0)), path)


def ends_in_relu(path: Path, weight: list[list[float]], bias: list[float]) -> Network:
    builder = GraphBuilder(len(weight[0]))
    op = Dense(len(bias), np.array(bias, np.float64), np.array(weight, np.float64))
    return save(builder.finish(builder.add(Relu(len(bias)), builder.add(op, 0))), path)


def random_ensemble(rng: np.random.Generator, folder: Path, count: int, classes: int) -> tuple[Network, ...]:
    shape = Shape("dense", inputs=2, width=2, depth=1, outputs=classes)
    return tuple(save(random_graph(rng, shape), folder / f"n{c}.onnx") for c in range(count))


def random_points(rng: np.random.Generator, count: int, classes: int, norm: float) -> tuple[Reference, ...]:
    found = []
    for _ in range(count):
        x = np.round(rng.uniform(-1, 1, 2) * 64) / 64
        radius = float(rng.choice([0.25, 0.5, 1.0]))
        found.append(Reference(x, int(rng.integers(classes)), radius, norm, -math.inf, math.inf))
    return tuple(found)


def inline(verifier: str = "crown", timeout: float = 20.0) -> Oracle:
    return Oracle(single_verifier(verifier), "inline", timeout=timeout)


def product_game(families: list[list[int]], networks: int) -> float:
    """The value by one linear program over all deterministic attacks: every combination of sets."""
    plays = list(product(*families))
    loss = np.array([[sum(s >> c & 1 for s in play) for c in range(networks)] for play in plays])
    count = len(plays)
    cost = np.append(np.zeros(count), -1.0)
    upper = np.hstack([-loss.T / len(families), np.ones((networks, 1))])
    equal = np.append(np.ones(count), 0.0)[None]
    bounds = [(0, None)] * count + [(None, None)]
    answer = linprog(cost, A_ub=upper, b_ub=np.zeros(networks), A_eq=equal, b_eq=[1.0], bounds=bounds)
    return -float(answer.fun or 0.0)


def true_sets(networks: Sequence[Network], reference: Reference) -> list[int]:
    """The maximal sets that one point of a box fools, by samples and by all linear regions; no verifier."""
    graph = product_graph([n.graph for n in networks], shared_input=True)
    lower, upper = reference.box
    domain = Domain(lower, upper)
    count, classes = len(networks), networks[0].output_size
    rng = np.random.default_rng(0)
    grid = rng.uniform(lower, upper, (4000, len(lower)))
    with torch.no_grad():
        y = GraphModule(graph, torch.float64)(torch.from_numpy(grid)).numpy().reshape(4000, count, classes)
    wrong = np.delete(y, reference.label, 2).max(2) >= y[:, :, reference.label]
    seen = set((wrong @ (1 << np.arange(count))).tolist())
    fooled = {s for s in range(1 << count) if any(s & ~t == 0 for t in seen)}
    unseen = sorted(set(range(1, 1 << count)) - fooled, key=lambda s: s.bit_count())
    regions = linear_regions(Problem(graph, domain, ())) if unseen else []
    for mask in unseen:
        if any(part not in fooled for part in _one_less(mask)):
            continue
        chosen = [c for c in range(count) if mask >> c & 1]
        rights = [len(lower) + c * classes + reference.label for c in chosen]
        others = [w for w in range(classes) if w != reference.label]
        for labels in product(others, repeat=len(chosen)):
            wrongs = [len(lower) + c * classes + w for c, w in zip(chosen, labels, strict=True)]
            pairs = zip(rights, wrongs, strict=True)
            rows = make_rows([({r: 1.0, w: -1.0}, 0.0) for r, w in pairs])
            if least_margin(regions, Problem(graph, domain, (rows,)), rows)[0] <= 0:
                fooled.add(mask)
                break
    return [s for s in fooled if not any(s != t and s & ~t == 0 for t in fooled)]


def _one_less(mask: int) -> list[int]:
    return [mask & ~(1 << c) for c in range(mask.bit_length()) if mask >> c & 1]


class Tiny:
    """The functions of this file, for tests (which cannot import each other)."""

    linear = staticmethod(linear)
    ends_in_relu = staticmethod(ends_in_relu)
    random_ensemble = staticmethod(random_ensemble)
    random_points = staticmethod(random_points)
    inline = staticmethod(inline)
    product_game = staticmethod(product_game)
    true_sets = staticmethod(true_sets)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # the tensors are tiny: more threads only wait for each other


@pytest.fixture(scope="session")
def tiny() -> type[Tiny]:
    return Tiny
