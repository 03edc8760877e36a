"""A piecewise-linear graph in exact rational numbers: linear forms over inputs and ReLU outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy import sparse

from verifolio.errors import VerifolioError
from verifolio.graph import Constant, Graph, Relu
from verifolio.graph.graph import is_exact
from verifolio.graph.matrix import linear_part, offset
from verifolio.plugin.evidence import Bounds

Range = tuple[Fraction | None, Fraction | None]


class NotExact(VerifolioError):
    """The graph has no exact rational form."""


class Phase(Enum):
    """What is known about a ReLU."""

    OPEN = "open"
    ACTIVE = "active"
    INACTIVE = "inactive"


@dataclass(frozen=True)
class LinearForm:
    """constant + sum of coefficient * variable; variables 0 .. n-1 are the inputs, then come neurons."""

    terms: tuple[tuple[int, Fraction], ...]
    constant: Fraction = Fraction(0)


@dataclass(frozen=True)
class Neuron:
    """Variable `variable` is relu(form), or the form itself where ACTIVE; `reach` bounds the form."""

    variable: int
    form: LinearForm
    phase: Phase
    reach: Range


@dataclass(frozen=True)
class ExactNetwork:
    """Neurons in order of evaluation, and the outputs as forms over inputs and neurons."""

    inputs: int
    neurons: tuple[Neuron, ...]
    outputs: tuple[LinearForm, ...]

    @property
    def open_count(self) -> int:
        return sum(n.phase is Phase.OPEN for n in self.neurons)


def why_not_exact(graph: Graph) -> str | None:
    """Why the graph has no exact rational form, or None."""
    if not graph.piecewise_linear:
        smooth = sorted(o for o in graph.operators if o.islower() or o == "Product")
        return f"not piecewise linear: {', '.join(smooth)}"
    inexact = [n.name or type(n.op).__name__ for n in graph.nodes if not is_exact(n.op)]
    return f"weights known only up to an error: {', '.join(inexact[:3])}" if inexact else None


def exact_network(
    graph: Graph, ranges: Sequence[Range] = (), bounds: Bounds | None = None, fix: bool = True
) -> ExactNetwork:
    """Read the graph exactly; with `fix`, phases follow from the inputs' `ranges` and from `bounds`."""
    reason = why_not_exact(graph)
    if reason is not None:
        raise NotExact(reason)
    return _Reader(graph, ranges, bounds, fix).read()


class _Reader:
    def __init__(self, graph: Graph, ranges: Sequence[Range], bounds: Bounds | None, fix: bool) -> None:
        self.graph, self.bounds, self.fix = graph, bounds, fix
        self.reach: list[Range] = list(ranges) or [(None, None)] * graph.input_size
        self.neurons: list[Neuron] = []

    def read(self) -> ExactNetwork:
        inputs = self.graph.input_size
        values = [[LinearForm(((k, Fraction(1)),)) for k in range(inputs)]]
        for node in self.graph.nodes[1:]:
            parents = [values[p] for p in node.parents]
            if isinstance(node.op, Constant):
                values.append([LinearForm((), Fraction(v)) for v in node.op.value.tolist()])
            elif isinstance(node.op, Relu):
                values.append([self._relu(f, node.parents[0], k) for k, f in enumerate(parents[0])])
            else:
                matrices = linear_part(node.op, tuple(len(p) for p in parents))
                values.append(_affine(matrices, offset(node.op).tolist(), parents))
        return ExactNetwork(inputs, tuple(self.neurons), tuple(values[self.graph.output]))

    def _relu(self, form: LinearForm, node: int, k: int) -> LinearForm:
        low, high = self._range(form, node, k)
        if self.fix and high is not None and high <= 0:
            return LinearForm(())
        active = self.fix and low is not None and low >= 0
        if active and len(form.terms) <= 1:
            return form
        variable = len(self.reach)
        phase = Phase.ACTIVE if active else Phase.OPEN
        self.neurons.append(Neuron(variable, form, phase, (low, high)))
        floor = low if active else max(low or Fraction(0), Fraction(0))
        self.reach.append((floor, None if high is None else max(high, Fraction(0))))
        return LinearForm(((variable, Fraction(1)),))

    def _range(self, form: LinearForm, node: int, k: int) -> Range:
        low, high = self._side(form, 0), self._side(form, 1)
        if self.bounds is not None and node in self.bounds.lower and node in self.bounds.upper:
            known = float(self.bounds.lower[node][k]), float(self.bounds.upper[node][k])
            if np.isfinite(known[0]):
                low = Fraction(known[0]) if low is None else max(low, Fraction(known[0]))
            if np.isfinite(known[1]):
                high = Fraction(known[1]) if high is None else min(high, Fraction(known[1]))
        return low, high

    def _side(self, form: LinearForm, side: Literal[0, 1]) -> Fraction | None:
        """The least (side 0) or largest (side 1) value of a form over the ranges of its variables."""
        total = form.constant
        for variable, c in form.terms:
            end = self.reach[variable][side if c > 0 else 1 - side]
            if end is None:
                return None
            total += c * end
        return total


def _affine(
    matrices: Sequence[sparse.csr_array], bias: Sequence[float], parents: Sequence[list[LinearForm]]
) -> list[LinearForm]:
    found = []
    for i, b in enumerate(bias):
        constant, terms = Fraction(b), dict[int, Fraction]()
        for matrix, parent in zip(matrices, parents, strict=True):
            start, end = int(matrix.indptr[i]), int(matrix.indptr[i + 1])
            columns, values = matrix.indices[start:end].tolist(), matrix.data[start:end].tolist()
            for column, value in zip(columns, values, strict=True):
                w, form = Fraction(value), parent[column]
                if not form.constant and len(form.terms) == 1 and form.terms[0][1] == 1:
                    variable = form.terms[0][0]
                    terms[variable] = terms[variable] + w if variable in terms else w
                    continue
                constant += w * form.constant
                for variable, c in form.terms:
                    terms[variable] = terms.get(variable, Fraction(0)) + w * c
        found.append(LinearForm(tuple((v, c) for v, c in sorted(terms.items()) if c), constant))
    return found


def row_form(terms: Sequence[tuple[int, Fraction]], network: ExactNetwork) -> LinearForm:
    """A row over inputs and outputs as a form over inputs and neurons."""
    constant, total = Fraction(0), dict[int, Fraction]()
    for column, c in terms:
        mine = column < network.inputs
        form = LinearForm(((column, Fraction(1)),)) if mine else network.outputs[column - network.inputs]
        constant += c * form.constant
        for variable, value in form.terms:
            total[variable] = total.get(variable, Fraction(0)) + c * value
    return LinearForm(tuple((v, c) for v, c in sorted(total.items()) if c), constant)
