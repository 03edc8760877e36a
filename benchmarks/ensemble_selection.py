"""Tables like those of Amir et al. 2022: mutual errors by three attacks and by verification, scores, accuracies.

    python benchmarks/ensemble_selection.py [--full] [--data mnist] [--seeds 1] [--points 12] [--timeout 10]
        [--methods ga1,ga2,ga3,verify] [--workers 2] [--store FILE.db]

By default the six ten-digit networks of examples/ensemble. `--full` trains ten 784-30-10 networks on MNIST or
Fashion-MNIST (`--data fashion-mnist`) into the folder of the store, for every seed ten others, and asks about 200
agreement points labelled 0 and six radii: 54 000 pairs. The last table has the robust accuracy of the ensembles
before and after selection. Everything that is decided is kept in the store, so a stopped run continues.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from verifolio.data import load_data
from verifolio.encode.torch_export import export_onnx
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugins.ensemble.commands import after_attacks
from verifolio.plugins.ensemble.selection import (
    EnsembleSelection,
    How,
    SelectionOptions,
    SelectionRequest,
    SelectionResult,
)
from verifolio.solve.oracle import Oracle

EXAMPLES = Path(__file__).parents[1] / "examples" / "ensemble"
METHODS: tuple[How, ...] = ("ga1", "ga2", "ga3", "verify")


def train(folder: Path, name: str, seed: int, count: int = 10) -> tuple[Network, ...]:
    """Networks 784-30-10 that differ in their random numbers alone; every seed has its own."""
    data = load_data(f"{name}:train")
    x, y = torch.tensor(data.images, dtype=torch.float32), torch.tensor(data.labels)
    networks = []
    for number in range(count * seed, count * (seed + 1)):
        path = folder / f"{name}_{number + 1}.onnx"
        if not path.is_file():
            torch.manual_seed(number)
            model = nn.Sequential(nn.Linear(784, 30), nn.ReLU(), nn.Linear(30, 10))
            optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
            for _ in range(6):
                for batch in torch.randperm(len(y)).split(128):
                    loss = functional.cross_entropy(model(x[batch]), y[batch])
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
            export_onnx(model, path, (784,))
        networks.append(Network.load(path))
    return tuple(networks)


def request_of(options: argparse.Namespace, seed: int) -> SelectionRequest:
    folder = options.store.parent
    folder.mkdir(parents=True, exist_ok=True)
    if options.full:
        networks = train(folder, options.data, seed)
        radii: tuple[float, ...] = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
        data, test, label = load_data(f"{options.data}:train"), load_data(f"{options.data}:test"), 0
        start: tuple[int, ...] = (0, 1, 2, 3, 4)
    else:
        networks = tuple(Network.load(p) for p in sorted(EXAMPLES.glob("digits_?.onnx")))
        radii = (0.03, 0.06, 0.09)
        data, test, label = load_data("digits:train"), load_data("digits:test"), None
        start = (0, 1, 2)
    points = options.points or (200 if options.full else 12)
    tested = _sample(test, options.test_points)
    return SelectionRequest(networks, data, radii, start, points, label, False, test, tested)


def _sample(data: Dataset, count: int) -> tuple[int, ...]:
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    return tuple(sorted(order[:count].tolist()))


def run(request: SelectionRequest, method: How, options: argparse.Namespace) -> SelectionResult:
    asked = request if method == "verify" else replace(request, test=())
    settings = SelectionOptions(method, seconds=options.seconds, store=str(options.store))
    with Oracle(after_attacks(), "process", timeout=options.timeout, workers=options.workers) as oracle:
        return EnsembleSelection(settings).run(asked, oracle, say)


def say(done: int, total: int, message: str) -> None:
    """Progress, with the clock."""
    print(f"{time.strftime('%H:%M:%S')} {message} ({done} of {total})", file=sys.stderr, flush=True)


def report(request: SelectionRequest, method: How, result: SelectionResult, seconds: float) -> None:
    names = [n.path.stem for n in request.networks]
    found = [int(e.found.sum()) // 2 for e in result.by_epsilon]
    left = [int(e.open.sum()) // 2 for e in result.by_epsilon]
    pairs = len(names) * (len(names) - 1) // 2 * len(result.points) * len(request.epsilons)
    print(f"{method}\t{sum(found)} of {pairs} (open {sum(left)})\tper radius {found}\t{seconds:.1f} s")
    for members, scores in ((result.start, result.scores), (result.final, result.final_scores)):
        print("\t" + ", ".join(f"{names[m]} {s}" for m, s in zip(members, scores, strict=True)))
    for swap in result.swaps:
        print(f"\t{names[swap.removed]} -> {names[swap.added]}: {swap.before} -> {swap.after}")
    if method == "verify":
        print(f"\t{result.stats}", flush=True)


def accuracies(request: SelectionRequest, seed: int, result: SelectionResult) -> None:
    """A line per radius: joint errors and robust accuracy of the first ensemble and of the selected one."""
    errors = result.errors.joint_errors(result.start), result.errors.joint_errors(result.final)
    for e, before, after in zip(request.epsilons, result.before, result.after, strict=False):
        cells = (seed, f"{errors[0]} -> {errors[1]}", e, before.share, after.share)
        print("\t".join(map(str, cells)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", choices=["mnist", "fashion-mnist"], default="mnist")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--test-points", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="for mutual errors; again, accuracies"
    )
    parser.add_argument("--methods", default="ga1,ga2,ga3,verify")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("out/ensemble_selection.db"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    verified = []
    for seed in range(options.seeds):
        request = request_of(options, seed)
        for method in (m for m in METHODS if m in options.methods.split(",")):
            started = time.monotonic()
            result = run(request, method, options)
            report(request, method, result, time.monotonic() - started)
            verified += [(request, seed, result)] if method == "verify" else []
    print("seed\tjoint errors\tepsilon\trobust accuracy before\tafter")
    for request, seed, result in verified:
        accuracies(request, seed, result)


if __name__ == "__main__":
    main()
