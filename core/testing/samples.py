"""A network one can compute in one's head, queries about it, and files as earlier versions wrote them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from verifolio.encode.onnx_writer import write_onnx
from verifolio.graph import Dense, Graph, GraphBuilder, Relu
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.vnnlib import box_case, make_rows, specification_from_cases


def sum_graph(size: int = 2) -> Graph:
    """y_0 = relu(x_0) + relu(x_1) + ..., y_1 = relu(x_0) - relu(x_1) - ..."""
    builder = GraphBuilder(size)
    hidden = builder.add(Relu(size), builder.add(Dense(size, np.zeros(size), np.eye(size)), 0))
    weight = np.vstack([np.ones(size), np.concatenate([[1.0], -np.ones(size - 1)])])
    return builder.finish(builder.add(Dense(2, np.zeros(2), weight), hidden))


def write_sum(folder: Path, size: int = 2) -> Network:
    """The network of `sum_graph` as a file."""
    path = folder / f"sum{size}.onnx"
    if not path.exists():
        write_onnx(sum_graph(size), path)
    return Network.load(path)


def reaches(
    network: Network,
    threshold: float,
    lower: Sequence[float] = (0.0, 0.0),
    upper: Sequence[float] = (1.0, 1.0),
    *,
    strict: bool = False,
    ball: Ball | None = None,
) -> Query:
    """Is there a point of the box with y_0 >= threshold (> if strict)? On the unit square: iff <= 2."""
    rows = make_rows([({len(lower): -1.0}, -threshold)], strict=strict)
    case = box_case(list(lower), list(upper), [rows])
    specification = specification_from_cases([case], output_size=2)
    return Query((network,), specification, ball, name=f"y_0 >= {threshold:g}")


def age(path: Path) -> None:
    """Make a store or ledger what it was before rows carried a soundness revision."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if "revision" in [r[1] for r in connection.execute(f"PRAGMA table_info({table})")]:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN revision")
        connection.commit()
