"""Trees of splits that cover a region, and by how much their leaves prove what they have to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verifolio_check.bounds import ELEMENTS, Domains, Index, Model, Start, Sweep
from verifolio_check.curves import ONE
from verifolio_check.integers import Ints, Unreadable, within

SPLIT = r"(?:(\d{1,8})|r(\d{1,5})\.(\d{1,8}))(?:@(-?\d{1,18})(?:p(-?\d{1,3}))?)?/"
NODE = re.compile(rf"(\*?)(?:(?:\[([^\]]*)\])?\.|{SPLIT})")
DATA = re.compile(r"(?:a([0-9A-Za-z]*))?;?(?:b(-?\d{1,18}(?:,-?\d{1,18})*))?;?(?:m(\d{1,9}(?:,\d{1,9})*))?")
LEVELS = 61  # a slope is k / 61
SLOPES = np.zeros(128, np.int64)  # by character
SLOPES[np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", np.uint8)] = [
    k * ONE // LEVELS for k in range(LEVELS + 1)
]
MOST_NODES, MOST_DATA, DEEPEST = 1 << 24, 1 << 20, 4096
LEAF, NO_CUT = -1, -(1 << 62)
STATE_NUMBERS = 1 << 20  # numbers in the intervals of the domains at work together
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
        """The splits from the root to a node, and whether it is on the right."""
        out = []
        while self.parent[node] >= 0:
            above = int(self.parent[node])
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
                end, above, split = token.end(), waiting.pop(), split_of(token, model)
                rows.append((*split, bool(token.group(1)), above))
                if token.group(2) is not None:
                    data[size] = data_of(token.group(2))
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


def data_of(text: str) -> Data:
    found = DATA.fullmatch(text)
    if found is None:
        raise Unreadable(f"certificate: expected data of a leaf, got {text[:40]!r}")
    slopes, moves, weights = found.groups("")
    return slopes, moves, weights


def split_of(token: re.Match[str], model: Model) -> tuple[int, int, int]:
    """Place, neuron and cut, in the unit of what is split."""
    dimension, curve, which, cut, power = token.group(3, 4, 5, 6, 7)
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
        self.most = max(1, min(512, STATE_NUMBERS // sum(2 * e.shape[1] for e in self.first.low.values())))
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
        bars = []  # leaf, disjunct, bar
        for k, (node, goal) in enumerate(zip(leaves.node.tolist(), leaves.goal.tolist(), strict=True)):
            weights = self.tree.data.get(node, NO_DATA)[2]
            for j, rows in enumerate(self.goals[goal]):
                bars += [(k, j, bar) for bar in (weighted(rows, weights) if weights else rows)]
        count = np.array([len(goal) for goal in self.goals])[leaves.goal]
        best = np.where(np.arange(count.max(initial=0)) < count[:, None], -FARTHEST, FARTHEST)
        step = max(1, ELEMENTS // self.widest)
        for first in range(0, len(bars), step):
            part = bars[first : first + step]
            at, disjunct = (np.array([p[k] for p in part], np.intp) for k in (0, 1))
            bound = self.sweep(leaves, at).run(stacked([bar[0] for _, _, bar in part]))
            np.maximum.at(
                best, (at, disjunct), bound - np.array([limit - reach for _, _, (_, limit, reach) in part])
            )
        return np.asarray(best.min(1))

    def sweep(self, leaves: Domains, at: Index) -> Sweep:
        """A sweep with what leaves state."""
        sweep = Sweep(self.model, leaves, at, self.unit)
        for k, node in enumerate(leaves.node[at].tolist()):
            slopes, moves, _ = self.tree.data.get(node, NO_DATA)
            splits = (
                [(n, right) for n, right in self.tree.steps(node) if self.tree.place[n] > 0] if moves else []
            )
            amounts = [int(v) for v in moves.split(",")] if moves else []
            wanted = sum(len(neurons) for _, neurons in self.open) if slopes else 0
            if len(slopes) != wanted or len(amounts) != len(splits):
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


def stacked(starts: list[Start]) -> Start:
    return {
        n: (np.concatenate([s[n][0] for s in starts]), np.concatenate([s[n][1] for s in starts]))
        for n in starts[0]
    }


def weighted(rows: list[Bar], text: str) -> list[Bar]:
    """The sum of rows with weights."""
    weights = [int(v) for v in text.split(",")]
    if len(weights) != len(rows) or not any(weights):
        raise Unreadable(f"certificate: expected weights of {len(rows)} rows")
    column, table = np.array(weights)[:, None], stacked([start for start, _, _ in rows])
    total = {
        n: ((column * value).sum(0)[None], (column[:, 0] * width).sum()[None])
        for n, (value, width) in table.items()
    }
    limit = sum(w * bound for (_, bound, _), w in zip(rows, weights, strict=True))
    within(2 * abs(limit))
    return [(total, limit, any(reach and w > 0 for (_, _, reach), w in zip(rows, weights, strict=True)))]
