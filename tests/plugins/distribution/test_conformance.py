"""The searches as estimators: what every command takes for granted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verifolio.encode.onnx_writer import write_onnx
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.radii import RadiiFound, RadiiRequest
from verifolio.plugins.distribution.bracket import Bracket
from verifolio.plugins.distribution.closest import ClosestSearch
from verifolio.plugins.distribution.family import Family
from verifolio.plugins.distribution.grid_search import Binary, KBinary
from verifolio.plugins.distribution.many import Many
from verifolio.plugins.distribution.radius_search import Critical, RadiusQuestion
from verifolio.testing import EstimatorConformance
from verifolio.testing.networks import dense_graph


def half(folder: Path) -> Family:
    """y = (0.5, x) around 0.3: the critical radius is 0.2."""
    path = folder / "half.onnx"
    if not path.exists():
        write_onnx(dense_graph([([[0.0], [1.0]], [0.5, 0.0])]), path)
    return Family(Network.load(path), np.array([0.3]), 0)


class Searches(EstimatorConformance):
    def request(self, folder: Path) -> RadiusQuestion:
        return RadiusQuestion(half(folder), (0.05, 0.1, 0.15, 0.25, 0.3), tolerance=0.01, budget=10)

    def check(self, result: Critical) -> None:
        assert result.upper is not None
        assert result.lower <= 0.2 <= result.upper + 1e-6


class TestBracket(Searches):
    make = Bracket


class TestBinary(Searches):
    make = Binary


class TestKBinary(Searches):
    make = KBinary


class TestClosest(Searches):
    make = ClosestSearch


class TestMany(EstimatorConformance):
    make = Many

    def request(self, folder: Path) -> RadiiRequest:
        network = half(folder).network
        data = Dataset("data", "", np.array([[0.3]]), np.array([0]), (1,), 2)
        store = folder / "store.db"
        store.unlink(missing_ok=True)  # a second run asks again
        return RadiiRequest({"half": network}, data, (0,), store, search={"tolerance": 0.01, "budget": 10.0})

    def check(self, result: RadiiFound) -> None:
        (found,) = result.results
        assert found.lower is not None and found.upper is not None
        assert found.lower <= 0.2 <= found.upper + 1e-6

    def essence(self, result: RadiiFound) -> object:
        return [(r.place, r.status, r.lower, r.upper) for r in result.results]

    facts = essence


def test_they_are_installed() -> None:
    for name in ("bracket", "binary", "k-binary", "closest", "distribution"):
        assert current_plugins().estimators.get(name).name == name
