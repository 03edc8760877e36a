"""The conformance kit on the search, on a network whose critical radius is known."""

from pathlib import Path

import numpy as np
from verifolio_doubling import Doubling

from verifolio import Network
from verifolio.encode.onnx_writer import write_onnx
from verifolio.plugins.distribution.family import Family
from verifolio.plugins.distribution.radius_search import Critical, RadiusQuestion
from verifolio.testing import EstimatorConformance
from verifolio.testing.networks import dense_graph
from verifolio.testing.verifiers import require


class TestDoubling(EstimatorConformance):
    """y = (0.5, x) around 0.3: the critical radius is 0.2."""

    make = Doubling

    def request(self, folder: Path) -> RadiusQuestion:
        path = folder / "half.onnx"
        if not path.exists():
            write_onnx(dense_graph([([[0.0], [1.0]], [0.5, 0.0])]), path)
        family = Family(Network.load(path), np.array([0.3]), 0)
        return RadiusQuestion(family, tolerance=0.01, budget=10)

    def check(self, result: Critical) -> None:
        upper = result.upper or 0.0
        require(result.lower <= 0.2 <= upper + 1e-6, f"expected 0.2 in the bracket, got {result}")
        require(upper - result.lower <= 0.01, f"expected a bracket as narrow as 0.01, got {result}")
