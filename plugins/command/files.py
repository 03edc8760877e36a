"""A problem as the files an external tool reads, and its counterexample back from text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.model.problem import Problem
from verifolio.model.query import Query
from verifolio.vnnlib import box_case, specification_from_cases, write

Array = NDArray[np.float64]
PAIR = re.compile(r"\(\s*X_(\d{1,12})\s+([^\s()]+)\s*\)")
TENSOR = re.compile(r"^(\S+)\s+(\S+)\s+\[[0-9,\s]*\]$")
MAX_ANSWER = 50_000_000  # bytes: a counterexample of a million numbers, written out


def write_files(problem: Problem, query: Query | None, folder: Path) -> tuple[Path, Path]:
    """The network and the property in a folder; what was asked is passed on untouched where possible."""
    onnx, vnnlib = folder / "network.onnx", folder / "property.vnnlib"
    native = query is not None and len(query.networks) == 1 and query.graph.sha256 == problem.graph.sha256
    if query is not None and query.specification.monomials:
        native = False  # the property's products are outputs of the problem's graph, not of the file
    if query is not None and native:
        onnx.write_bytes(query.networks[0].model())
    else:
        from verifolio.encode.onnx_writer import write_onnx

        write_onnx(problem.graph, onnx)
    vnnlib.write_text(_property(problem, query if native else None), encoding="utf-8")
    return onnx, vnnlib


def _property(problem: Problem, query: Query | None) -> str:
    """The user's own decimals where the problem is all of the query, else the problem's doubles."""
    if problem.domain.ball is not None:
        raise InputError("property", "a box with linear rows", "a ball, which VNN-LIB cannot express")
    if query is not None and len(query.specification.cases) == 1:
        asked = query.specification  # several tensors are one in version 1.0, in the network's order
        inputs, outputs = asked.input_size, asked.output_size
        return write(specification_from_cases(asked.cases, input_size=inputs, output_size=outputs))
    domain = problem.domain
    case = box_case(domain.lower, domain.upper, problem.disjuncts, domain.rows)
    return write(specification_from_cases([case], output_size=problem.graph.output_size))


def read_point(text: str, size: int) -> Array | None:
    """The inputs of a counterexample in the form of VNN-COMP, or None if they are not all there."""
    values = np.full(size, np.nan)
    for index, number in PAIR.findall(text):
        if int(index) < size:
            values[int(index)] = _number(number)
    if np.isnan(values).all():
        values = _tensor_values(text, size)
    return values if np.isfinite(values).all() else None


def _tensor_values(text: str, size: int) -> Array:
    """The first `size` numbers under the first header of VNN-LIB 2.0's form."""
    values = np.full(size, np.nan)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((k for k, line in enumerate(lines) if TENSOR.fullmatch(line)), None)
    if start is not None:
        for k, line in enumerate(lines[start + 1 : start + 1 + size]):
            values[k] = _number(line)
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def read_text(path: Path) -> str:
    """A file's text, as much as is reasonable, whatever bytes it has; empty if there is none."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_ANSWER).decode(errors="replace")
    except OSError:
        return ""
