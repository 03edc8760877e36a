"""Networks as a list of nodes: the input, affine maps of earlier nodes, and ReLUs or sigmoids of one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

import numpy as np

from verifolio_check.curves import RELU
from verifolio_check.integers import Floats, Ints, Unreadable, around
from verifolio_check.linear import Linear

MOST_NODES, MOST_VALUES, MOST_ENTRIES = 10_000, 1 << 24, 1 << 28


@dataclass
class Node:
    """The input (no terms, no parent), a sum of linear maps plus a bias in [low, high], or a function of `parent`."""

    size: int
    terms: list[tuple[int, Linear]] = field(default_factory=list)
    low: Floats | None = None
    high: Floats | None = None
    parent: int = -1
    function: str = ""


@dataclass(frozen=True)
class Ref:
    """A tensor that is computed: which values of a node it has where (-1: zero)."""

    node: int
    places: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        return self.places.shape


def limit_size(shape: tuple[int, ...]) -> None:
    if prod(shape) > MOST_ENTRIES:
        raise Unreadable("network: a tensor or a map that is too large")


def enclose(values: list[tuple[Fraction, ...]], shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Doubles around intervals of rationals."""
    ends = [(around(low)[0], around(high)[1]) for low, high in values]
    low, high = (np.array([e[k] for e in ends]).reshape(shape) for k in (0, 1))
    return low, high


class Network:
    """The nodes, which grow while a file is read; `output` is one of them, `curves` are the functions, in order.

    `sizes` are those of the outputs of the files that it was read from.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.nodes: list[Node] = []
        self.curves: list[int] = []
        self.count, self.sizes = 0, list[int]()
        self.input = self.new(Node(prod(shape)), shape)
        self.output = 0

    def input_of(self, curve: int) -> int:
        """The node that holds the arguments of a function, by its number."""
        if curve >= len(self.curves):
            raise Unreadable(f"certificate: the network has no function {curve}")
        return self.nodes[self.curves[curve]].parent

    def new(self, node: Node, shape: tuple[int, ...]) -> Ref:
        self.nodes.append(node)
        self.count += node.size
        if (
            self.count > MOST_VALUES
            or len(self.nodes) > MOST_NODES
            or node.size < 1
            or node.size != prod(shape)
        ):
            raise Unreadable("network: too many nodes or values, or shapes that do not fit")
        return Ref(len(self.nodes) - 1, np.arange(node.size).reshape(shape))

    def map_of(self, ref: Ref, low: Floats, high: Floats, index: Ints) -> Linear:
        """Outputs of functions are not negative, so what their weights lack costs nothing: few bits suffice."""
        node = self.nodes[ref.node]
        return Linear(low, high, node.size, index, not node.function)

    def linear(self, ref: Ref, low: Floats, high: Floats, index: Ints, shape: tuple[int, ...]) -> Ref:
        """See `Linear`."""
        limit_size(index.shape)
        linear = self.map_of(ref, low, high, index)
        return self.new(Node(linear.outputs, [(ref.node, linear)]), shape)

    def total(
        self, parts: list[tuple[Ref, int]], low: Floats | None = None, high: Floats | None = None
    ) -> Ref:
        """The sum of tensors times signs, and of a constant between low and high, broadcast."""
        shape = np.broadcast_shapes(*(p.shape for p, _ in parts), *([] if low is None else [low.shape]))
        limit_size(shape)
        node, first, last = Node(prod(shape)), parts[0][0], self.nodes[-1]
        if low is not None:
            node.low, node.high = (
                np.broadcast_to(e, shape).ravel() for e in (low, low if high is None else high)
            )
        alone = (
            len(parts) == 1 and parts[0][1] > 0 and first.node == len(self.nodes) - 1 and self.whole(first)
        )
        if alone and last.terms and last.low is None and last.size == node.size:
            node.terms = last.terms  # the same map with a bias; whoever reads the tensor without it still can
            return self.new(node, shape)
        for ref, sign in parts:
            one, index = np.full((1, 1, 1), float(sign)), np.broadcast_to(ref.places, shape).reshape(1, -1, 1)
            node.terms.append((ref.node, self.map_of(ref, one, one, index)))
        return self.new(node, shape)

    def whole(self, ref: Ref) -> bool:
        """Whether a tensor is all of its node, in order."""
        size = self.nodes[ref.node].size
        return ref.places.size == size and bool((ref.places.ravel() == np.arange(size)).all())

    def scale(self, ref: Ref, low: Floats, high: Floats) -> Ref:
        """A tensor times constants, which are the same for as many neighbours as possible."""
        shape = np.broadcast_shapes(ref.shape, low.shape)
        limit_size(shape)
        whole, groups = [np.broadcast_to(e, shape).ravel() for e in (low, high)], low.size
        each = prod(shape) // max(groups, 1)
        if any((np.repeat(e.ravel(), each) != w).any() for e, w in zip((low, high), whole, strict=True)):
            groups, each = prod(shape), 1
        index = np.broadcast_to(ref.places, shape).reshape(groups, each, 1)
        ends = [w[::each].reshape(groups, 1, 1) for w in whole]
        return self.linear(ref, ends[0], ends[1], index, shape)

    def product(self, ref: Ref, low: Floats, high: Floats) -> Ref:
        """A tensor times a matrix (entries, channels), along its last axis."""
        if low.ndim != 2 or ref.shape[-1] != low.shape[0]:
            raise Unreadable("network: a product of anything but a tensor and a matrix that fits")
        index, channels = ref.places.reshape(1, -1, low.shape[0]), low.shape[1]
        out = self.linear(ref, low[None], high[None], index, (channels, index.shape[1]))
        return Ref(out.node, out.places.T.reshape(*ref.shape[:-1], channels))

    def curve(self, ref: Ref, function: str = RELU) -> Ref:
        """A function of every value."""
        ref = ref if self.whole(ref) else self.total([(ref, 1)])
        self.curves.append(len(self.nodes))
        return self.new(Node(ref.places.size, parent=ref.node, function=function), ref.shape)

    def largest(self, refs: list[Ref]) -> Ref:
        """The entrywise maximum: max(a, b) = b + relu(a - b)."""
        while len(refs) > 1:
            pairs = [*zip(refs[::2], refs[1::2], strict=False)]
            over = [self.curve(self.total([(a, 1), (b, -1)])) for a, b in pairs]
            best = [self.total([(r, 1), (b, 1)]) for r, (_, b) in zip(over, pairs, strict=True)]
            refs = best + refs[2 * len(pairs) :]
        return refs[0]
