"""The property interface: a definition that turns an input into queries, a loss, and a yes or no."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.network import Network
from verifolio.query import Query
from verifolio.verifier import NoOptions

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reference:
    """The input a property is about: its values (flat), its label, the radius and norm, the legal range."""

    x: Array
    label: int
    epsilon: float
    norm: float = np.inf
    lower: Array | float = 0.0
    upper: Array | float = 1.0


class Property(ABC):
    """A property around an input. SAT on its query means: violated."""

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @abstractmethod
    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        """The query whose counterexamples are the violations."""

    @abstractmethod
    def holds(self, outputs: Array, reference: Reference, x: Array) -> bool:
        """Whether the property holds at the concrete point x with these outputs."""

    @abstractmethod
    def loss(self, outputs: Tensor, x: Tensor, references: Sequence[Reference]) -> Tensor:
        """A differentiable loss per point, 0 exactly where the property holds (the DL2 translation)."""
