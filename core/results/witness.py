"""The witness of a query as people read it: inputs and their ranges, outputs, and the row that holds."""

from __future__ import annotations

import numpy as np

from verifolio.model.answer import Witness
from verifolio.model.counterexample import element_names
from verifolio.model.query import Query
from verifolio.vnnlib.rows import LinearRow

MOST_INPUTS, MOST_OUTPUTS, MOST_ROWS = 10, 10, 4  # lines of each that fit a screen; the rest is counted


def witness_lines(query: Query, witness: Witness) -> list[str]:
    """What a person wants to see of it; `--counterexample FILE` has all digits."""
    names = element_names(query)
    size = len(witness.x)
    check = query.specification.check(witness.x, witness.y, ulp=True)
    case = query.specification.cases[check.case or 0]
    lines = []
    moving = [k for k in range(size) if case.lower[k] != case.upper[k]]
    width = max((len(names[k]) for k in moving[:MOST_INPUTS]), default=0)
    for k in moving[:MOST_INPUTS]:
        lines.append(
            f"  {names[k]:{width}} = {witness.x[k]:.6g}  in {case.lower[k]:.6g} to {case.upper[k]:.6g}"
        )
    lines += _rest(len(moving), MOST_INPUTS, "inputs that vary")
    shown = [f"{names[size + k]} = {y:.6g}" for k, y in enumerate(witness.y[:MOST_OUTPUTS])]
    more = ", ..." if len(witness.y) > MOST_OUTPUTS else ""
    lines.append(f"  outputs: {', '.join(shown)}{more}")
    values = np.concatenate([witness.x.astype(np.float64), witness.y.astype(np.float64)])
    for disjunct in case.disjuncts:
        rows = disjunct.linear_rows()
        if rows and all(_value(row, values) <= float(row.rhs) for row in rows):
            lines += [f"  so {_text(row, names)}" for row in rows[:MOST_ROWS]]
            return lines + _rest(len(rows), MOST_ROWS, "rows")
    return lines


def _rest(count: int, shown: int, what: str) -> list[str]:
    return [f"  and {count - shown} more {what}"] if count > shown else []


def _value(row: LinearRow, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(sum(float(c) * values[k] for k, c in row.terms))


def _text(row: LinearRow, names: list[str]) -> str:
    """A row as a comparison without minus signs where two values are compared."""
    sign = "<" if row.strict else "<="
    if len(row.terms) == 2 and row.rhs == 0 and sorted(c for _, c in row.terms) == [-1, 1]:
        small = next(names[k] for k, c in row.terms if c == 1)
        large = next(names[k] for k, c in row.terms if c == -1)
        return f"{large} {'>' if row.strict else '>='} {small}"
    sides = " + ".join(names[k] if c == 1 else f"{float(c):g} {names[k]}" for k, c in row.terms)
    return f"{sides} {sign} {float(row.rhs):g}"
