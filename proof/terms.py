"""A network and a property in the terms of the proved checker: nodes with exact weights, rows with exact fractions.

    python proof/terms.py NETWORK PROPERTY > TERMS

The readers of `verifolio_check` do the reading; convolutions are unrolled into matrices here. The theorem speaks of
what stands in the file, so both are trusted. The units of rounded weights, of inputs and of rows are choices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from verifolio_check.bounds import INPUT_BITS
from verifolio_check.curves import RELU
from verifolio_check.files import load
from verifolio_check.integers import Floats, Linear, Unreadable
from verifolio_check.network import Network, Node
from verifolio_check.vnnlib import Region, Row

MOST_ENTRIES = 1 << 24  # of an unrolled matrix: the proved checker keeps every entry
DOUBLE = 53  # bits of a double's mantissa


def exact(*values: Floats) -> tuple[list[Any], int]:
    """Arrays of doubles as integers (of any size) in units of 2^-exponent, the same for all of them."""
    parts = [np.frexp(v) for v in values]
    wholes = [np.ldexp(m, DOUBLE).astype(np.int64) for m, _ in parts]
    used = [int((DOUBLE - e[w != 0]).max(initial=-DOUBLE)) for w, (_, e) in zip(wholes, parts, strict=True)]
    exponent = max(used)
    shifted = []
    for whole, (_, e) in zip(wholes, parts, strict=True):
        moves = np.maximum(e.astype(np.int64) - DOUBLE + exponent, 0)
        shifted.append(whole.astype(object) << moves.astype(object) if moves.any() else whole.astype(object))
    return shifted, exponent


def unrolled(linear: Linear, ends: Iterable[Any]) -> list[Any]:
    """Matrices (outputs, inputs) of a map by patches; an input that is read twice gets the sum of its weights."""
    groups, channels, patches = linear.shape
    if linear.outputs * linear.inputs > MOST_ENTRIES:
        raise Unreadable(f"network: a map of more than {MOST_ENTRIES} entries")
    found = []
    for weight in ends:
        matrix = np.zeros((groups, channels, patches, linear.inputs + 1), object)
        for g in range(groups):
            for p in range(patches):
                for k, i in enumerate(linear.index[g, p].tolist()):
                    matrix[g, :, p, i] += weight[g, k]  # -1, nothing, is the last column
        found.append(matrix[..., : linear.inputs].reshape(linear.outputs, linear.inputs))
    return found


def term_words(parent: int, linear: Linear) -> Iterable[object]:
    low, high = linear.ends
    same = bool((low == high).all())
    whole, exponent = exact(low) if same else exact(low, high)
    yield from (parent, exponent, linear.exponent, linear.outputs, linear.inputs, int(same))
    for matrix in unrolled(linear, whole):
        yield from matrix.ravel().tolist()


def node_words(node: Node) -> Iterable[object]:
    if node.function:
        if node.function != RELU:
            raise Unreadable(f"network: the proved checker does not know the function {node.function}")
        yield from ("relu", node.parent)
        return
    if not node.terms:
        yield "input"
        return
    yield from ("affine", len(node.terms))
    for parent, linear in node.terms:
        yield from term_words(parent, linear)
    if node.bias is None:
        yield from (0, 0)
        return
    (low, high), exponent = exact(*node.bias)
    yield from (exponent, node.size, *low.tolist(), *high.tolist())


def fraction_words(value: Fraction) -> tuple[int, int]:
    return value.numerator, value.denominator


def sparse_words(part: tuple[tuple[int, Fraction], ...]) -> Iterable[object]:
    yield len(part)
    for i, c in part:
        yield from (i, *fraction_words(c))


def row_words(row: Row) -> Iterable[object]:
    size = max((abs(c) for _, c in (*row.inputs, *row.outputs)), default=Fraction(1))
    shift = size.denominator.bit_length() - size.numerator.bit_length()
    yield from (int(row.strict), shift, *fraction_words(row.limit))
    yield from sparse_words(row.inputs)
    yield from sparse_words(row.outputs)


def region_words(region: Region) -> Iterable[object]:
    top = max(abs(v) for v in (*region.lower, *region.upper))
    size = top.numerator.bit_length() - top.denominator.bit_length() + 1 if top else 0
    yield INPUT_BITS - size
    for end in (region.lower, region.upper):
        for value in end:
            yield from fraction_words(value)
    yield len(region.disjuncts)
    for rows in region.disjuncts:
        yield len(rows)
        for row in rows:
            yield from row_words(row)


def words(network: Network, regions: list[Region], hashes: tuple[str, str]) -> Iterable[object]:
    yield from ("verifolio-terms-1", *hashes, len(network.nodes), network.output)
    yield from (network.nodes[0].size, network.nodes[network.output].size)
    for node in network.nodes:
        yield from node_words(node)
    yield len(regions)
    for region in regions:
        yield from region_words(region)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: terms.py NETWORK PROPERTY")
    try:
        network, regions, hashes = load(Path(sys.argv[1]), Path(sys.argv[2]))
        for word in words(network, regions, hashes):
            sys.stdout.write(f"{word}\n")
    except (Unreadable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
