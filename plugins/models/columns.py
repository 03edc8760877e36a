"""The columns of a table as a scikit-learn pipeline reads them: by name, and categories among them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from verifolio.errors import InputError
from verifolio.plugin.exporter import Array

from .operators import ENCODERS

INPUT = "input"  # the one tensor that the network reads
Categories = Mapping[int, tuple[Any, ...]]


def final_step(model: Any) -> Any:
    """The estimator at the end of a pipeline."""
    return final_step(model.steps[-1][1]) if hasattr(model, "steps") else model


def first_step(model: Any) -> Any:
    """What reads the data."""
    return first_step(model.steps[0][1]) if hasattr(model, "steps") else model


def parts_of(model: Any, features: tuple[str, ...], size: int) -> list[tuple[Any, list[int]]]:
    """What reads which columns of the data."""
    first = first_step(model)
    if not hasattr(first, "transformers_"):
        return [(first, list(range(size)))]
    parts = [(part, positions_of(columns, features, size)) for _, part, columns in first.transformers_]
    return [(part, columns) for part, columns in parts if not (isinstance(part, str) and part == "drop")]


def positions_of(columns: Any, features: tuple[str, ...], size: int) -> list[int]:
    """Columns by name, position, slice or mask, as positions."""
    if isinstance(columns, slice):
        ends = [features.index(e) if isinstance(e, str) else e for e in (columns.start, columns.stop)]
        stop = ends[1] + 1 if isinstance(columns.stop, str) else ends[1]
        return list(range(size))[slice(ends[0], stop, columns.step)]
    listed = [columns] if isinstance(columns, str | int) else list(columns)
    if listed and all(isinstance(c, bool | np.bool_) for c in listed):
        return [k for k, chosen in enumerate(listed) if chosen]
    return [features.index(c) if isinstance(c, str) else int(c) for c in listed]


def categories_of(model: Any, features: tuple[str, ...], size: int) -> dict[int, tuple[Any, ...]]:
    """The values of the columns that encoders read, and none for columns that nobody reads.

    Refuses a column that an encoder and something else read.
    """
    found: dict[int, tuple[Any, ...]] = {}
    others: set[int] = set()
    for part, columns in parts_of(model, features, size):
        lists = getattr(final_step(part), "categories_", None)
        if lists is None:
            others.update(columns)
            continue
        for k, values in zip(columns, lists, strict=True):
            plain = tuple(v.item() if hasattr(v, "item") else v for v in values)
            if found.setdefault(k, plain) != plain:
                others.add(k)
    both = sorted(others & set(found))
    if both:
        name = features[both[0]] if features else str(both[0])
        remedy = "give the model a copy of the column for its other use"
        raise InputError(f"column {name}", "one encoder that reads it", "another use besides", remedy)
    unread = set(range(size)) - others - set(found)
    return found | dict.fromkeys(unread, ())


def check_encoders(graph: Any, model: Any, features: tuple[str, ...], size: int) -> None:
    """Refuse encoders of anything but columns of the data: only these are known to be whole numbers."""
    ends = [(final_step(part), columns) for part, columns in parts_of(model, features, size)]
    known = sum(len(columns) for end, columns in ends if hasattr(end, "categories_"))
    if sum(node.op_type in ENCODERS for node in graph.node) > known:
        expected = "encoders of columns of the data, in the first step"
        raise InputError("model", expected, "one of something computed", "encode the column itself")


def column_types(features: tuple[str, ...], size: int, categories: Categories) -> list[tuple[str, Any]]:
    """The inputs that skl2onnx is told: one tensor, or one for each column where columns have names."""
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    if not features:
        return [(INPUT, FloatTensorType([1, size]))]
    texts = {k for k, values in categories.items() if any(isinstance(v, str) for v in values)}
    return [
        (name, StringTensorType([1, 1]) if k in texts else FloatTensorType([1, 1]))
        for k, name in enumerate(features)
    ]


def join_inputs(graph: Any, size: int) -> None:
    """One input tensor in place of one for each column."""
    from onnx import TensorProto, helper, numpy_helper

    if [i.name for i in graph.input] == [INPUT]:
        return
    read = INPUT
    while any(read == i.name for i in graph.input):
        read += "_"
    nodes = []
    for k, column in enumerate(graph.input):
        graph.initializer.append(numpy_helper.from_array(np.array([k], np.int64), f"{read}_{k}"))
        nodes.append(helper.make_node("Gather", [read, f"{read}_{k}"], [column.name], axis=1))
    rest = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.node.extend([*nodes, *rest])
    graph.input.append(helper.make_tensor_value_info(read, TensorProto.FLOAT, [1, size]))


def framed(x: Array, features: tuple[str, ...], categories: Categories) -> Any:
    """The inputs as the estimator was fitted: by name, with the values of categories."""
    flat = np.asarray(x, np.float32).reshape(len(x), -1)
    if not features and not categories:
        return flat
    columns = [
        [categories[k][int(v)] for v in flat[:, k]] if categories.get(k) else flat[:, k]
        for k in range(flat.shape[1])
    ]
    if not features or "pandas" not in sys.modules:
        return np.array([np.asarray(c, np.float32) for c in columns]).T
    return sys.modules["pandas"].DataFrame(dict(zip(features, columns, strict=True)))
