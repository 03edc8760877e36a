"""The same specification over columns in another order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verifolio.vnnlib.case import Case, case_of_exact
from verifolio.vnnlib.exact import exact_numbers
from verifolio.vnnlib.rows import Rows
from verifolio.vnnlib.specification import Specification
from verifolio.vnnlib.symbols import NetworkDeclaration, Tensor

Columns = NDArray[np.int64]


def arrange(specification: Specification, networks: tuple[NetworkDeclaration, ...]) -> Specification:
    """The specification with its tensors at the offsets that `networks` gives them."""
    size = specification.input_size
    inputs = _moves(_tensors(specification.networks)[0], _tensors(networks)[0], size)
    outputs = _moves(_tensors(specification.networks)[1], _tensors(networks)[1], specification.output_size)
    columns = np.concatenate([inputs, size + outputs])
    if np.array_equal(columns, np.arange(len(columns))):
        return specification
    order = np.argsort(inputs)
    monomials = tuple(tuple(sorted(columns[list(one)].tolist())) for one in specification.monomials)
    columns = np.concatenate([columns, len(columns) + np.arange(len(monomials))])
    cases = tuple(_moved_case(case, order, columns) for case in specification.cases)
    return replace(specification, cases=cases, networks=networks, monomials=monomials)


def _tensors(networks: tuple[NetworkDeclaration, ...]) -> tuple[list[Tensor], list[Tensor]]:
    return [t for n in networks for t in n.inputs], [t for n in networks for t in n.results]


def _moves(old: list[Tensor], new: list[Tensor], size: int) -> Columns:
    """Where each element goes."""
    target = np.empty(size, np.int64)
    for before, after in zip(old, new, strict=True):
        here = slice(before.offset, before.offset + before.size)
        target[here] = np.arange(after.offset, after.offset + before.size)
    return target


def _moved_case(case: Case, order: Columns, columns: Columns) -> Case:
    lower, upper = (exact_numbers(e).pick(order) for e in (case.exact_lower, case.exact_upper))
    disjuncts = tuple(_moved_rows(rows, columns) for rows in case.disjuncts)
    return case_of_exact(lower, upper, _moved_rows(case.input_rows, columns), disjuncts)


def _moved_rows(rows: Rows, columns: Columns) -> Rows:
    """Rows stay sorted by row, then column."""
    column = columns[rows.column]
    order = np.lexsort((column, rows.row))
    arrays = (rows.row[order], column[order], rows.coefficient[order])
    for array in arrays:
        array.setflags(write=False)
    row, column, coefficient = arrays
    return replace(rows, row=row, column=column, coefficient=coefficient)
