"""Certificates: trees of splits that cover a region, and by how much their leaves prove what they have to.

A file is read line by line, and every step is checked as it comes.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verifolio_check.bounds import ELEMENTS, GUARD, Domains, Index, Model, Start, Sweep
from verifolio_check.curves import ONE
from verifolio_check.integers import Ints, Invalid, Unreadable, largest, within
from verifolio_check.network import Network
from verifolio_check.vnnlib import Region

FIRST = "verifolio certificate 2"
LONGEST_LINE, MOST_BYTES, MOST_BITS = 1 << 24, 1 << 34, 40
MOST_NODES, MOST_DATA, DEEPEST = 1 << 24, 1 << 20, 4096  # of a tree
CLAIMS = re.compile(r"claims (\d{1,5})((?: [<>]\d{1,8}){1,256})")
TREE = re.compile(r"tree((?: \d{1,6})+)")
SPLIT = r"(?:(\d{1,8})|r(\d{1,5})\.(\d{1,8}))(?:@(-?\d{1,18})(?:p(-?\d{1,3}))?)?/"
DATA = r"\[(?:a([0-9A-Za-z]*))?;?(?:b(-?\d{1,18}(?:,-?\d{1,18})*))?;?(?:m(\d{1,9}(?:,\d{1,9})*))?\]"
NODE = re.compile(rf"(\*?)(?:({DATA})?\.|{SPLIT})")
SYMBOLS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LEVELS = len(SYMBOLS) - 1  # the k-th of them is the slope k / LEVELS
SLOPES = np.zeros(128, np.int64)  # by character
SLOPES[np.frombuffer(SYMBOLS, np.uint8)] = [k * ONE // LEVELS for k in range(LEVELS + 1)]
LEAF, NO_CUT = -1, -(1 << 62)
# Numbers in the intervals of the domains at work together, or rows of what they prove: some 8 MB
STATE_NUMBERS = 1 << 20
FARTHEST = 1 << 61  # the margin of what cannot be reached
Data = tuple[str, str, str]  # slopes, multipliers of splits and weights of rows, as they are written
NO_DATA: Data = ("", "", "")
Bar = tuple[Start, int, bool]  # a row, what it has to exceed, and whether it is enough to reach that
Goal = list[list[Bar]]  # disjuncts, of each of which some row has to


@dataclass
class Tree:
    """Nodes in preorder: what is split (a node of the network, or LEAF), which neuron, where; stars; the parent."""

    place: Ints
    neuron: Ints
    cut: Ints
    star: Ints
    parent: Ints
    left: Ints
    right: Ints
    data: dict[int, Data]

    def steps(self, node: int) -> list[tuple[int, bool]]:
        """The splits of neurons from the root to a node, and whether it is on the right."""
        out = []
        while (above := int(self.parent[node])) >= 0:
            if self.place[above] > 0:
                out.append((above, bool(self.right[above] == node)))
            node = above
        return out[::-1]


def parse(lines: Iterator[str], model: Model, count: int) -> Tree:
    """So many trees, each of which begins on a line of its own."""
    tables: list[Ints] = []
    data: dict[int, Data] = {}
    size = 0
    for _ in range(count):
        waiting = [-1]
        while waiting:
            line, end, rows = next(lines, ""), 0, []
            while waiting and (token := NODE.match(line, end)):
                end, split = token.end(), split_of(token, model)
                rows.append((*split, bool(token.group(1)), waiting.pop()))
                if token.group(2):
                    data[size] = (token.group(3) or "", token.group(4) or "", token.group(5) or "")
                if split[0] != LEAF:
                    waiting += [size, size]
                size += 1
                if size > MOST_NODES or len(waiting) > DEEPEST or len(data) > MOST_DATA:
                    raise Unreadable("certificate: a tree too large or too deep")
            if end != len(line) or not rows:
                raise Unreadable(f"certificate: expected a node of a tree, got {line[end : end + 40]!r}")
            tables.append(np.array(rows, np.int64))
    place, neuron, cut, star, parent = np.concatenate(tables).T
    right, numbers = np.full(size, -1), np.arange(size)
    second = numbers[(parent >= 0) & (parent != numbers - 1)]
    right[parent[second]] = second
    return Tree(place, neuron, cut, star, parent, numbers + 1, right, data)


def split_of(token: re.Match[str], model: Model) -> tuple[int, int, int]:
    """Place, neuron and cut, in the unit of what is split."""
    dimension, curve, which, cut, power = token.group(6, 7, 8, 9, 10)
    if dimension is None and curve is None:
        return LEAF, 0, 0
    place, neuron = 0, int(dimension or 0)
    if curve is not None:
        place, neuron, cut = model.network.input_of(int(curve)), int(which), cut or "0"
    if place >= len(model.scale) or neuron >= model.network.nodes[place].size:
        raise Unreadable(f"certificate: no neuron {neuron} there, or its interval is not known yet")
    if cut is None:
        return place, neuron, NO_CUT
    # rounded down: where exactly does not matter, both parts take the same
    shift = model.scale[place] - int(power or 0)
    at = int(cut) << shift if shift >= 0 else int(cut) >> -shift
    within(abs(at))
    return place, neuron, at


class Walk:
    """Goes through trees, one per goal, over neurons up to the node `last`.

    A leaf's margin is by how much the best row of a disjunct exceeds what it has to (units of 2^-unit; up to 0: not
    enough), at the worst disjunct. `run` gives the least of these for every goal.
    """

    def __init__(self, model: Model, tree: Tree, goals: list[Goal], unit: int, last: int) -> None:
        self.model, self.tree, self.goals, self.unit = model, tree, goals, unit
        self.open = model.open(last)
        self.widest = max(node.size for node in model.network.nodes[: last + 1])
        self.first = model.whole(len(goals))
        self.first.node = np.flatnonzero(tree.parent == -1)[: len(goals)]
        numbers = sum(2 * e.shape[1] for e in self.first.low.values())
        bars = max(sum(len(rows) for rows in goal) for goal in goals)
        self.most = max(1, min(512, STATE_NUMBERS // max(numbers, bars)))
        self.least = np.full(len(goals), FARTHEST)

    def run(self) -> Ints:
        stack = [self.first]
        while stack:
            work = stack.pop()
            while stack and len(work.node) + len(stack[-1].node) <= self.most:
                work = work.join(stack.pop())
            if len(work.node) > self.most:
                stack.append(work.pick(np.arange(self.most, len(work.node))))
                work = work.pick(np.arange(self.most))
            after = self.step(work)
            if len(after.node):
                stack.append(after)
        return self.least

    def step(self, work: Domains) -> Domains:
        """Look at some domains; gives the parts of those that are split."""
        starred = np.flatnonzero(self.tree.star[work.node])
        if len(starred):
            part = work.pick(starred)
            for z in [z for z in self.model.before if z in part.low]:
                self.model.narrow(part, z)
                work.low[z][starred], work.high[z][starred] = part.low[z], part.high[z]
        work = work.pick(work.full())
        leaves = work.pick(self.tree.place[work.node] == LEAF)
        if len(leaves.node):
            self.close(leaves, self.margins(leaves))
        work = work.pick(self.tree.place[work.node] != LEAF)
        return self.part(work, True).join(self.part(work, False))

    def part(self, work: Domains, left: bool) -> Domains:
        """The left or the right parts of domains."""
        part = work.pick(np.arange(len(work.node)))
        places, neurons, cuts = (v[work.node] for v in (self.tree.place, self.tree.neuron, self.tree.cut))
        for z in np.unique(places).tolist():
            at = np.flatnonzero(places == z)
            where = (at, neurons[at])
            low, high = part.low[z][where], part.high[z][where]
            cut = np.where(cuts[at] == NO_CUT, (low + high) >> 1, cuts[at])
            if left:
                part.high[z][where] = np.minimum(high, cut)
            else:
                part.low[z][where] = np.maximum(low, cut)
        part.node = (self.tree.left if left else self.tree.right)[work.node]
        return part

    def close(self, leaves: Domains, margin: Ints) -> None:
        np.minimum.at(self.least, leaves.goal, margin)

    def margins(self, leaves: Domains) -> Ints:
        bars = []  # leaf, disjunct, row, what it has to exceed
        for k, (node, goal) in enumerate(zip(leaves.node.tolist(), leaves.goal.tolist(), strict=True)):
            weights = self.tree.data.get(node, NO_DATA)[2]
            for j, rows in enumerate(self.goals[goal]):
                part = [weighted(rows, weights)] if weights else rows
                bars += [(k, j, start, limit - reach) for start, limit, reach in part]
        count = np.array([len(goal) for goal in self.goals])[leaves.goal]
        best = np.where(np.arange(count.max(initial=0)) < count[:, None], -FARTHEST, FARTHEST)
        step = max(1, ELEMENTS // self.widest)
        for first in range(0, len(bars), step):
            at, disjunct, starts, limits = zip(*bars[first : first + step], strict=True)
            bound = self.sweep(leaves, np.array(at)).run(stacked(starts))
            np.maximum.at(best, (np.array(at), np.array(disjunct)), bound - np.array(limits))
        return np.asarray(best.min(1))

    def sweep(self, leaves: Domains, at: Index) -> Sweep:
        """A sweep with what leaves state."""
        sweep, wanted = Sweep(self.model, leaves, at, self.unit), sum(len(found) for _, found in self.open)
        for k, node in enumerate(leaves.node[at].tolist()):
            if node not in self.tree.data:
                continue
            slopes, moves, _ = self.tree.data[node]
            splits = self.tree.steps(node) if moves else []
            amounts = [int(v) for v in moves.split(",")] if moves else []
            if len(slopes) not in (0, wanted) or len(amounts) != len(splits):
                raise Unreadable(
                    f"certificate: expected {wanted} slopes, {len(splits)} multipliers of a leaf"
                )
            given = SLOPES[np.frombuffer(slopes.encode(), np.uint8)]
            for z, neurons in self.open if slopes else []:
                self._table(sweep.slopes, z, len(at), -1)[k, neurons] = given[: len(neurons)]
                given = given[len(neurons) :]
            for (n, right), amount in zip(splits, amounts, strict=True):
                table = self._table(sweep.moves, int(self.tree.place[n]), len(at), 0)
                table[k, self.tree.neuron[n]] = amount if right else -amount
        return sweep

    def _table(self, held: dict[int, Ints], z: int, rows: int, default: int) -> Ints:
        if z not in held:
            held[z] = np.full((rows, self.model.network.nodes[z].size), default, np.int64)
        return held[z]


def stacked(starts: Sequence[Start]) -> Start:
    """Rows below each other."""
    parts = {n: [start[n] for start in starts] for n in starts[0]}
    return {
        n: (np.concatenate([v for v, _ in p]), np.concatenate([w for _, w in p])) for n, p in parts.items()
    }


def weighted(rows: list[Bar], text: str) -> Bar:
    """The sum of rows with weights."""
    weights = np.array([int(v) for v in text.split(",")])
    if len(weights) != len(rows) or not weights.any():
        raise Unreadable(f"certificate: expected weights of {len(rows)} rows")
    table = stacked([start for start, _, _ in rows])
    within(int(weights.sum()) * max(largest(value, width) for value, width in table.values()))
    total = {n: (weights[None] @ value, weights[None] @ width) for n, (value, width) in table.items()}
    limit = sum(int(w) * limit for w, (_, limit, _) in zip(weights, rows, strict=True))
    within(2 * abs(limit))
    return total, limit, any(reach and w > 0 for w, (_, _, reach) in zip(weights, rows, strict=True))


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
        narrow(model, int(claims.group(1)), claims.group(2).split(), lines)
    last = len(model.network.nodes) - 1
    model.advance(last)
    left, unit = set(range(len(region.disjuncts))), model.scale[model.network.output] + GUARD
    while tree := TREE.fullmatch(line):
        chosen = {int(v) for v in tree.group(1).split()}
        if max(chosen) >= len(region.disjuncts):
            raise Unreadable(f"certificate: no disjunct {max(chosen)}")
        goal = [[(*model.row(row), row.strict) for row in region.disjuncts[d]] for d in sorted(chosen)]
        if Walk(model, parse(lines, model, 1), [goal], unit, last).run()[0] <= 0:
            raise Invalid(f"a leaf of the tree of disjuncts{tree.group(1)[:40]} is not closed")
        left, line = left - chosen, next(lines, "")
    if left:
        raise Invalid(f"disjunct {min(left)} of a region has no tree")
    return line


def narrow(model: Model, curve: int, ends: list[str], lines: Iterator[str]) -> None:
    """Claims: `>J` raises the lower end of a function's argument J to what its tree proves, `<J` lowers the upper."""
    z = model.network.input_of(curve)
    model.advance(z)
    neurons, signs = np.array([int(end[1:]) for end in ends]), [1 if end[0] == ">" else -1 for end in ends]
    if neurons.max() >= model.network.nodes[z].size:
        raise Unreadable(f"certificate: no neuron {neurons.max()}")
    starts = [model.unit(z, neurons[k : k + 1], sign) for k, sign in enumerate(signs)]
    forest = parse(lines, model, len(ends))
    if any(weights for _, _, weights in forest.data.values()):
        raise Unreadable("certificate: weights of rows in a claim, which has none")
    goals: list[Goal] = [[[(start, 0, False)]] for start in starts]
    bounds = Walk(model, forest, goals, model.scale[z] + GUARD, z - 1).run() >> GUARD
    lower, low, high = np.array(signs) > 0, model.low[z].copy(), model.high[z].copy()
    np.maximum.at(low, neurons[lower], bounds[lower])
    np.minimum.at(high, neurons[~lower], -bounds[~lower])
    model.low[z], model.high[z] = low, high
