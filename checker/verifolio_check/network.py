"""Networks as a list of nodes: the input, affine maps of earlier nodes, and ReLUs or sigmoids of one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

import numpy as np

from verifolio_check.curves import RELU
from verifolio_check.integers import Floats, Ints, Linear, Unreadable, around

MOST_NODES, MOST_VALUES, MOST_ENTRIES = 10_000, 1 << 24, 1 << 28


@dataclass
class Node:
    """The input (no terms, no parent), a sum of linear maps plus a bias in an interval, or a function of `parent`."""

    size: int
    terms: list[tuple[int, Linear]] = field(default_factory=list)
    bias: Floats | None = None  # ends (2, size)
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

    def like(self, shape: tuple[int, ...]) -> Ints:
        """The places, broadcast."""
        if prod(shape) > MOST_ENTRIES:
            raise Unreadable("network: a tensor or a map that is too large")
        return np.broadcast_to(self.places, shape)


def exactly(value: Floats) -> Floats:
    """Ends of intervals that are single numbers."""
    return np.stack([value, value])


def enclose(values: list[tuple[Fraction, ...]], shape: tuple[int, ...]) -> Floats:
    """Ends around intervals of rationals."""
    ends = [(around(low)[0], around(high)[1]) for low, high in values]
    return np.array(ends).T.reshape(2, *shape)


class Network:
    """The nodes, which grow while a file is read; `output` is one of them, `curves` are the functions, in order.

    `sizes` are those of the outputs of the files that it was read from. Constants are ends of intervals.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.nodes: list[Node] = []
        self.curves: list[int] = []
        self.count, self.sizes, self.output = 0, list[int](), 0
        self.input = self.new(Node(prod(shape)), shape)

    def input_of(self, curve: int) -> int:
        """The node that holds the arguments of a function, by its number."""
        if curve >= len(self.curves):
            raise Unreadable(f"certificate: the network has no function {curve}")
        return self.nodes[self.curves[curve]].parent

    def new(self, node: Node, shape: tuple[int, ...]) -> Ref:
        self.nodes.append(node)
        self.count += node.size
        if self.count > MOST_VALUES or len(self.nodes) > MOST_NODES or not 0 < node.size == prod(shape):
            raise Unreadable("network: too many nodes or values, or shapes that do not fit")
        return Ref(len(self.nodes) - 1, np.arange(node.size).reshape(shape))

    def whole(self, ref: Ref) -> bool:
        """Whether a tensor is all of its node, in order."""
        return np.array_equal(ref.places.ravel(), np.arange(self.nodes[ref.node].size))

    def term(self, ref: Ref, ends: Floats, index: Ints) -> tuple[int, Linear]:
        """Outputs of functions are not negative, so what their weights lack costs nothing: few bits suffice."""
        node = self.nodes[ref.node]
        return ref.node, Linear(ends, node.size, index, not node.function)

    def linear(self, ref: Ref, ends: Floats, index: Ints, shape: tuple[int, ...]) -> Ref:
        """See `Linear`."""
        term = self.term(ref, ends, index)
        return self.new(Node(term[1].outputs, [term]), shape)

    def total(self, parts: list[tuple[Ref, int]], bias: Floats | None = None) -> Ref:
        """The sum of tensors times signs, and of a constant, broadcast."""
        shape = np.broadcast_shapes(*(p.shape for p, _ in parts), *([] if bias is None else [bias.shape[1:]]))
        places = [ref.like(shape) for ref, _ in parts]
        node, (first, sign), last = Node(prod(shape)), parts[0], self.nodes[-1]
        if bias is not None:
            node.bias = np.stack([np.broadcast_to(e, shape).ravel() for e in bias])
        alone = len(parts) == 1 and sign > 0 and first.node == len(self.nodes) - 1 and self.whole(first)
        if alone and last.terms and last.bias is None and last.size == node.size:
            node.terms = last.terms  # the same map with a bias; whoever reads the tensor without it still can
            return self.new(node, shape)
        for (ref, sign), p in zip(parts, places, strict=True):
            node.terms.append(self.term(ref, np.full((2, 1, 1, 1), float(sign)), p.reshape(1, -1, 1)))
        return self.new(node, shape)

    def scale(self, ref: Ref, factor: Floats) -> Ref:
        """A tensor times constants, which are the same for as many neighbours as possible."""
        shape = np.broadcast_shapes(ref.shape, factor.shape[1:])
        index, each = ref.like(shape), prod(shape) // factor[0].size
        flat = np.stack([np.broadcast_to(e, shape).ravel() for e in factor])
        if (np.repeat(factor.reshape(2, -1), each, 1) != flat).any():
            each = 1
        weights = flat[:, ::each].reshape(2, -1, 1, 1)
        return self.linear(ref, weights, index.reshape(-1, each, 1), shape)

    def product(self, ref: Ref, matrix: Floats) -> Ref:
        """A tensor times a matrix (entries, channels), along its last axis."""
        _, entries, channels = matrix.shape
        if ref.shape[-1] != entries:
            raise Unreadable("network: a product of anything but a tensor and a matrix that fits")
        index = ref.places.reshape(1, -1, entries)
        out = self.linear(ref, matrix[:, None], index, (channels, index.shape[1]))
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
