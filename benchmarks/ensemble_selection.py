"""Tables like those of Amir et al. 2022: mutual errors by three attacks and by verification, scores, accuracies.

    python benchmarks/ensemble_selection.py [--full] [--points 12] [--timeout 10] [--store FILE.db]

By default the six ten-digit networks of examples/ensemble. `--full` trains ten 784-30-10 networks on MNIST (from
`$VERIFOLIO_DATA/mnist`) into the folder of the store, and asks about 200 agreement points labelled 0 and six
radii: 54 000 pairs. Everything that is decided is kept in the store, so a stopped run continues.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from verifolio.data import Dataset, load_data
from verifolio.export import export_onnx
from verifolio.network import Network
from verifolio.oracle import Oracle
from verifolio.plugins.ensemble.commands import after_attacks
from verifolio.plugins.ensemble.selection import (
    EnsembleSelection,
    How,
    SelectionOptions,
    SelectionRequest,
    SelectionResult,
)

EXAMPLES = Path(__file__).parents[1] / "examples" / "ensemble"
METHODS: tuple[How, ...] = ("ga1", "ga2", "ga3", "verify")


def train_mnist(folder: Path, count: int = 10) -> tuple[Network, ...]:
    """Networks 784-30-10 that differ in their random numbers alone."""
    data = load_data("mnist:train")
    x, y = torch.tensor(data.images, dtype=torch.float32), torch.tensor(data.labels)
    networks = []
    for seed in range(count):
        path = folder / f"mnist_{seed + 1}.onnx"
        if not path.is_file():
            torch.manual_seed(seed)
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


def request_of(options: argparse.Namespace) -> SelectionRequest:
    folder = options.store.parent
    folder.mkdir(parents=True, exist_ok=True)
    if options.full:
        networks = train_mnist(folder)
        radii: tuple[float, ...] = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
        data, test, label = load_data("mnist:train"), load_data("mnist:test"), 0
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
    tested = request.test if method == "verify" else ()
    asked = SelectionRequest(
        request.networks,
        request.data,
        request.epsilons,
        request.start,
        request.points,
        request.label,
        request.clip,
        request.test_data,
        tested,
    )
    settings = SelectionOptions(method, seconds=options.seconds, store=str(options.store))
    with Oracle(after_attacks(), "process", timeout=options.timeout, workers=options.workers) as oracle:
        return EnsembleSelection(settings).run(asked, oracle)


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
    for e, before, after in zip(request.epsilons, result.before, result.after, strict=False):
        print(f"\tepsilon {e}: robust accuracy {before.share} -> {after.share}")
    if method == "verify":
        print(f"\t{result.stats}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--test-points", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--store", type=Path, default=Path("out/ensemble_selection.db"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    request = request_of(options)
    for method in METHODS:
        started = time.monotonic()
        result = run(request, method, options)
        report(request, method, result, time.monotonic() - started)


if __name__ == "__main__":
    main()
