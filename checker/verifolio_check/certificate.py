"""Reads a certificate line by line and checks every step as it comes."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from verifolio_check.bounds import GUARD, ROW_BITS, Model
from verifolio_check.integers import Ints, Invalid, Unreadable
from verifolio_check.network import Network
from verifolio_check.tree import Goal, Walk, parse
from verifolio_check.vnnlib import Region

FIRST = "verifolio certificate 2"
LONGEST_LINE, MOST_BYTES, MOST_BITS = 1 << 24, 1 << 34, 40
CLAIMS = re.compile(r"claims (\d{1,5})((?: [<>]\d{1,8}){1,256})")
TREE = re.compile(r"tree((?: \d{1,6})+)")


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a gzipped text, none longer than a bound."""
    try:
        total = 0
        with gzip.open(path, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                total += len(line)
                if not line.endswith(b"\n") or total > MOST_BYTES:
                    raise Unreadable("certificate: a line or the whole is too long, or the end is missing")
                yield line[:-1].decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Unreadable(f"certificate: {error}") from error


def check(network: Network, regions: list[Region], hashes: tuple[str, str], lines: Iterator[str]) -> None:
    """Returns if the lines prove that no region reaches its condition; Invalid names what fails."""
    if next(lines, "") != FIRST:
        raise Unreadable(f"certificate: the first line is not {FIRST!r}")
    for word, wanted in zip(("network", "property"), hashes, strict=True):
        if next(lines, "") != f"{word} {wanted}":
            raise Invalid(f"it is about another {word}")
    bits = re.fullmatch(r"bits (\d{1,2})", next(lines, ""))
    if bits is None or int(bits.group(1)) > MOST_BITS:
        raise Unreadable(f"certificate: expected bits and a number up to {MOST_BITS}")
    line = next(lines, "")
    for k, region in enumerate(regions):
        if line != f"region {k}":
            raise Invalid(f"region {k} is missing")
        line = check_region(Model(network, region, int(bits.group(1))), region, lines)
    if line != "end" or next(lines, "") != "":
        raise Unreadable(f"certificate: expected the end, got {line[:40]!r}")


def check_region(model: Model, region: Region, lines: Iterator[str]) -> str:
    """Claims, then trees; gives the line after them."""
    while claims := CLAIMS.fullmatch(line := next(lines, "")):
        curve, ends = int(claims.group(1)), claims.group(2).split()
        z = model.network.input_of(curve)
        model.advance(z)
        goals = [claim(model, z, int(end[1:]), 1 if end[0] == ">" else -1) for end in ends]
        forest = parse(lines, model, len(goals))
        if any(weights for _, _, weights in forest.data.values()):
            raise Unreadable("certificate: weights of rows in a claim, which has none")
        keep(model, z, ends, Walk(model, forest, goals, model.scale[z] + GUARD, z - 1).run())
    last = len(model.network.nodes) - 1
    model.advance(last)
    left = set(range(len(region.disjuncts)))
    while tree := TREE.fullmatch(line):
        chosen = sorted({int(v) for v in tree.group(1).split()})
        if chosen[-1] >= len(region.disjuncts):
            raise Unreadable(f"certificate: no disjunct {chosen[-1]}")
        goal: Goal = [[(*model.row(row), row.strict) for row in region.disjuncts[d]] for d in chosen]
        unit = model.scale[model.network.output] + GUARD
        if Walk(model, parse(lines, model, 1), [goal], unit, last).run()[0] <= 0:
            raise Invalid(f"a leaf of the tree of disjuncts{tree.group(1)[:40]} is not closed")
        left, line = left - set(chosen), next(lines, "")
    if left:
        raise Invalid(f"disjunct {min(left)} of a region has no tree")
    return line


def claim(model: Model, z: int, neuron: int, sign: int) -> Goal:
    """A neuron's value, or its negative, as a row that is bounded as far as it goes."""
    value = np.zeros((1, model.network.nodes[z].size), np.int64)
    if neuron >= value.size:
        raise Unreadable(f"certificate: no neuron {neuron}")
    value[0, neuron] = sign << ROW_BITS
    return [[({z: (value, np.zeros(1, np.int64))}, 0, False)]]


def keep(model: Model, z: int, ends: list[str], bounds: Ints) -> None:
    """Narrower intervals of neurons, by what claims came to."""
    low, high = model.low[z].copy(), model.high[z].copy()
    for end, bound in zip(ends, (bounds >> GUARD).tolist(), strict=True):
        neuron = int(end[1:])
        if end[0] == ">":
            low[neuron] = max(low[neuron], bound)
        else:
            high[neuron] = min(high[neuron], -bound)
    model.keep(z, low, high)
