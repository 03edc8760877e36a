"""Runs Marabou on a tableau file in a process of its own, because nothing else can stop it.

python -m verifolio.plugins.marabou.solve TABLEAU.npz ANSWER.json SECONDS THREADS SPLIT TIGHTEN
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(arguments: list[str]) -> None:
    """Read, solve, write the verdict and the values of the inputs."""
    tableau, answer, seconds, threads, split, tighten = arguments
    from maraboupy import MarabouCore as Core

    with np.load(tableau, allow_pickle=False) as arrays:
        query, inputs = make_query(dict(arrays), Core)
    options = Core.Options()
    options._verbosity = 0
    options._timeoutInSeconds = int(seconds)
    options._numBlasThreads = int(threads)
    options._splittingStrategy = split
    options._tighteningStrategy = tighten
    said, values, _ = Core.solve(query, options, "")
    point = [values[k] for k in range(inputs)] if values else []
    Path(answer).write_text(json.dumps({"verdict": str(said).lower(), "point": point}))


def make_query(a: dict[str, Any], core: Any) -> tuple[Any, int]:
    """Marabou's input query from arrays, and how many inputs it has."""
    inputs, count = int(a["inputs"]), len(a["lower"])
    query = core.InputQuery()
    query.setNumberOfVariables(count)
    for k in np.flatnonzero(np.isfinite(a["lower"])).tolist():
        query.setLowerBound(k, float(a["lower"][k]))
    for k in np.flatnonzero(np.isfinite(a["upper"])).tolist():
        query.setUpperBound(k, float(a["upper"][k]))
    for k in range(inputs):
        query.markInputVariable(k, k)
    for place, k in enumerate(a["outputs"].tolist()):
        query.markOutputVariable(k, place)
    kinds = {0: core.Equation.EQ, 1: core.Equation.LE}
    for r, kind in enumerate(a["kinds"].tolist()):
        equation = core.Equation(kinds[kind])
        for e in range(int(a["indptr"][r]), int(a["indptr"][r + 1])):
            equation.addAddend(float(a["data"][e]), int(a["indices"][e]))
        equation.setScalar(float(a["scalars"][r]))
        query.addEquation(equation)
    for before, after in a["relus"].tolist():
        core.addReluConstraint(query, before, after)
    return query, inputs


if __name__ == "__main__":
    main(sys.argv[1:])
