"""Trees of splits that cover a region, and whether each of their leaves is closed.

A tree is a string of nodes in preorder, left part first:

    node   = ["*"] ["!"] ["[" data "]"] ( "." | split node node )
    split  = INPUT ["@" CUT] "/"  |  "r" RELU "." NEURON ["@" CUT] "/"
    cut    = M ["p" E], the number M 2^-E

The left part has values up to the cut, the right part from the cut on; without a cut, an input is halved and a neuron
is cut at 0. "*" narrows the intervals of the neurons by the default rule, "!" narrows the box to where the rows can
hold.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio_check.bounds import ONE, ROW_BITS, Choice, Index, Model, Rows, State, floor_shift
from verifolio_check.integers import Ints, Invalid, Unreadable, largest, within
from verifolio_check.vnnlib import Row

NODE = re.compile(
    r"(\*?)(!?)(?:\[([^\]]*)\])?"
    r"(?:\.|(?:(\d{1,8})|r(\d{1,5})\.(\d{1,8}))(?:@(-?\d{1,18})(?:p(-?\d{1,3}))?)?/)"
)
DATA = re.compile(r"(?:a([0-9A-Za-z]*))?;?(?:b(-?\d{1,18}(?:,-?\d{1,18})*))?;?(?:m(\d{1,9}(?:,\d{1,9})*))?")
DIGITS = {c: k for k, c in enumerate("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")}
LEVELS = 61  # a slope is k / 61
MOST_NODES, MOST_DATA, DEEPEST = 1 << 24, 1 << 20, 4096
NO_CUT = -(1 << 62)
LEAF, INPUT, NEURON = 0, 1, 2
STATE_NUMBERS = 1 << 20  # numbers in the intervals of the domains at work together


def slopes_of(text: str) -> Ints:
    return np.array([DIGITS[c] * ONE // LEVELS for c in text], np.int64)


class Tree:
    """Nodes in preorder: kind, place, neuron and cut of the split, the parts, what is above, marks."""

    def __init__(self, table: Ints, right: Ints, data: dict[int, tuple[str, str, str]]) -> None:
        self.kind, self.place, self.neuron, self.cut, self.parent, self.marks = table.T
        self.left, self.right, self.data = np.arange(1, len(right) + 1), right, data


def parse(lines: Iterator[str], model: Model) -> Tree:
    """The tree that begins with the next line and ends with one."""
    waiting, count, right = [-1], 0, array("q")
    data: dict[int, tuple[str, str, str]] = {}
    tables: list[Ints] = []
    while waiting:
        line, end = next(lines, ""), 0
        rows: list[tuple[int, ...]] = []
        while waiting and (token := NODE.match(line, end)):
            end = token.end()
            above = waiting.pop()
            if above >= 0 and above != count - 1:
                right[above] = count
            if token.group(3) is not None:
                data[count] = data_of(token.group(3))
            split = split_of(token, model)
            rows.append((*split, above, bool(token.group(1)) + 2 * bool(token.group(2))))
            right.append(-1)
            if split[0] != LEAF:
                waiting += [count, count]
            count += 1
            if count > MOST_NODES or len(waiting) > DEEPEST or len(data) > MOST_DATA:
                raise Unreadable("certificate: a tree too large or too deep")
        if end != len(line) or not rows:
            raise Unreadable(f"certificate: expected a node of a tree, got {line[end : end + 40]!r}")
        tables.append(np.array(rows, np.int64))
    return Tree(np.concatenate(tables), np.array(right, np.int64), data)


def data_of(text: str) -> tuple[str, str, str]:
    """Slopes, multipliers of splits and weights of rows, as they are written."""
    found = DATA.fullmatch(text)
    if found is None:
        raise Unreadable(f"certificate: expected data of a node, got {text[:40]!r}")
    slopes, moves, weights = found.groups("")
    return slopes, moves, weights


def split_of(token: re.Match[str], model: Model) -> tuple[int, int, int, int]:
    """Kind, place, neuron and cut, in the unit of what is split."""
    dimension, relu, which, cut, power = token.group(4, 5, 6, 7, 8)
    network = model.network
    if dimension is not None:
        kind, place, neuron = INPUT, int(dimension), 0
        if place >= network.nodes[0].size:
            raise Unreadable(f"certificate: no input {place}")
    elif relu is not None:
        number, neuron = int(relu), int(which)
        if number >= len(model.relus) or neuron >= network.nodes[model.relus[number]].size:
            raise Unreadable(f"certificate: no neuron {number}.{neuron}")
        kind, place, cut = NEURON, network.nodes[model.relus[number]].parent, cut or "0"
    else:
        return LEAF, 0, 0, 0
    if cut is None:
        return kind, place, neuron, NO_CUT
    # rounded down: where exactly does not matter, both parts take the same
    shift = model.scale[0 if kind == INPUT else place] - int(power or 0)
    at = int(cut) << shift if shift >= 0 else int(cut) >> -shift
    within(abs(at))
    return kind, place, neuron, at


@dataclass
class Work:
    """Domains to look at: their nodes, what holds on them, the node whose slopes they inherit (-1: none)."""

    node: Index
    state: State
    slopes: Ints

    def pick(self, at: Index | NDArray[np.bool_]) -> Work:
        return Work(self.node[at], self.state.pick(at), self.slopes[at])


class Walk:
    """Goes through a tree and sees that the disjuncts are impossible at every leaf."""

    def __init__(self, model: Model, tree: Tree, disjuncts: list[tuple[Row, ...]]) -> None:
        self.model, self.tree, self.disjuncts = model, tree, disjuncts
        self.unit = model.unit()
        self.rows = [(k, *model.row(row), row.strict) for k, rows in enumerate(disjuncts) for row in rows]
        width = (
            sum(2 * model.network.nodes[z].size for z in model.before_relu) + 2 * model.network.nodes[0].size
        )
        self.most = max(1, min(512, STATE_NUMBERS // width))
        self.open = model.open(model.network.output)

    def run(self) -> None:
        root = Work(np.zeros(1, np.intp), self.model.state(), np.full(1, -1))
        stack = [root]
        while stack:
            work = stack.pop()
            while stack and len(work.node) + len(stack[-1].node) <= self.most:
                work = join(work, stack.pop())
            if len(work.node) > self.most:
                stack.append(work.pick(np.arange(self.most, len(work.node))))
                work = work.pick(np.arange(self.most))
            after = self.step(work)
            if len(after.node):
                stack.append(after)

    def step(self, work: Work) -> Work:
        """Look at some domains; gives the parts of those that are split."""
        marks = self.tree.marks[work.node]
        for n in [int(n) for n in work.node if int(n) in self.tree.data]:
            if self.tree.data[n][0]:
                work.slopes[work.node == n] = n
        starred = np.flatnonzero(marks & 1)
        if len(starred):
            part = work.state.pick(starred)
            self.model.refresh(part)
            write(work.state, starred, part)
        banged = np.flatnonzero(marks & 2)
        if len(banged):
            self.narrow(work.state, banged)
        work = work.pick(~work.state.empty())
        leaves = self.tree.kind[work.node] == LEAF
        if leaves.any():
            self.close(work.pick(leaves))
        return self.split(work.pick(self.tree.kind[work.node] != LEAF))

    def split(self, work: Work) -> Work:
        node, count = work.node, np.arange(len(work.node))
        parts = []
        for left in (True, False):
            part = Work(
                (self.tree.left if left else self.tree.right)[node].astype(np.intp),
                work.state.pick(count),
                work.slopes,
            )
            state, kind, place, neuron = (
                part.state,
                self.tree.kind[node],
                self.tree.place[node],
                self.tree.neuron[node],
            )
            at = np.flatnonzero(kind == INPUT)
            low, high = state.lower[at, place[at]], state.upper[at, place[at]]
            cut = np.where(self.tree.cut[node[at]] == NO_CUT, (low + high) >> 1, self.tree.cut[node[at]])
            if left:
                state.upper[at, place[at]] = np.minimum(high, cut)
            else:
                state.lower[at, place[at]] = np.maximum(low, cut)
            for z in np.unique(place[kind == NEURON]).tolist():
                at = np.flatnonzero((kind == NEURON) & (place == z))
                held = state.high[z] if left else state.low[z]
                cut = floor_shift(self.tree.cut[node[at]], self.model.scale[z] - state.scale[z][at])
                old = held[at, neuron[at]]
                held[at, neuron[at]] = np.minimum(old, cut) if left else np.maximum(old, cut)
            parts.append(part)
        return join(*parts)

    def margins(self, state: State, at: Index) -> list[tuple[int, Ints, Rows, bool]]:
        """Per row: its disjunct, what it exceeds its limit by on each domain, its coefficients there, strictness."""
        out = []
        for disjunct, start, limit, strict in self.rows:
            bound, over = self.model.lower(
                state, at, {n: spread(r, len(at)) for n, r in start.items()}, self.unit
            )
            out.append((disjunct, bound - limit, over, strict))
        return out

    def narrow(self, state: State, at: Index) -> None:
        """Boxes become hulls of where the rows of each disjunct can hold.

        a . x >= least of a . x + a_i (x_i - l_i) for each i, so what is missing bounds x_i - l_i (and u_i - x_i).
        """
        lower, upper = state.lower[at], state.upper[at]
        hull = [np.full_like(lower, 1 << 60), np.full_like(upper, -(1 << 60))]
        rows = self.margins(state, at)
        for k in range(len(self.disjuncts)):
            low, high = lower.copy(), upper.copy()
            gone = np.zeros(len(at), bool)
            for _, margin, over, strict in (r for r in rows if r[0] == k):
                gone |= (margin >= 0) if strict else (margin > 0)
                # what is missing, rounded up, in the unit of a x; where that has too many bits nothing is narrowed
                finer = over.exponent + self.model.scale[0] - self.unit
                missing = np.maximum(-margin, 0)
                far = missing >> np.clip(60 - finer, 0, 62) > 0
                missing = -floor_shift(-np.where(far, 0, missing), -finer)
                step = np.minimum(missing[:, None] // np.maximum(np.abs(over.value), 1) + 1, 1 << 60)
                step = np.where(far[:, None], 1 << 60, step)
                high = np.where(over.value > 0, np.minimum(high, lower + step), high)
                low = np.where(over.value < 0, np.maximum(low, upper - step), low)
            gone |= (low > high).any(1)
            hull[0] = np.where(gone[:, None], hull[0], np.minimum(hull[0], low))
            hull[1] = np.where(gone[:, None], hull[1], np.maximum(hull[1], high))
        state.lower[at], state.upper[at] = hull

    def close(self, work: Work) -> None:
        """See that every disjunct is impossible on every domain."""
        stated = np.array([int(n) in self.tree.data for n in work.node]) | (work.slopes >= 0)
        if stated.any():
            self.close_stated(work.pick(stated))
        plain = np.flatnonzero(~stated)
        if not len(plain):
            return
        done = np.zeros((len(self.disjuncts), len(plain)), bool)
        for disjunct, margin, _, strict in self.margins(work.state, plain):
            done[disjunct] |= (margin >= 0) if strict else (margin > 0)
        if not done.all():
            self.fail(work.pick(plain[~done.all(0)]))

    def fail(self, work: Work) -> None:
        """Leaves that are not closed end the check."""
        raise Invalid(f"the bounds do not close {self.path(int(work.node[0]))}")

    def close_stated(self, work: Work) -> None:
        """Leaves with multipliers of their own, on one disjunct."""
        bound, limits = self.bound_stated(work)
        margin = [int(b) - limit for b, (limit, _) in zip(bound, limits, strict=True)]
        bad = [k for k, (_, strict) in enumerate(limits) if margin[k] < 0 or (margin[k] == 0 and not strict)]
        if bad:
            self.fail(work.pick(np.array(bad)))

    def bound_stated(self, work: Work) -> tuple[Ints, list[tuple[int, bool]]]:
        """The bounds of the leaves' combined rows, and what they have to exceed (or reach, where strict)."""
        if len(self.disjuncts) != 1:
            raise Unreadable("certificate: multipliers of a leaf in a tree of several disjuncts")
        choice, starts, limits = Choice(), [], []
        for k, n in enumerate(int(n) for n in work.node):
            _, moves, weights = self.tree.data.get(n, ("", "", ""))
            self._moves(choice, k, n, moves)
            start, limit = self._combined(weights)
            starts.append(start)
            limits.append(limit)
        self._slopes(choice, work)
        start = {n: stack([s[n] for s in starts]) for n in starts[0]}
        bound, _ = self.model.lower(work.state, np.arange(len(work.node)), start, self.unit, choice)
        return bound, limits

    def _slopes(self, choice: Choice, work: Work) -> None:
        """Inherited slopes of the open neurons; those of rows without any are the default ones."""
        texts = [self.tree.data[n][0] if n >= 0 else "" for n in work.slopes.tolist()]
        count = sum(len(at) for _, at in self.open)
        if any(t and len(t) != count for t in texts):
            raise Unreadable(f"certificate: expected slopes of {count} open neurons")
        table = {t: slopes_of(t) for t in set(texts) if t}
        first = 0
        for z, at in self.open:
            default = work.state.slopes(z)[0][:, at]
            part = [table[t][first : first + len(at)] if t else default[k] for k, t in enumerate(texts)]
            choice.slopes[z] = (at, np.stack(part))
            first += len(at)

    def _moves(self, choice: Choice, row: int, node: int, text: str) -> None:
        """Amounts for the split neurons on the path to a leaf, from the root on."""
        if not text:
            return
        amounts = [int(v) for v in text.split(",")]
        splits = [(n, right) for n, right in self.steps(node) if self.tree.kind[n] == NEURON]
        if len(splits) != len(amounts):
            raise Unreadable(f"certificate: expected {len(splits)} multipliers, got {len(amounts)}")
        for (n, right), amount in zip(splits, amounts, strict=True):
            move = (row, int(self.tree.neuron[n]), amount if right else -amount, ROW_BITS)
            choice.moves.setdefault(int(self.tree.place[n]), []).append(move)

    def _combined(self, text: str) -> tuple[dict[int, Rows], tuple[int, bool]]:
        """The rows of the disjunct, weighted."""
        rows = self.disjuncts[0]
        weights = [int(v) for v in text.split(",")] if text else [1] * len(rows)
        if len(weights) != len(rows) or not any(weights):
            raise Unreadable(f"certificate: expected weights of {len(rows)} rows")
        total: dict[int, Rows] = {}
        limit, strict = 0, False
        for (_, start, bound, edge), weight in zip(self.rows, weights, strict=True):
            for n, r in start.items():
                part = Rows(r.value * weight, r.width * weight, r.exponent)
                total[n] = total[n].plus(part) if n in total else part
            limit += weight * bound
            strict |= edge and weight > 0
        within(abs(limit))
        for n, r in total.items():  # back to as many bits as rows have
            total[n] = r.coarser(np.array([max(largest(r.value).bit_length() - ROW_BITS, 0)]))
        return total, (limit, strict)

    def steps(self, node: int) -> list[tuple[int, bool]]:
        """The splits from the root to a node, and whether it is on the right."""
        out = []
        while self.tree.parent[node] >= 0:
            above = int(self.tree.parent[node])
            out.append((above, bool(self.tree.right[above] == node)))
            node = above
        return out[::-1]

    def path(self, node: int) -> str:
        """A leaf, for people."""
        steps = ["right" if right else "left" for _, right in self.steps(node)]
        return f"leaf {node} ({', '.join(steps[:40]) or 'the root'})"


def spread(rows: Rows, count: int) -> Rows:
    return Rows(*(np.repeat(part, count, 0) for part in (rows.value, rows.width, rows.exponent)))


def stack(rows: list[Rows]) -> Rows:
    return Rows(*(np.concatenate([getattr(r, n) for r in rows]) for n in ("value", "width", "exponent")))


def write(state: State, at: Index, part: State) -> None:
    state.lower[at], state.upper[at] = part.lower, part.upper
    for z in part.low:
        state.low[z][at], state.high[z][at], state.scale[z][at] = part.low[z], part.high[z], part.scale[z]
    state.lines.clear()


def join(a: Work, b: Work) -> Work:
    s, t = a.state, b.state
    low, high, scale = (
        {z: np.concatenate([x[z], y[z]]) for z in x}
        for x, y in ((s.low, t.low), (s.high, t.high), (s.scale, t.scale))
    )
    box = (np.concatenate([s.lower, t.lower]), np.concatenate([s.upper, t.upper]))
    return Work(
        np.concatenate([a.node, b.node]), State(*box, low, high, scale), np.concatenate([a.slopes, b.slopes])
    )
