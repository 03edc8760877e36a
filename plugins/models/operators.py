"""The ONNX operators for machine learning that skl2onnx writes, in those of ONNX proper."""

from __future__ import annotations

from typing import Any

import numpy as np

from verifolio.errors import UnsupportedNetwork

MACHINE_LEARNING = "ai.onnx.ml"
COLUMNS = "ArrayFeatureExtractor"  # some columns, where the positions are constants
ENCODERS = ("OneHotEncoder", "LabelEncoder")


def translate(graph: Any, name: str) -> None:
    """Replace every operator of the domain for machine learning."""
    nodes: list[Any] = []
    known = {t.name for t in graph.initializer}
    foreign = {n.op_type for n in graph.node if n.domain == MACHINE_LEARNING} - set(FORMS)
    foreign |= {n.op_type for n in graph.node if n.op_type == COLUMNS and n.input[1] not in known}
    if foreign:
        expected = f"steps made of sums, products, {', '.join(FORMS)}"
        raise UnsupportedNetwork(
            f"model {name}", expected, ", ".join(sorted(foreign)), "use another estimator"
        )
    drop_casts(graph)
    for node in list(graph.node):
        nodes += FORMS[node.op_type](graph, node) if node.domain == MACHINE_LEARNING else [node]
    del graph.node[:]
    graph.node.extend(nodes)


def drop_casts(graph: Any) -> None:
    """Encoders read places of categories, which are whole numbers already."""
    makers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type in ENCODERS:
            while node.input[0] in makers and makers[node.input[0]].op_type in ("Cast", "Identity"):
                node.input[0] = makers[node.input[0]].input[0]


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _constant(graph: Any, hint: str, values: Any, kind: Any = np.float32) -> str:
    from onnx import numpy_helper

    name = f"{hint}_{len(graph.initializer)}"
    graph.initializer.append(numpy_helper.from_array(np.asarray(values, kind), name))
    return name


def _scaler(graph: Any, node: Any) -> list[Any]:
    """(x - offset) * scale."""
    from onnx import helper

    told = _attributes(node)
    moved = f"{node.output[0]}_moved"
    offset, scale = (_constant(graph, w, np.reshape(told[w], (1, -1))) for w in ("offset", "scale"))
    return [
        helper.make_node("Sub", [node.input[0], offset], [moved]),
        helper.make_node("Mul", [moved, scale], [node.output[0]]),
    ]


def _linear(graph: Any, node: Any) -> list[Any]:
    """x W^T + b; a classifier's scores are its second output."""
    from onnx import helper

    told = _attributes(node)
    if told.get("post_transform", b"NONE") != b"NONE":
        expected = "scores before any transformation"
        raise UnsupportedNetwork(
            node.op_type, expected, told["post_transform"].decode(), "use another estimator"
        )
    intercepts = told.get("intercepts") or [0.0]
    weights = _constant(graph, "weights", np.reshape(told["coefficients"], (len(intercepts), -1)))
    bias = _constant(graph, "bias", intercepts)
    return [helper.make_node("Gemm", [node.input[0], weights, bias], [node.output[-1]], transB=1)]


def _imputer(graph: Any, node: Any) -> list[Any]:
    """What is there is not filled in, and inputs are finite numbers."""
    from onnx import helper

    missing = _attributes(node).get("replaced_value_float", np.nan)
    if not np.isnan(missing):
        got = f"{missing:g} for a missing value"
        raise UnsupportedNetwork("SimpleImputer", "nan for a missing value", got, "leave out the step")
    return [helper.make_node("Identity", [node.input[0]], [node.output[0]])]


def _columns(graph: Any, node: Any) -> list[Any]:
    """Some columns, by constant positions."""
    from onnx import helper

    return [helper.make_node("Gather", list(node.input), list(node.output), axis=1)]


def _one_hot(graph: Any, node: Any) -> list[Any]:
    """1 at the place of the category: of a whole number x, relu(x-k+1) - 2 relu(x-k) + relu(x-k-1) is 1 only at k."""
    from onnx import helper

    told = _attributes(node)
    count = len(told["cats_strings"] if told.get("cats_strings") else told["cats_int64s"])
    name = node.output[0]
    shape = _constant(graph, "shape", [1, 1, 1], np.int64)
    nodes = [helper.make_node("Reshape", [node.input[0], shape], [f"{name}_place"])]
    for shift in (1, 0, -1):
        by = _constant(graph, "place", np.arange(count).reshape(1, 1, -1) - shift)
        nodes.append(helper.make_node("Sub", [f"{name}_place", by], [f"{name}_moved{shift}"]))
        nodes.append(helper.make_node("Relu", [f"{name}_moved{shift}"], [f"{name}_part{shift}"]))
    two = _constant(graph, "two", 2.0)
    nodes.append(helper.make_node("Mul", [f"{name}_part0", two], [f"{name}_twice"]))
    nodes.append(helper.make_node("Sub", [f"{name}_part1", f"{name}_twice"], [f"{name}_rest"]))
    nodes.append(helper.make_node("Add", [f"{name}_rest", f"{name}_part-1"], [name]))
    return nodes


def _places(graph: Any, node: Any) -> list[Any]:
    """The place of a category, which is what the network reads."""
    from onnx import helper

    told = _attributes(node)
    values = next(told[k] for k in ("values_int64s", "values_floats") if k in told)
    if list(values) != list(range(len(values))):
        raise UnsupportedNetwork("OrdinalEncoder", "places from 0", str(list(values)[:5]), "use another")
    return [helper.make_node("Identity", [node.input[0]], [node.output[0]])]


FORMS = {
    "Scaler": _scaler,
    "LinearClassifier": _linear,
    "LinearRegressor": _linear,
    "Imputer": _imputer,
    COLUMNS: _columns,
    "OneHotEncoder": _one_hot,
    "LabelEncoder": _places,
}
