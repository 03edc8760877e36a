"""The conformance kit for properties: `class TestMine(PropertyConformance): make = Mine`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from verifolio.network import Network
from verifolio.property import Property, Reference
from verifolio.query import Query
from verifolio.referee import run_networks
from verifolio.testing.networks import Classifier
from verifolio.testing.verifiers import require

Array = NDArray[np.float64]


class PropertyConformance:
    """A property says one thing three times, and the three must agree.

    `query`: its counterexamples are the violations. `holds`: at one point. `loss`: 0 exactly where it holds.
    `make` gives an instance; `networks` how many networks it is about; `slack` how close to the border a
    point may be for float32 and float64 to disagree.
    """

    make: ClassVar[Callable[[], Property]]
    networks: ClassVar[int] = 1
    slack: ClassVar[float] = 1e-5

    @pytest.fixture
    def references(self) -> list[Reference]:
        """Inputs inside each class, near a border, and at the edge of the legal range."""
        points = [(0.25, 0.25), (0.9, 0.2), (0.2, 0.9), (0.6, 0.4), (1.0, 0.0)]
        labels = (2, 0, 1, 2, 0)
        return [Reference(np.array(p), k, 0.25) for p, k in zip(points, labels, strict=True)]

    @pytest.fixture
    def nets(self, tmp_path: Path) -> list[Network]:
        return [Classifier(tmp_path).network()] * self.networks

    def test_declares_itself(self) -> None:
        made = type(self).make()
        require(isinstance(made.name, str) and made.name != "", "name: expected a word")

    def test_query_and_holds_agree(self, nets: list[Network], references: list[Reference]) -> None:
        """A sampled point is a counterexample of the query exactly where the property does not hold."""
        made, violated = type(self).make(), 0
        for reference in references:
            query = made.query(nets, reference)
            for x in points_of(query):
                y = run_networks(query, x.astype(np.float32))
                check = query.specification.check(x.astype(np.float32), y, ulp=True)
                if check.input_violation > 0 or any(abs(m) < self.slack for m in check.margins):
                    continue
                holds = made.holds(y.astype(np.float64), reference, x)
                violated += check.holds
                require(holds is not check.holds, f"query and holds disagree at {x} around {reference.x}")
        require(
            violated > 0, "no sampled point violates the property; the kit's networks are too robust for it"
        )

    def test_loss_is_nought_where_it_holds(self, nets: list[Network], references: list[Reference]) -> None:
        import torch

        made = type(self).make()
        for reference in references:
            query = made.query(nets, reference)
            x = points_of(query)
            y = np.stack([run_networks(query, p.astype(np.float32)) for p in x]).astype(np.float64)
            loss = made.loss(torch.as_tensor(y), torch.as_tensor(x), [reference] * len(x))
            require(
                tuple(loss.shape) == (len(x),),
                f"loss: expected one number per point, got {tuple(loss.shape)}",
            )
            require(
                bool((loss >= 0).all()) and bool(torch.isfinite(loss).all()), "loss: expected finite, >= 0"
            )
            for value, out, point in zip(loss.tolist(), y, x, strict=True):
                if made.holds(out, reference, point):
                    require(value <= self.slack, f"loss: {value} at {point}, where the property holds")
                else:
                    require(value >= 0.0, f"loss: {value} at {point}, where the property is violated")

    def test_loss_has_a_gradient(self, nets: list[Network], references: list[Reference]) -> None:
        import torch

        made, reference = type(self).make(), references[3]
        query = made.query(nets, reference)
        x = torch.as_tensor(points_of(query))
        y = torch.as_tensor(np.stack([run_networks(query, p.astype(np.float32)) for p in x.numpy()])).double()
        y.requires_grad_()
        loss = made.loss(y, x, [reference] * len(x))
        require(bool((loss > 0).any()), "loss: 0 everywhere around an input near a border")
        loss.sum().backward()  # type: ignore[no-untyped-call]
        require(y.grad is not None and bool((y.grad != 0).any()), "loss: no gradient in the outputs")

    def test_smaller_radius_smaller_set(self, nets: list[Network], references: list[Reference]) -> None:
        """Estimators infer along the radius, so a smaller one must ask about a subset."""
        made = type(self).make()
        for reference in references:
            half = Reference(reference.x, reference.label, reference.epsilon / 2)
            outer, inner = made.query(nets, reference), made.query(nets, half)
            for small, large in zip(inner.problems, outer.problems, strict=False):
                require(
                    small.domain.within(large.domain), f"radius {half.epsilon} is no subset at {reference.x}"
                )


def points_of(query: Query, count: int = 60) -> Array:
    """Points of all input regions, corners among them, as float32 would hold them."""
    from verifolio.testing.trial import sample

    points = [sample(p.domain, count) for p in query.problems]
    return np.concatenate(points).astype(np.float32).astype(np.float64)
