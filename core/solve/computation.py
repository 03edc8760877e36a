"""Values of networks that a worker computes for the driver: outputs at inputs, slopes, judgements of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verifolio.errors import VerifolioError
from verifolio.onnx_import.network import Network
from verifolio.run import Link


@dataclass(frozen=True)
class Computation:
    """A function that a worker can import, and what it is called with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    @property
    def affinity(self) -> str:
        """The hashes of the networks among the arguments."""
        listed = [a if isinstance(a, list | tuple) else (a,) for a in self.arguments]
        return "".join(n.sha256 for part in listed for n in part if isinstance(n, Network))


@dataclass(frozen=True)
class Computed:
    """What the function gave."""

    value: Any


def run_computation(task: Computation, link: Link) -> Computed | VerifolioError:
    """The function a worker calls; the user's errors are raised in the driver."""
    try:
        return Computed(task.function(*task.arguments, **task.named))
    except VerifolioError as error:
        return error
