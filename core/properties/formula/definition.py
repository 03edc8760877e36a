"""Properties that are one formula: query, truth and loss follow from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Growth, Points, Property, Reference, build_query, check_networks
from verifolio.properties.formula.terms import EPSILON, Y0, Formula, mentions, negate

if TYPE_CHECKING:
    from torch import Tensor

    from verifolio.vnnlib import Rows


class FormulaProperty(Property):
    """Subclasses give the formula that must hold at every point of the ball."""

    growth_reason = "its formula mentions epsilon, so it may hold at a radius and fail at a smaller one"

    @property
    def growth(self) -> Growth:  # type: ignore[override]
        """The same condition at every radius, unless the formula mentions the radius."""
        return Growth.OTHER if mentions(self.formula(), EPSILON) else Growth.FIXED

    @abstractmethod
    def formula(self) -> Formula:
        """What must hold, over x, y, x0, y0, epsilon and the label."""

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        return self.query_for(networks, reference, self.formula())

    def query_for(self, networks: Sequence[Network], reference: Reference, formula: Formula) -> Query:
        """The query whose counterexamples violate this formula around the reference."""
        check_networks(self, networks)
        if mentions(formula, Y0):
            reference = reference.with_outputs(networks)
        return build_query(self, networks, reference, self.rows(networks, reference, negate(formula)))

    def rows(self, networks: Sequence[Network], reference: Reference, formula: Formula) -> list[Rows]:
        """A formula as a disjunction of rows."""
        from verifolio.properties.formula.rows import Binding, disjuncts_of

        x0 = np.asarray(reference.x, np.float64).ravel()
        y0 = np.zeros(0) if reference.outputs is None else reference.outputs
        sizes = tuple(n.output_size for n in networks)
        where = f"property {self.name}"
        binding = Binding(x0, y0, reference.label, reference.epsilon, len(x0), sizes, where)
        return disjuncts_of(formula, binding)

    def satisfied(self, points: Points) -> Tensor:
        from verifolio.properties.formula.evaluate import truth

        return truth(self.formula(), points)

    def loss(self, points: Points) -> Tensor:
        from verifolio.properties.formula.evaluate import loss

        return loss(self.formula(), points)

    def violation(self, points: Points) -> Tensor:
        from verifolio.properties.formula.evaluate import loss

        formula = self.formula()
        return loss(negate(formula), points) - loss(formula, points)
