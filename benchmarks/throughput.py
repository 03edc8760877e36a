"""How fast bounds come: images per second of one CROWN call, boxes per second of the compiled kernel.

    python benchmarks/throughput.py [--network FILE.onnx] [--boxes FILE.onnx] [--data mnist:test] [--images 100]
                                    [--radius 0.01 0.03] [--threads 1] [--most 1000000]

Without files, random networks of the same shapes are used: 784-256x6-10 for images, 5-50x6-5 for boxes; without
`--data`, random grey images. Where auto_LiRPA is installed, its CROWN bounds the same images one by one in the same
run, in float64 and in its usual float32, and no bound of ours may be looser than its. With one thread the clock is
the processor's, so that other work on the machine counts only for the caches and units that it shares.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from verifolio.data import load_data
from verifolio.graph import Dense, Graph, GraphBuilder, Relu
from verifolio.graph.module import GraphModule
from verifolio.model.problem import Domain, Problem, dense_rows
from verifolio.onnx_import.network import Network
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.manager import current_plugins
from verifolio.plugins.crown.bounder import CrownBounder
from verifolio.plugins.crown.kernel import boxes
from verifolio.plugins.crown.kernel.blocks import Kernel
from verifolio.plugins.crown.kernel.boxes import BoxBatch, KernelEngine
from verifolio.vnnlib import make_rows

Array = NDArray[np.float64]
BATCH = 2048  # as the search does
PATIENCE = 180.0  # seconds for one count of boxes


def dense_graph(sizes: list[int], seed: int = 0) -> Graph:
    """A random ReLU network."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(sizes[0])
    node = 0
    for k in range(1, len(sizes)):
        weight = rng.normal(size=(sizes[k], sizes[k - 1])) * np.sqrt(2.0 / sizes[k - 1])
        node = builder.add(Dense(sizes[k], rng.normal(size=sizes[k]) * 0.05, weight), node)
        if k + 1 < len(sizes):
            node = builder.add(Relu(sizes[k]), node)
    return builder.finish(node)


def product_rate(dtype: torch.dtype, size: int = 1024) -> float:
    """Floating-point operations per second of this machine's matrix product, on as many threads as torch has."""
    a = torch.rand(size, size, dtype=dtype)
    a @ a
    best = min(clock(lambda: a @ a) for _ in range(5))
    return 2.0 * size**3 / best


def clock(work: Callable[[], object]) -> float:
    """Seconds of the processor with one thread, else those on the wall."""
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = now()
    work()
    return now() - begin


def grey_images(size: int, count: int, data: str) -> Array:
    """The first images of a data set, or random ones."""
    if not data:
        return np.random.default_rng(1).random((count, size)) ** 4
    found = load_data(data, current_plugins())
    return np.asarray(found.raw[:count], np.float64) / found.scale


def image_problems(graph: Graph, images: Array, radius: float) -> list[Problem]:
    """Robustness of images in [0, 1]: one margin of the predicted class for every other class."""
    n, m = graph.input_size, graph.output_size
    with torch.no_grad():
        labels = GraphModule(graph, torch.float64)(torch.as_tensor(images)).argmax(1).tolist()
    found = []
    for image, label in zip(images, labels, strict=True):
        rows = make_rows([({n + label: 1.0, n + k: -1.0}, 0.0) for k in range(m) if k != label])
        box = Domain(np.maximum(image - radius, 0), np.minimum(image + radius, 1))
        found.append(Problem(graph, box, (rows,)))
    return found


def least_work(graph: Graph, found: list[Bounds], rows_each: int) -> float:
    """Multiplications and additions that both bounds of every open neuron and the margins cannot do without.

    Rows pass only neurons that are not nought, and only neurons that stay open are asked for.
    """
    hidden = [graph.nodes[i].parents[0] for i in graph.relus]
    total = 0.0
    for bounds in found:
        rows, behind, passed = 0.0, float(graph.input_size), 0.0
        for node in hidden:
            live = float((bounds.upper[node] > 0).sum())
            is_open = (bounds.upper[node] > 0) & (bounds.lower[node] < 0)
            if node != hidden[0]:
                rows += 2.0 * float(is_open.sum()) * passed
            passed += live * behind
            behind = live
        total += 2.0 * (rows + rows_each * passed)
    return total


