"""Networks that are trained to hide a counterexample, and writers of certificates that lie about them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.certificates.writer import write
from verifolio_check.bounds import Model
from verifolio_check.main import VALID, run

from .networks import Layer, exact, property_text, random_layers, save
from .proved import proved
from .test_certificate import WHOLE, decimal

WIDTH = Fraction(1, 32)  # of the part of the box around the planted point that an honest proof leaves out
Box = tuple[list[Fraction], list[Fraction]]


def trained(seed: int, sizes: tuple[int, ...] = (2, 12, 12, 1)) -> tuple[list[Layer], list[Fraction]]:
    """A network that is positive on the box [-1, 1]^2 but for a small dent, and the bottom of the dent."""
    torch.manual_seed(seed)
    parts: list[torch.nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    net = torch.nn.Sequential(*parts[:-1])
    planted = torch.tensor([[0.8125, -0.6875]])
    descent = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(300):
        points = 2 * torch.rand(128, 2) - 1
        far = (points - planted).norm(dim=1, keepdim=True) > 0.3
        loss = (torch.relu(0.3 - net(points)) * far).mean() + torch.relu(net(planted) + 0.05).sum()
        descent.zero_grad()
        loss.backward()
        descent.step()
    maps = [m for m in net if isinstance(m, torch.nn.Linear)]
    layers = [(m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy()) for m in maps]
    return layers, [Fraction(v) for v in planted[0].tolist()]


def texts(ends: list[Fraction]) -> list[str]:
    return [decimal(v) for v in ends]


def written(folder: Path, network: Path, prop: Path, box: Box) -> list[str] | None:
    """The lines that the writer finds without a search, or None where it gives up."""
    trace: dict[str, Any] = {name: np.array(value) for name, value in WHOLE.items()}
    traces = folder / "traces"
    traces.mkdir(exist_ok=True)
    lower, upper = (np.array([float(v) for v in ends]) for ends in box)
    np.savez(traces / "t.npz", lower=lower, upper=upper, **trace)
    target = folder / "written.gz"
    if write(network, prop, traces, target, 1.0) != str(target):
        return None
    return gzip.decompress(target.read_bytes()).decode().split("\n")


def accepted(folder: Path, network: Path, prop: Path, lines: list[str]) -> bool:
    """Whether either checker takes the lines, with the hashes of these files, for a proof."""
    lines, target = list(lines), folder / "forged.gz"
    for k, (word, path) in enumerate((("network", network), ("property", prop)), 1):
        lines[k] = f"{word} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    target.write_bytes(gzip.compress("\n".join(lines).encode()))
    return VALID in (run(network, prop, target)[0], proved(network, prop, target))


def claim(path: Path, box: Box, limit: Fraction) -> Path:
    path.write_text(property_text(texts(box[0]), texts(box[1]), 1, f"(<= Y_0 {decimal(limit)})"))
    return path


@pytest.fixture(params=range(2))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Layer], list[Fraction]]:
    layers, planted = trained(request.param)
    return save(tmp_path / "n.onnx", layers), layers, planted


BOX: Box = [Fraction(-1)] * 2, [Fraction(1)] * 2


def test_a_writer_that_lies_about_the_limit_is_not_believed(
    case: tuple[Path, list[Layer], list[Fraction]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tree closes all leaves but those that nothing can close: the checkers have to find these."""
    net, layers, planted = case
    value = exact(layers, planted)[0]
    prop = claim(tmp_path / "p.vnnlib", BOX, value + Fraction(1, 10**30))  # the planted point attains it
    honest, told = Model.row, 0
    for lie in (Fraction(1, 2), Fraction(1, 50), Fraction(1, 5000)):

        def lying(model: Model, row: Any, lie: Fraction = lie) -> Any:
            start, limit = honest(model, row)
            return start, limit - int(lie * Fraction(2) ** (model.scale[model.network.output] + 6))

        monkeypatch.setattr(Model, "row", lying)
        lines = written(tmp_path, net, prop, BOX)
        monkeypatch.setattr(Model, "row", honest)
        if lines is not None:
            told += 1
            assert not accepted(tmp_path, net, prop, lines)
    assert told, "no lie was large enough for the writer"


