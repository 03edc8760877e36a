"""Queries as files that other tools read: VNN-LIB 2.0 on the networks, VNN-LIB 1.0 on a merged network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Reference
from verifolio.vnnlib import (
    NetworkDeclaration,
    Rows,
    Tensor,
    box_case,
    make_rows,
    specification_from_cases,
    write,
)

from .compose import merge, write_distance
from .joint import class_counts, dnf
from .ledger import set_key

Terms = list[tuple[dict[int, Any], Any]]


def keep_query(folder: Path, name: str, networks: Sequence[Network], reference: Reference) -> list[Path]:
    """Write the query about these networks at this point; gives the files, property files first.

    `NAME.v2.vnnlib` declares every network (and, for an L1 ball, one that computes the distance) and makes
    their inputs equal. `NAME.vnnlib` is about `joint-....onnx`, the networks merged over one input, with
    the distance as its last output where there is a ball. An L2 ball has no form in VNN-LIB: nothing is
    written but a note.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if reference.norm == 2:
        note = folder / f"{name}.txt"
        note.write_text("An L2 ball is not linear: VNN-LIB has no form for this query.\n")
        return [note]
    sizes = class_counts(networks, reference)
    centre = None if math.isinf(reference.norm) else reference.x
    key = set_key(n.sha256 for n in networks)
    merged = folder / f"joint-{_short(key, centre)}.onnx"
    merge(networks, merged, centre)
    one, two = folder / f"{name}.vnnlib", folder / f"{name}.v2.vnnlib"
    one.write_text(f"; network {merged.name}\n" + _version_one(sizes, reference))
    lines = [f"; N{k} is {n.path}" for k, n in enumerate(networks)]
    if centre is not None:
        distance = folder / f"distance-{_short('', centre)}.onnx"
        write_distance(centre, networks[0].inputs[0].shape, distance)
        lines.append(f"; N{len(networks)} is {distance.name}")
    two.write_text("\n".join(lines) + "\n" + _version_two(networks, reference))
    return [one, two, merged]


def _short(key: str, centre: np.ndarray[Any, np.dtype[np.float64]] | None) -> str:
    import hashlib

    return hashlib.sha256(key.encode() + (b"" if centre is None else centre.tobytes())).hexdigest()[:12]


def _version_one(sizes: Sequence[int], reference: Reference) -> str:
    """Outputs of all networks in a row, then perhaps the distance."""
    lower, upper = reference.box
    inputs, outputs = len(lower), sum(sizes)
    disjuncts = dnf(tuple(sizes), reference.label, inputs)
    if not math.isinf(reference.norm):
        limit: Terms = [({inputs + outputs: 1.0}, reference.epsilon)]
        disjuncts = tuple(_with(rows, limit) for rows in disjuncts)
        outputs += 1
    return write(specification_from_cases([box_case(lower, upper, disjuncts)], output_size=outputs))


def _version_two(networks: Sequence[Network], reference: Reference) -> str:
    """One input tensor per network, all equal to the first one's."""
    lower, upper = reference.box
    width = len(lower)
    declared = [_declaration(k, n.inputs[0].shape, n.outputs[0].shape) for k, n in enumerate(networks)]
    limit: Terms = []
    count = len(networks)
    if not math.isinf(reference.norm):
        declared.append(_declaration(count, networks[0].inputs[0].shape, (1, 1)))
        count += 1
    inputs = count * width
    sizes = [n.output_size for n in networks]
    if count > len(networks):
        limit = [({inputs + sum(sizes): 1.0}, reference.epsilon)]
    equal: Terms = [({j: 1.0, k * width + j: -1.0}, 0.0) for k in range(1, count) for j in range(width)]
    equal += [({c: -v for c, v in terms.items()}, 0.0) for terms, _ in equal]
    disjuncts = tuple(_with(rows, limit) for rows in dnf(tuple(sizes), reference.label, inputs))
    case = box_case(np.tile(lower, count), np.tile(upper, count), disjuncts, make_rows(equal))
    placed = _offsets(declared)
    outputs = sum(sizes) + len(limit)
    return write(specification_from_cases([case], output_size=outputs, networks=placed, version="2.0"))


def _declaration(k: int, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> NetworkDeclaration:
    x, y = Tensor(f"X{k}", "Real", inputs, 0), Tensor(f"Y{k}", "Real", outputs, 0)
    return NetworkDeclaration(f"N{k}", (x,), (y,), None, None)


def _offsets(declared: Sequence[NetworkDeclaration]) -> tuple[NetworkDeclaration, ...]:
    """The same with every tensor's place in the flat inputs and outputs."""
    placed, x_at, y_at = [], 0, 0
    for d in declared:
        x, y = d.inputs[0], d.outputs[0]
        xs, ys = Tensor(x.name, x.dtype, x.shape, x_at), Tensor(y.name, y.dtype, y.shape, y_at)
        placed.append(NetworkDeclaration(d.name, (xs,), (ys,), None, None))
        x_at, y_at = x_at + math.prod(x.shape), y_at + math.prod(y.shape)
    return tuple(placed)


def _with(rows: Rows, more: Terms) -> Rows:
    """The rows and more."""
    return make_rows([*((dict(r.terms), r.rhs) for r in rows.linear_rows()), *more])
