"""The bounder interface: sound bounds for many problems at once, for every verifier and estimator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from verifolio.model.problem import Problem
from verifolio.plugin.evidence import Bounds
from verifolio.run.budget import Budget

if TYPE_CHECKING:
    from torch import Tensor


class Bounder(ABC):
    """Computes Bounds; `tightness` orders bounders from cheap and loose (0) to dear and tight."""

    name: ClassVar[str]
    tightness: ClassVar[int] = 0
    differentiable: ClassVar[bool] = False
    foreign: ClassVar[bool] = False  # another tool's: used only where it is named

    @classmethod
    def available(cls) -> str | None:
        """Why this bounder cannot be used here, or None."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Why this problem is out of scope, or None."""
        return None

    @abstractmethod
    def bound(
        self, problems: Sequence[Problem], budget: Budget | None = None, known: Bounds | None = None
    ) -> list[Bounds]:
        """Bounds of each problem's nonlinear nodes' inputs and output rows; problems may share a graph."""

    def margins(self, module: Any, lower: Tensor, upper: Tensor, rows: Tensor) -> Tensor:
        """Differentiable lower bounds of `rows @ f(x)` on boxes, for training.

        `module` is a torch module whose layers the bounder knows, `lower`/`upper` are (batch, inputs),
        `rows` is (batch, rows, outputs). Only offered where `differentiable` is set.
        """
        raise TypeError(f"bounder {self.name} is not differentiable; choose one that is")


class Bounders(Mapping[str, Bounder]):
    """The installed bounders by name, and the best one for a problem."""

    def __init__(self, bounders: Mapping[str, Bounder] | Callable[[], Mapping[str, Bounder]]) -> None:
        """A function that makes them is called when one is first wanted: importing bounders is slow."""
        self._given = bounders

    @cached_property
    def _bounders(self) -> Mapping[str, Bounder]:
        return dict(self._given() if callable(self._given) else self._given)

    def __getitem__(self, name: str) -> Bounder:
        return self._bounders[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bounders)

    def __len__(self) -> int:
        return len(self._bounders)

    def best(self, problem: Problem, at_most: int = 100) -> Bounder | None:
        """The tightest willing bounder of ours whose `tightness` does not exceed `at_most`."""
        ours = [b for b in self._bounders.values() if b.tightness <= at_most and not b.foreign]
        willing = [b for b in ours if b.refuses(problem) is None]
        return max(willing, key=lambda b: b.tightness, default=None)