def test_a_proof_of_something_else_is_none_of_the_false_claim(
    case: tuple[Path, list[Layer], list[Fraction]], tmp_path: Path
) -> None:
    """Honest proofs of a lower limit, of a box without the planted point, of a network without the dent."""
    net, layers, planted = case
    value = exact(layers, planted)[0]
    false = claim(tmp_path / "p.vnnlib", BOX, value)
    lowest = value - Fraction(1, 2)
    part: Box = BOX[0], [planted[0] - WIDTH, Fraction(1)]
    told = 0
    for k, (box, limit) in enumerate(((BOX, lowest), (part, lowest))):
        true = claim(tmp_path / f"t{k}.vnnlib", box, limit)
        lines = written(tmp_path, net, true, box)
        if lines is not None:
            told += 1
            assert accepted(tmp_path, net, true, lines)
            assert not accepted(tmp_path, net, false, lines)
    flat = [*layers[:-1], (layers[-1][0], layers[-1][1] + np.float32(0.5))]
    other = save(tmp_path / "other.onnx", flat)
    lines = written(tmp_path, other, false, BOX)
    if lines is not None:
        told += 1
        assert accepted(tmp_path, other, false, lines)
        assert not accepted(tmp_path, net, false, lines)
    assert told, "the writer found none of the true proofs"


NARROW = (Fraction(1), Fraction(1, 2**12), Fraction(1, 10**12), Fraction(1, 10**25))


def tied(rng: np.random.Generator) -> list[Layer]:
    """Neurons in pairs whose difference is nothing at the least corner: the limit is a tie there."""
    layers = random_layers(rng, [2, 6, 4, 1])
    for weight, bias in layers[:2]:
        weight[:, 1::2], bias[1::2] = weight[:, ::2], bias[::2]
    layers[-1][0][1::2] = -layers[-1][0][::2]
    return layers


def drawn(kind: str) -> Callable[[np.random.Generator], list[Layer]]:
    return tied if kind == "tied" else lambda rng: random_layers(rng, [2, 6, 4, 1], kind)


@pytest.mark.parametrize("width", NARROW, ids=str)
@pytest.mark.parametrize("kind", ["plain", "wide", "cancelling", "tied"])
def test_a_lying_writer_on_weights_that_cancel_and_boxes_without_a_float32(
    tmp_path: Path, kind: str, width: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is what a corner of the box attains, by exact arithmetic, and the box ends there."""
    rng = np.random.default_rng(7)
    layers = drawn(kind)(rng)
    net, start = save(tmp_path / "n.onnx", layers), Fraction(1, 3)
    low = [Fraction(round(start * 10**40), 10**40)] * 2  # decimals hold it exactly
    box: Box = low, [v + Fraction(round(width * 10**40), 10**40) for v in low]
    corners = [[box[i & 1][0], box[i >> 1][1]] for i in range(4)]
    value = min(exact(layers, x)[0] for x in corners)
    slack = Fraction(1, 10**39)  # the limit is written with 40 digits, rounded down
    prop = claim(tmp_path / "p.vnnlib", box, value + slack)
    assert any(exact(layers, x)[0] <= value for x in corners)
    honest, told = Model.row, 0
    size = max(abs(value), Fraction(1, 10**6))
    for lie in (1000 * size, size, size / 1000):
        monkeypatch.setattr(
            Model,
            "row",
            lambda model, row, lie=lie: (
                honest(model, row)[0],
                honest(model, row)[1] - 2 - int(lie * Fraction(2) ** (model.scale[model.network.output] + 6)),
            ),
        )
        lines = written(tmp_path, net, prop, box)
        monkeypatch.setattr(Model, "row", honest)
        if lines is not None:
            told += 1
            assert not accepted(tmp_path, net, prop, lines)
    assert told, "no lie was large enough for the writer"
