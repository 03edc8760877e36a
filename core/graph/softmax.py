"""What is known of a softmax: it keeps order, and its values add up to one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from verifolio.graph.graph import Graph, GraphBuilder
from verifolio.graph.ops import Elementwise, Index, Op, Scale, Select, Sparse
from verifolio.vnnlib import Rows


def only_compares(disjuncts: tuple[Rows, ...], inputs: int) -> bool:
    """Whether every row is c y_i - c y_j <= 0 (or < 0) for two outputs."""
    for rows in disjuncts:
        count = np.bincount(rows.row, minlength=rows.count)
        total = np.bincount(rows.row, rows.coefficient, rows.count)
        exact = all(r == 0 for r in rows.exact_rhs)
        if (
            not exact
            or bool((count != 2).any())
            or bool((total != 0).any())
            or bool((rows.column < inputs).any())
        ):
            return False
    return True


def logits(graph: Graph) -> Graph | None:
    """The graph of the numbers of which the output is a softmax, in the output's order; None: it is no softmax.

    A softmax is imported as 1 / (1 + sum_j exp(x_j - x_i)): the sums of output i must all subtract the same x_i.
    """
    index, node = np.arange(graph.output_size), graph.output
    chain: list[Op] = []
    while isinstance(graph.nodes[node].op, Select):
        picked = graph.nodes[node].op.index  # type: ignore[attr-defined]
        if bool((picked[index] < 0).any()):
            return None
        index, node = picked[index], graph.nodes[node].parents[0]
    for _ in range(5):
        chain.append(graph.nodes[node].op)
        if len(graph.nodes[node].parents) != 1:
            return None
        node = graph.nodes[node].parents[0]
    own = _subtracted(*chain)
    if own is None or len(np.unique(own)) != len(own):
        return None
    builder = GraphBuilder(graph.input_size)
    place = {0: 0}
    for i, n in enumerate(graph.nodes[1 : node + 1], start=1):
        place[i] = builder.add(n.op, *(place[p] for p in n.parents), name=n.name)
    picks = own[index]
    return builder.finish(builder.add(Select(len(picks), picks), place[node]))


def _subtracted(*chain: Op) -> Index | None:
    """The entry x_i that each output of the five operators of a softmax subtracts from all the others."""
    inverse, shift, total, power, gaps = chain
    if not (isinstance(inverse, Elementwise) and inverse.function == "reciprocal"):
        return None
    if not (isinstance(shift, Scale) and bool((shift.weight == 1).all() and (shift.bias == 1).all())):
        return None
    if not (isinstance(power, Elementwise) and power.function == "exp"):
        return None
    if not (isinstance(total, Sparse) and bool((total.weight.data == 1).all()) and not total.bias.any()):
        return None
    ends = _ends(gaps) if isinstance(gaps, Sparse) else None
    if ends is None:
        return None
    return _common(total, *ends)


def _common(total: Sparse, minus: Index, plus: Index) -> Index | None:
    """Per sum the entry that all its terms subtract; every sum must add up the same entries with its own."""
    own, groups = [], set()
    for a, b in zip(total.weight.indptr[:-1], total.weight.indptr[1:], strict=True):
        terms = total.weight.indices[a:b]
        if len(terms) == 0 or len(set(minus[terms])) != 1:
            return None
        own.append(int(minus[terms[0]]))
        groups.add((*sorted([own[-1], *plus[terms].tolist()]),))
    # one softmax, not several side by side: outputs of different ones are not comparable by their logits
    return np.array(own, np.int64) if len(groups) == 1 else None


def simplices(graph: Graph) -> dict[int, Index]:
    """The nodes of which some entries are whole softmaxes: (groups, members), whose exact values add up to one.

    Groups of another size than the first one's are left out.
    """
    found = {}
    for i, node in enumerate(graph.nodes):
        chain: list[Op] = [node.op]
        above = node
        while len(chain) < 4 and len(above.parents) == 1:
            above = graph.nodes[above.parents[0]]
            chain.append(above.op)
        groups = _whole(*chain) if len(chain) == 4 else []
        groups = [g for g in groups if len(g) == len(groups[0])]
        if groups:
            found[i] = np.array(groups, np.int64)
    return found


def _whole(inverse: Op, total: Op, power: Op, gaps: Op) -> list[list[int]]:
    """The groups of 1 / (1 + sum_j exp(x_j - x_i)) that have an entry for each of the same x."""
    exact = isinstance(total, Sparse) and isinstance(gaps, Sparse) and _exact(total) and _exact(gaps)
    if not (exact and _is(inverse, "reciprocal") and _is(power, "exp")):
        return []
    ends = _ends(gaps)  # type: ignore[arg-type]
    if ends is None or not bool((total.weight.data == 1).all() and (total.bias == 1).all()):  # type: ignore[attr-defined]
        return []
    rows: dict[tuple[int, ...], dict[int, int]] = {}
    pointer, columns = total.weight.indptr, total.weight.indices  # type: ignore[attr-defined]
    for r, (a, b) in enumerate(pairwise(pointer)):
        own, others = set(ends[0][columns[a:b]].tolist()), ends[1][columns[a:b]].tolist()
        members = own.union(others)
        if len(own) == 1 and len(members) == len(others) + 1:
            rows.setdefault((*sorted(members),), {})[own.pop()] = r
    return [[of[m] for m in members] for members, of in rows.items() if len(of) == len(members)]


def _is(op: Op, function: str) -> bool:
    return isinstance(op, Elementwise) and op.function == function


def _exact(op: Sparse) -> bool:
    return op.weight_error is None and op.bias_error is None


def _ends(gaps: Sparse) -> tuple[Index, Index] | None:
    """Which entries the differences subtract, and which they subtract from; None: they are no differences."""
    if gaps.bias.any() or not bool((np.diff(gaps.weight.indptr) == 2).all()):
        return None
    columns, values = gaps.weight.indices.astype(np.int64).reshape(-1, 2), gaps.weight.data.reshape(-1, 2)
    if bool((np.sort(values, 1) != np.array([-1.0, 1.0])).any()):
        return None
    minus = np.take_along_axis(columns, values.argmin(1)[:, None], 1)[:, 0]
    plus = np.take_along_axis(columns, values.argmax(1)[:, None], 1)[:, 0]
    return minus, plus