def bound_images(graph: Graph, problems: list[Problem], rate: float) -> None:
    """One call for all images against one call for each, ours and auto_LiRPA's."""
    bounder, count = CrownBounder(), len(problems)
    bounder.bound(problems[:2])
    found: list[Bounds] = []
    together = clock(lambda: found.extend(bounder.bound(problems)))
    few = problems[: max(1, count // 5)]
    single = clock(lambda: [bounder.bound([p]) for p in few]) / len(few)
    work = least_work(graph, found, problems[0].row_count)
    print(f"images: {count} with {problems[0].row_count} margins each, {graph.neurons} neurons")
    print(f"  one call             {count / together:9.1f} images/s   {1e3 * together / count:.2f} ms/image")
    print(f"    needs {work / 1e9:.1f} Gflop: {work / together / rate:.0%} of the matrix product's rate")
    print(f"  image by image       {1 / single:9.1f} images/s   ratio {single * count / together:.1f}")
    if find_spec("auto_LiRPA") is None:
        print("  auto_LiRPA           skipped: not installed here")
        return
    ours = np.stack([b.margins_of(p)[0] for b, p in zip(found, problems, strict=True)])
    for dtype in (torch.float64, torch.float32):
        seconds, theirs = _auto_lirpa(graph, problems, dtype)
        ratio = seconds * count / together
        print(f"  auto_LiRPA {str(dtype)[6:]:>9} {1 / seconds:9.1f} images/s   ratio {ratio:.1f}")
        # what we add for rounding, and what float32 loses, is far below this
        slack = (1e-9 if dtype is torch.float64 else 1e-3) * (1 + np.abs(theirs))
        tighter = float(np.mean(ours > theirs + slack))
        print(f"    looser margins of ours: {int((ours < theirs - slack).sum())}, tighter: {tighter:.0%}")


def _auto_lirpa(graph: Graph, problems: list[Problem], dtype: torch.dtype) -> tuple[float, Array]:
    """Seconds per image of auto_LiRPA's CROWN on the same network, and its margins."""
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    model = BoundedModule(_sequential(graph, dtype), torch.zeros(1, graph.input_size, dtype=dtype))

    def one(problem: Problem) -> Array:
        box = (problem.domain.lower, problem.domain.upper)
        low, high = (torch.tensor(v, dtype=dtype)[None] for v in box)
        dense = dense_rows(problem.disjuncts[0], graph.input_size, graph.output_size)[1]
        rows = torch.tensor(dense, dtype=dtype)[None]
        x = BoundedTensor((low + high) / 2, PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high))
        with torch.no_grad():
            lower, _ = model.compute_bounds(x=(x,), C=rows, method="CROWN", bound_upper=False)
        return np.asarray(lower[0].double().numpy())

    one(problems[0])
    found: list[Array] = []
    seconds = clock(lambda: found.extend(one(p) for p in problems))
    return seconds / len(problems), np.stack(found)


def _sequential(graph: Graph, dtype: torch.dtype) -> torch.nn.Module:
    """A chain of dense layers and ReLUs as torch's own modules."""
    modules: list[torch.nn.Module] = []
    for node in graph.nodes[1:]:
        if isinstance(node.op, Dense):
            layer = torch.nn.Linear(node.op.weight.shape[1], node.op.size).to(dtype)
            layer.weight.data = torch.tensor(node.op.weight, dtype=dtype)
            layer.bias.data = torch.tensor(node.op.bias, dtype=dtype)
            modules.append(layer)
        elif isinstance(node.op, Relu):
            modules.append(torch.nn.ReLU())
        else:
            kind = type(node.op).__name__
            raise SystemExit(f"--network: expected dense layers and ReLUs only, got {kind}")
    return torch.nn.Sequential(*modules)


def operations(kernel: Kernel, phase: np.ndarray) -> float:
    """Multiplications and additions of backward passes, estimated from the phases that were found."""
    passes = work = total = 0.0
    start = 0
    for k, size in enumerate(kernel.size):
        columns = phase[:, start : start + size]
        last = k + 1 == len(kernel.size)
        passes = float(size) * len(phase) if last else float((2 - (columns > 0)).sum())
        total += passes * work
        if not last:
            live = float((columns >= 0).sum()) / len(phase)
            work += 2.0 * live * float(kernel.last[k] - kernel.first[k])
        start += size
    return total


def bound_boxes(graph: Graph, most: int, rate: float) -> None:
    if getattr(boxes, "_boxes", None) is None:
        print("boxes: skipped, the compiled kernel was not built here")
        return
    n = graph.input_size
    domain = Domain(-np.full(n, 0.5), np.full(n, 0.5))
    rows = make_rows([({n: 1.0, n + k: -1.0}, 0.0) for k in range(1, graph.output_size)])
    engine = KernelEngine(Problem(graph, domain, (rows,)), 1)
    print(f"boxes: {n} inputs, {engine.neurons} neurons, one thread, batches of {BATCH}")
    rates, seconds = [], 0.0
    count = 1000
    while count <= most and seconds * 10 < PATIENCE:
        seconds, work = _boxes_seconds(engine, domain, count)
        rates.append(count / seconds)
        share = work / seconds / rate
        print(f"  {count:>9,} boxes  {rates[-1]:9.0f} boxes/s   {share:6.1%} of the matrix product's rate")
        count *= 10
    print(f"  slowest / fastest count: {min(rates) / max(rates):.2f}")


def _boxes_seconds(engine: KernelEngine, domain: Domain, count: int) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    seconds = work = 0.0
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        centre = rng.uniform(domain.lower, domain.upper, (size, domain.size))
        low, high = np.maximum(centre - 0.02, domain.lower), np.minimum(centre + 0.02, domain.upper)
        batch = BoxBatch(low, high, np.zeros((size, engine.neurons), np.int8))
        begin = time.perf_counter()
        engine.bound(batch)
        seconds += time.perf_counter() - begin
        work += operations(engine.kernel, batch.phase)
    return seconds, work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--network", type=Path, help="an ONNX classifier of images in [0, 1]")
    parser.add_argument("--boxes", type=Path, help="an ONNX network with few inputs")
    parser.add_argument("--data", default="", help="images as NAME[:SPLIT]")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--radius", type=float, nargs="+", default=[0.01, 0.03])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most", type=int, default=1_000_000, help="boxes; 0 leaves them out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    images = Network.load(options.network).graph if options.network else dense_graph([784, *[256] * 6, 10])
    small = Network.load(options.boxes).graph if options.boxes else dense_graph([5, *[50] * 6, 5])
    rate = product_rate(torch.float64)
    print(f"matrix product, float64: {rate / 1e9:.1f} Gflop/s on {torch.get_num_threads()} threads")
    grey = grey_images(images.input_size, options.images, options.data)
    for radius in options.radius:
        print(f"radius {radius}")
        bound_images(images, image_problems(images, grey, radius), rate)
    if options.most:
        bound_boxes(small, options.most, rate)


if __name__ == "__main__":
    main()
