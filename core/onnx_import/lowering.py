"""The state of one import: the graph under construction, its limits, and the steps every operator shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from verifolio.graph.graph import Graph, GraphBuilder
from verifolio.graph.ops import (
    Concat,
    Constant,
    Dense,
    Elementwise,
    Index,
    Op,
    Product,
    Relu,
    Scale,
    Select,
    Sparse,
    Step,
    Sum,
    Whole,
)
from verifolio.onnx_import import exact
from verifolio.onnx_import.values import Known, Malformed, Shape, Value, View, known
from verifolio.run.memory import allowed_memory

FOLDINGS = 12  # roundings of a folded weight that `verifolio.graph.settle` allows for
# Bytes of memory that a number of a tensor costs on its way: its place in a view, its value at a few points in double
# precision, then in single precision an interval, two lines and rounding. An estimate; a look-alike of VGG16 imports
# with less.
BYTES_PER_NUMBER = 64
LARGEST = 4  # a single tensor may have this part of all numbers
_WEIGHTS = ("value", "weight", "bias", "error", "weight_error", "bias_error")


MORE = "more than the memory allows (--memory)"


def most_numbers() -> int:
    """How many numbers all tensors of a network may have together, by the memory that its import may use."""
    return allowed_memory() // BYTES_PER_NUMBER


class Lowering:
    """Emits graph nodes. Every tensor and matrix is charged to a budget before it is made."""

    def __init__(self, input_size: int) -> None:
        self.builder = GraphBuilder(input_size)
        self.most, self.spent = most_numbers(), 0
        self._selected: dict[tuple[int, bytes], int] = {}
        self._applied: dict[tuple[Any, ...], int] = {}
        # slices that variables begin: the least length cut by each, the last one, those that a node depends on
        self.sliced: dict[tuple[int, int], int] = {}
        self.begun: tuple[int, int] | None = None
        self.cut_by: frozenset[tuple[int, int]] = frozenset()
        self.cancelled = False  # some weight was folded from numbers that cancel in single precision

    def charge(self, shape: Shape | int) -> None:
        """Count a tensor about to be made; refuse bombs before they are allocated."""
        self.spent += self.check(shape)
        if self.spent > self.most:
            raise Malformed(f"a network of at most {self.most} numbers in all tensors together", MORE)

    def check(self, shape: Shape | int) -> int:
        """The size of a tensor, refused when it alone is too large."""
        size = shape if isinstance(shape, int) else math.prod(shape)
        if size > self.most // LARGEST:
            raise Malformed(f"tensors of at most {self.most // LARGEST} numbers", f"{size}, {MORE}")
        return size

    def size(self, node: int) -> int:
        return self.builder.nodes[node].op.size

    def op(self, node: int) -> Op:
        return self.builder.nodes[node].op

    def emit(self, op: Op, *parents: int) -> int:
        """Append a node whose numbers are all finite."""
        self.charge(op.size)
        for field in _WEIGHTS:
            numbers = getattr(op, field, None)
            if numbers is not None and not _finite(numbers):
                raise Malformed("finite weights", f"NaN or infinity in the {field} of {type(op).__name__}")
        return self.builder.add(op, *parents)

    def finish(self, outputs: Sequence[Value]) -> int:
        parts = [self.flat(self.promote(v)) for v in outputs]
        if len(parts) == 1:
            return parts[0]
        return self.emit(Concat(sum(self.size(p) for p in parts)), *parts)

    # views -----------------------------------------------------------------------------------------------

    def fresh(self, node: int, shape: Shape) -> View:
        """A whole node as a tensor."""
        return View(node, np.arange(self.size(node), dtype=np.int64).reshape(shape))

    def promote(self, value: Value) -> View:
        """Constants as a graph node, where they meet an operator that is not folded."""
        if isinstance(value, View):
            return value
        flat = value.reshaped((-1,))
        number = np.asarray(flat.value, np.float64)
        node = self.emit(Constant(flat.value.size, number, flat.error, flat.single))
        return self.fresh(node, value.shape)

    def flat(self, view: View) -> int:
        """The node whose value is the view, entry by entry; repeated requests share one node."""
        index = np.ascontiguousarray(view.index.ravel())
        key = (view.node, index.tobytes())
        if key not in self._selected:
            self._selected[key] = self.emit(Select(index.size, index), view.node)
        return self._selected[key]

    def is_permutation(self, view: View) -> bool:
        """Whether the view shows every entry of its node exactly once."""
        size = self.size(view.node)
        return view.size == size and bool(self._used(view).all())

    def _used(self, view: View) -> NDArray[np.bool_]:
        used = np.zeros(self.size(view.node) + 1, bool)
        used[view.index.ravel()] = True  # holes (-1) mark the spare last entry
        return used[:-1]

    def is_injective(self, view: View) -> bool:
        """Whether no entry of the node is shown twice."""
        return int(self._used(view).sum()) == int((view.index >= 0).sum())

    def aligned(self, views: Sequence[View]) -> tuple[list[int], Index]:
        """Nodes of equal layout for views of equal shape, and the index that shows the result's shape.

        The first view that merely permutes its node gives the layout, so that permutations stay implicit.
        """
        lead = next((v for v in views if self.is_permutation(v)), None)
        if lead is None:
            size, shape = views[0].size, views[0].shape
            return [self.flat(v) for v in views], np.arange(size, dtype=np.int64).reshape(shape)
        nodes = []
        for view in views:
            index = np.empty(view.size, np.int64)
            index[lead.index.ravel()] = view.index.ravel()
            nodes.append(self.flat(View(view.node, index)))
        return nodes, lead.index

    def common_shape(self, *values: Value) -> Shape:
        """The broadcast shape, checked before anything is made."""
        try:
            shape = np.broadcast_shapes(*(v.shape for v in values))
        except ValueError:
            raise Malformed("shapes that broadcast", " and ".join(str(v.shape) for v in values)) from None
        self.check(shape)
        return shape

    def broadcast(self, *views: View) -> list[View]:
        shape = self.common_shape(*views)
        return [View(v.node, np.broadcast_to(v.index, shape)) for v in views]

    # operators -------------------------------------------------------------------------------------------

    def pointwise(self, view: View, make: Callable[[int], Op], keeps_zero: bool = False) -> View:
        """Apply a scalar function once to each distinct entry that the view shows."""
        if not keeps_zero and bool((view.index < 0).any()):
            view = self.fresh(self.flat(view), view.shape)
        used = self._used(view)
        if used.all():
            return View(self._once(make(used.size), view.node), view.index)
        picks = np.flatnonzero(used)
        place = np.full(used.size + 1, -1, np.int64)
        place[picks] = np.arange(picks.size)
        chosen = self.flat(View(view.node, picks))
        return View(self._once(make(picks.size), chosen), place[view.index])

    def _once(self, op: Op, parent: int) -> int:
        """The same scalar function of the same node is one node."""
        table = (op.breakpoints, op.levels, op.at) if isinstance(op, Step) else ()
        rule = (op.rule, op.limits) if isinstance(op, Whole) else getattr(op, "parameter", 0.0)
        key = (
            parent,
            getattr(op, "function", type(op).__name__),
            rule,
            tuple(a.tobytes() for a in table),
        )
        if key not in self._applied:
            self._applied[key] = self.emit(op, parent)
        return self._applied[key]

    def relu(self, view: View) -> View:
        return self.pointwise(view, Relu, keeps_zero=True)

    def function(self, name: str, view: View, parameter: float = 0.0) -> View:
        return self.pointwise(view, lambda size: Elementwise(size, name, parameter))

    def step(
        self, view: View, breakpoints: Sequence[float], levels: Sequence[float], at: Sequence[float]
    ) -> View:
        """A step function of every entry, see `verifolio.graph.Step`."""
        points, values, met = (np.array(part, np.float64) for part in (breakpoints, levels, at))
        return self.pointwise(view, lambda size: Step(size, points, values, met))

    def whole(self, view: View, rule: str, limits: tuple[float, float] = (-np.inf, np.inf)) -> View:
        """Every entry rounded to a whole number."""
        return self.pointwise(view, lambda size: Whole(size, rule, limits))

    def scale(self, view: View, weight: Known | None = None, bias: Known | None = None) -> View:
        """weight * view + bias with constants, broadcast together; without either, the view itself."""
        parts = [p for p in (weight, bias) if p is not None]
        shape = self.common_shape(view, *parts)
        view = View(view.node, np.broadcast_to(view.index, shape))
        if (weight is None or _all_equal(weight, 1.0)) and (bias is None or _all_equal(bias, 0.0)):
            return view
        if not self.is_permutation(view):
            view = self.fresh(self.flat(view), shape)
        order = view.index.ravel()

        def placed(numbers: NDArray[Any]) -> NDArray[np.float64]:
            out = np.empty(order.size)
            out[order] = np.broadcast_to(numbers, shape).ravel()
            return out

        one, zero = known(1.0), known(0.0)
        w, b = weight or one, bias or zero
        op = Scale(
            order.size,
            bias=placed(b.value),
            weight=placed(w.value),
            weight_error=None if w.error is None else placed(w.error),
            bias_error=None if b.error is None else placed(b.error),
            bias_single=None if b.single is None else placed(b.single),
            folded=self.weigh(w),
        )
        return View(self.emit(op, view.node), view.index)

    def weigh(self, *numbers: Known) -> bool:
        """Whether single precision rounded numbers that become weights; a few roundings at most, which is noted."""
        off = [k for k in numbers if k.single is not None and bool(k.single.any())]
        for k in off:
            self.cancelled |= bool((_single(k) > FOLDINGS * exact.SINGLE * np.abs(k.value)).any())
        return bool(off)

    def expect_stored(self, number: Known) -> None:
        """Note whether single precision rounded a number that an operator uses otherwise than as a weight."""
        self.cancelled |= number.single is not None and bool(number.single.any())

    def sum(self, coefficients: tuple[float, ...], *views: View) -> View:
        """An integer combination of views of broadcastable shapes."""
        views_ = self.broadcast(*views)
        lead = views_[0]
        if any(v.node != lead.node for v in views_) or len(views_) == 1:
            nodes, index = self.aligned(views_)
            return View(self.emit(Sum(index.size, coefficients), *nodes), index)
        rows = np.broadcast_to(np.arange(lead.size).reshape(lead.shape), lead.shape)
        index = np.stack([v.index for v in views_])
        weight = np.stack([np.full(lead.shape, c) for c in coefficients])
        stacked = View(lead.node, index)
        return self.gather_sum(stacked, np.stack([rows] * len(views_)), known(weight), lead.shape)

    def gather_sum(self, view: View, rows: NDArray[Any], weight: Known, shape: Shape) -> View:
        """y[rows[i]] += weight[i] * view[i] for all i, as one sparse matrix.

        Pairs that occur twice are only merged where their weights are small integers, which add exactly.
        """
        size = math.prod(shape)
        self.charge(view.size)
        folded = self.weigh(weight)
        matrix = self._matrix(view, rows, weight.value, size)
        small = weight.error is None and _small_integers(weight.value)
        if matrix.nnz < int((view.index >= 0).sum()) and not small:
            view = self.fresh(self.flat(view), view.shape)
            matrix = self._matrix(view, rows, weight.value, size)
        error = None if weight.error is None else self._matrix(view, rows, weight.error, size)
        op = Sparse(size, bias=np.zeros(size), weight=matrix, weight_error=error, folded=folded)
        return self.fresh(self.emit(op, view.node), shape)

    def _matrix(self, view: View, rows: NDArray[Any], weight: NDArray[Any], outputs: int) -> sparse.csr_array:
        index = view.index.ravel()
        keep = index >= 0
        data = np.broadcast_to(weight, view.shape).ravel()[keep]
        entries = (data, (rows.ravel()[keep], index[keep]))
        return sparse.csr_array(sparse.coo_array(entries, shape=(outputs, self.size(view.node))))

    def product(self, a: View, b: View) -> View:
        a, b = self.broadcast(a, b)
        if a.node == b.node and np.array_equal(a.index, b.index):
            return self.function("pow", a, 2.0)
        nodes, index = self.aligned((a, b))
        return View(self.emit(Product(index.size), *nodes), index)

    def maximum(self, a: View, b: View) -> View:
        """max(a, b) = a + relu(b - a)."""
        return self.sum((1.0, 1.0), a, self.relu(self.sum((1.0, -1.0), b, a)))

    def limit(self, view: View, bound: Known, sign: float) -> View:
        """max(x, c) for sign 1, min(x, c) for sign -1.

        c + relu(x - c) shows in interval bounds that the result is at least c; but for a huge c it would
        cancel in floating point, and x + relu(c - x) does not. Likewise for the minimum.
        """
        moderate = bool((np.abs(bound.value) <= 2.0**20).all())
        if sign > 0:
            if moderate:
                return self.add_constant(self.relu(self.add_constant(view, exact.negate(bound))), bound)
            return self.sum((1.0, 1.0), view, self.relu(self.subtract_from(bound, view)))
        if moderate:
            return self.subtract_from(bound, self.relu(self.subtract_from(bound, view)))
        return self.sum((1.0, -1.0), view, self.relu(self.add_constant(view, exact.negate(bound))))

    def dense(self, view: View, weight: Known, bias: Known | None = None) -> View:
        """weight @ view + bias for a flat view; a view that loses little is folded into the columns."""
        folded = self.weigh(weight, *(() if bias is None else (bias,)))
        outputs = weight.shape[0]
        numbers, error, node = weight.value, weight.error, view.node
        index, size = view.index.ravel(), self.size(view.node)
        if not (self.is_injective(view) and 2 * index.size >= size):
            node = self.flat(view)
        elif not (index.size == size and np.array_equal(index, np.arange(size))):
            keep = index >= 0
            numbers = _columns(numbers, index, keep, size)
            error = None if error is None else _columns(error, index, keep, size)
        offset = known(np.zeros(outputs)) if bias is None else bias.broadcast((outputs,))
        op = Dense(
            outputs,
            bias=np.ascontiguousarray(offset.value),
            weight=np.ascontiguousarray(numbers),
            weight_error=None if error is None else np.ascontiguousarray(error),
            bias_error=None if offset.error is None else np.ascontiguousarray(offset.error),
            folded=folded,
        )
        return self.fresh(self.emit(op, node), (outputs,))

    def add_constant(self, view: View, bias: Known) -> View:
        return self.scale(view, None, bias)

    def times(self, view: View, factor: float) -> View:
        """A float64 factor that is meant exactly."""
        return self.scale(view, known(factor))

    def subtract_from(self, number: Known, view: View) -> View:
        """number - view."""
        return self.scale(view, known(-1.0), number)

    def reciprocal(self, view: View) -> View:
        return self.function("reciprocal", view)

    def build(self, outputs: Sequence[Value]) -> tuple[Graph, dict[int, int]]:
        """The graph, and where the nodes made so far stand in it."""
        last = self.finish(outputs)
        return self.builder.finish(last), self.builder.places(last)


def _columns(numbers: NDArray[Any], index: Index, keep: NDArray[np.bool_], size: int) -> NDArray[Any]:
    out = np.zeros((numbers.shape[0], size))
    out[:, index[keep]] = numbers[:, keep]
    return out


def _all_equal(k: Known, number: float) -> bool:
    same = k.error is None and (k.single is None or not k.single.any())
    return same and bool((k.value == number).all())


def _single(k: Known) -> NDArray[np.float64]:
    return np.zeros(k.shape) if k.single is None else k.single


def _small_integers(numbers: NDArray[Any]) -> bool:
    return bool(((np.abs(numbers) <= 2) & (numbers == np.rint(numbers))).all())


def _finite(numbers: Any) -> bool:
    data = numbers.data if isinstance(numbers, sparse.csr_array) else numbers
    return bool(np.isfinite(data).all())


def as_float(value: Known) -> Known:
    """Constants that enter the graph are float64."""
    return Known(np.asarray(value.value, np.float64), value.error, value.wide, value.single)


def exact_inverse(count: int) -> Known:
    """1 / count with its rounding error."""
    return exact.divide(known(1.0), known(float(count)))
