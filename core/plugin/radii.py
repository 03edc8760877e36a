"""Critical radii of many inputs as a question: what Python asks an estimator that keeps them in a store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from verifolio.plugin.account import Example, InputResult
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.estimator import Estimator, OracleLike, Progress, silent

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network


@dataclass(frozen=True, eq=False)
class RadiiRequest:
    """Which networks (by name), inputs and search; words are those of the command `distribution`."""

    networks: Mapping[str, Network]
    data: Dataset
    indices: tuple[int, ...]
    store: Path
    epsilon: str = ""
    norm: str = "linf"
    range: str = "0,1"
    reference: str = "label"
    property: str = "classification"
    property_option: tuple[str, ...] = ()
    timeout: float = 0.0
    jobs: int = 1
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RadiiFound:
    """What is known when it ends, in the order of networks and inputs; `networks` are those of each name.

    `run` names the run in the store. Interrupted, results are those of the inputs that were finished.
    """

    run: str
    networks: Mapping[str, tuple[Network, ...]]
    results: tuple[InputResult, ...]
    examples: tuple[Example, ...]
    interrupted: bool = False


class RadiiEstimator(Estimator):
    """An estimator that answers a `RadiiRequest`, and goes on where the store ends."""

    Request: ClassVar[type] = RadiiRequest

    @abstractmethod
    def lanes(self, request: RadiiRequest) -> int:
        """How many queries it asks at the same time."""

    @abstractmethod
    def run(self, request: RadiiRequest, oracle: OracleLike, progress: Progress = silent) -> RadiiFound:
        """All brackets; `progress` gets the status of each input. An interruption ends with what is known."""
