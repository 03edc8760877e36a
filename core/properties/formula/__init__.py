"""Formulas over inputs and outputs: one text gives the query, the loss and the truth at a point."""

from verifolio.properties.formula.definition import FormulaProperty
from verifolio.properties.formula.parse import parse_formula
from verifolio.properties.formula.terms import (
    EPSILON,
    X0,
    Y0,
    Y1,
    Y2,
    Formula,
    Term,
    X,
    Y,
    equal,
    largest,
    negate,
    norm,
    smallest,
    some,
    term,
)

__all__ = [
    "EPSILON",
    "X0",
    "Y0",
    "Y1",
    "Y2",
    "Formula",
    "FormulaProperty",
    "Term",
    "X",
    "Y",
    "equal",
    "largest",
    "negate",
    "norm",
    "parse_formula",
    "smallest",
    "some",
    "term",
]
