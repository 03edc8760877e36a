"""The conformance kit for properties: `class TestMine(PropertyConformance): make = Mine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Points, Property, Reference
from verifolio.testing.networks import Classifier
from verifolio.testing.trial import sample
from verifolio.testing.verifiers import require
from verifolio.trust.referee import run_networks

Array = NDArray[np.float64]


class PropertyConformance:
    """A property says one thing three times, and the three must agree.

    `query`: its counterexamples are the violations. `satisfied`: at concrete points. `loss`: 0 exactly where
    it holds. `make` gives an instance; `slack` says how close to the border float32 and float64 may disagree;
    `epsilon` is the radius around the kit's inputs, points of the unit square with labels 0, 1, 2. Where the
    query is not `pointwise`, a violation may be a counterexample farther out on its ray from the reference.
    """

    make: ClassVar[Callable[[], Property]]
    slack: ClassVar[float] = 1e-5
    epsilon: ClassVar[float] = 0.25
    pointwise: ClassVar[bool] = True

    @pytest.fixture
    def made(self) -> Property:
        return type(self).make()

    @pytest.fixture
    def nets(self, made: Property, tmp_path: Path) -> list[Network]:
        """As many classifiers of the unit square as the property is about."""
        return [Classifier(tmp_path, k).network() for k in range(made.networks)]

    @pytest.fixture
    def references(self, nets: list[Network]) -> list[Reference]:
        """Inputs inside each class, near a border, and at the edge of the legal range."""
        points = [(0.25, 0.25), (0.9, 0.2), (0.2, 0.9), (0.6, 0.4), (1.0, 0.0)]
        labels = (2, 0, 1, 2, 0)
        found = [Reference(np.array(p), k, self.epsilon) for p, k in zip(points, labels, strict=True)]
        return [reference.with_outputs(nets) for reference in found]

    def test_declares_itself(self, made: Property) -> None:
        require(isinstance(made.name, str) and made.name != "", "name: expected a word")
        require(made.networks >= 1, "networks: expected at least one")

    def test_query_and_points_agree(
        self, made: Property, nets: list[Network], references: list[Reference]
    ) -> None:
        """A sampled point is a counterexample of the query exactly where the property does not hold."""
        violated = 0
        for reference in references:
            query, exact = made.query(nets, reference), made.refutation(nets, reference)
            for x, y in evaluated(query):
                check = query.specification.check(x, y, ulp=True)
                if check.input_violation > 0 or any(abs(m) < self.slack for m in check.margins):
                    continue
                holds = made.holds(y, reference, x)
                violated += not holds
                where = f"at {x.tolist()} around {reference.x.tolist()}"
                seen = (
                    holds or check.holds or (not self.pointwise and self.farther(made, query, reference, x))
                )
                require(seen, f"{where}: violated, but no counterexample of the query")
                if exact is None:
                    require(not (holds and check.holds), f"{where}: holds, but a counterexample of the query")
                else:
                    wrong = holds and exact.specification.check(x, y, ulp=True).holds
                    require(not wrong, f"{where}: holds, but a counterexample of the refutation")
        require(violated > 0, "no sampled point violates the property; choose another epsilon or options")

    def farther(self, made: Property, query: Query, reference: Reference, x: Array) -> bool:
        """Whether a counterexample lies on the ray through x; violations by less than the slack do not count."""
        here = Points.at(reference, x, run_networks(query, x.astype(np.float32)))
        if float(made.loss(here)[0]) < self.slack:
            return True
        lower, upper = made.region(reference)
        for stretch in np.geomspace(1.0, 1e4, 200):
            far = (reference.x + stretch * (x - reference.x)).astype(np.float32)
            if bool((far < lower).any() or (far > upper).any()):
                return False
            if query.specification.check(far, run_networks(query, far), ulp=True).holds:
                return True
        return False

    def test_loss_is_nought_where_it_holds(
        self, made: Property, nets: list[Network], references: list[Reference]
    ) -> None:
        for reference in references:
            points = points_of(made.query(nets, reference), reference)
            loss, satisfied = made.loss(points), made.satisfied(points)
            count = (len(points.x),)
            require(tuple(loss.shape) == count, f"loss: expected one per point, got {tuple(loss.shape)}")
            require(tuple(satisfied.shape) == count, "satisfied: expected one truth value per point")
            numbers = loss.detach().numpy()
            require(
                bool(np.isfinite(numbers).all() and (numbers >= 0).all()), "loss: expected finite and >= 0"
            )
            wrong = (numbers == 0) != satisfied.numpy()
            where = points.x[int(wrong.argmax())].tolist()
            require(
                not wrong.any(), f"loss: {numbers[int(wrong.argmax())]} at {where} contradicts `satisfied`"
            )

    def test_loss_has_a_gradient(
        self, made: Property, nets: list[Network], references: list[Reference]
    ) -> None:
        moved = False
        for reference in references:
            points = points_of(made.query(nets, reference), reference)
            points.y.requires_grad_()
            loss = made.loss(points).sum()
            if loss.requires_grad and float(loss.detach()) > 0:
                loss.backward()
                gradient = points.y.grad
                moved |= gradient is not None and bool((gradient != 0).any())
        require(moved, "loss: no gradient in the outputs anywhere")

    def test_smaller_radius_smaller_set(
        self, made: Property, nets: list[Network], references: list[Reference]
    ) -> None:
        """Estimators infer along the radius, so a smaller one must ask about a subset."""
        for reference in references:
            half = Reference(reference.x, reference.label, reference.epsilon / 2).with_outputs(nets)
            outer, inner = made.query(nets, reference), made.query(nets, half)
            for small, large in zip(inner.problems, outer.problems, strict=False):
                require(small.domain.within(large.domain), f"no subset around {reference.x.tolist()}")


def evaluated(query: Query, count: int = 60) -> Iterator[tuple[Array, Array]]:
    """Points of all input regions, corners among them, as float32 would hold them; and their outputs."""
    for problem in query.problems:
        for x in sample(problem.domain, count).astype(np.float32):
            yield x.astype(np.float64), run_networks(query, x).astype(np.float64)


def points_of(query: Query, reference: Reference) -> Points:
    """The same as a batch."""
    xs, ys = zip(*evaluated(query, 20), strict=True)
    return Points.at(reference, np.stack(xs), np.stack(ys))
