"""What networks compute at concrete inputs: functions that a worker can be asked for (`Network.compute`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verifolio.onnx_import.network import Network


def outputs_at(network: Network, points: Sequence[NDArray[np.floating]]) -> list[NDArray[np.floating]]:
    """The outputs of ONNX Runtime at each point."""
    return [network.replay(x) for x in points]


def classes_at(network: Network, points: Sequence[NDArray[np.floating]]) -> list[int]:
    """The class that ONNX Runtime gives each point."""
    return [int(np.argmax(y)) for y in outputs_at(network, points)]


def double_outputs(networks: Sequence[Network], x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The networks' outputs at one point in double precision (its error is far below float32's)."""
    from verifolio.graph.enclosure import enclose

    return [enclose(n.graph, x)[0] for n in networks]
