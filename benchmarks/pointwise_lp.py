"""How much the pointwise linear program gains from adding pattern rows lazily, on a 4 x 256 network.

Run: python benchmarks/pointwise_lp.py [--points 5] [--width 256] [--depth 4]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from verifolio.graph import Dense, Graph, GraphBuilder, Relu
from verifolio.graph.enclosure import enclose
from verifolio.model.problem import Ball, Domain, Problem
from verifolio.plugin.verifier import Context
from verifolio.plugins.pointwise_lp.attack import solve
from verifolio.plugins.pointwise_lp.pattern import pattern_at
from verifolio.run.budget import Budget
from verifolio.vnnlib import make_rows


def network(rng: np.random.Generator, inputs: int, width: int, depth: int, outputs: int) -> Graph:
    builder, node, size = GraphBuilder(inputs), 0, inputs
    for _ in range(depth):
        weight = rng.normal(size=(width, size)) * np.sqrt(2 / size)
        node = builder.add(Relu(width), builder.add(Dense(width, rng.normal(size=width) * 0.1, weight), node))
        size = width
    weight = rng.normal(size=(outputs, size)) * np.sqrt(1 / size)
    return builder.finish(builder.add(Dense(outputs, np.zeros(outputs), weight), node))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("points", 5), ("width", 256), ("depth", 4), ("inputs", 784), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    settings = parser.parse_args()
    rng = np.random.default_rng(settings.seed)
    graph = network(rng, settings.inputs, settings.width, settings.depth, 10)
    domain = Domain(np.zeros(settings.inputs), np.ones(settings.inputs))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    print("point  mode  seconds  rounds  rows of pattern used  distance")
    for k in range(settings.points):
        x = rng.uniform(size=settings.inputs)
        order = np.argsort(enclose(graph, x)[0])
        best, second = settings.inputs + int(order[-1]), settings.inputs + int(order[-2])
        problem = Problem(graph, domain, (make_rows([({best: 1.0, second: -1.0}, 0.0)]),))
        pattern = pattern_at(graph, x)
        for lazy in (True, False):
            context = Context(budget=Budget(300.0))
            started = time.perf_counter()
            solved = solve(problem, pattern, 0, Ball(x, 1.0, np.inf), 0.0, lazy, context)
            seconds[lazy].append(time.perf_counter() - started)
            distance = "none" if solved.point is None else f"{np.abs(solved.point - x).max():.6f}"
            mode = "lazy" if lazy else "full"
            used = f"{solved.rows}/{len(pattern.limits)}"
            print(f"{k:5d}  {mode}  {seconds[lazy][-1]:7.3f}  {solved.rounds:6d}  {used:>20}  {distance}")
    quick, slow = (statistics.median(seconds[m]) for m in (True, False))
    print(f"median: lazy {quick:.3f} s, full {slow:.3f} s, ratio {slow / quick:.1f}")


if __name__ == "__main__":
    main()
