"""scikit-learn estimators and pipelines as ONNX, through skl2onnx, in operators of ONNX proper."""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError, UnsupportedNetwork
from verifolio.plugin.exporter import Array, Export, Exporter

from .heads import cut_head, keep_live

MACHINE_LEARNING = "ai.onnx.ml"
OPSETS = {"": 17, MACHINE_LEARNING: 3}  # old enough for every release of ONNX Runtime that is allowed
# jumps everywhere: no gradient, no bound propagation
TREES = ("Tree", "Forest", "Boosting", "Bagging", "XGB", "LGBM", "CatBoost", "AdaBoost")


class SklearnModel(Exporter):
    """A fitted classifier or regressor, alone or at the end of a pipeline whose steps have an ONNX form."""

    name: ClassVar[str] = "sklearn"

    @classmethod
    def available(cls) -> str | None:
        return None if find_spec("skl2onnx") else "needs the package skl2onnx: pip install skl2onnx"

    @classmethod
    def accepts(cls, model: object) -> bool:
        base = sys.modules.get("sklearn.base")
        return base is not None and isinstance(model, base.BaseEstimator) and hasattr(model, "predict")

    def export(self, model: Any, shape: tuple[int, ...]) -> Export:
        last = final_step(model)
        name = type(last).__name__
        refuse_trees(model)
        if getattr(model, "n_features_in_", None) is None:
            raise InputError(f"model {name}", "a fitted estimator", "one that is not", "call fit first")
        size = int(np.prod(shape))
        if size != model.n_features_in_:
            raise InputError(f"model {name}", f"inputs of {model.n_features_in_} features", str(size))
        classes = tuple(c.item() if hasattr(c, "item") else c for c in getattr(last, "classes_", ()))
        data = to_onnx(model, last, size, bool(classes))
        features = tuple(map(str, getattr(model, "feature_names_in_", ())))
        positions = {c: k for k, c in enumerate(classes)}

        def predict(x: Array) -> NDArray[np.int64]:
            found = model.predict(framed(x, features))
            return np.array([positions[v.item() if hasattr(v, "item") else v] for v in found], np.int64)

        def outputs(x: Array) -> Array:
            return np.asarray(model.predict(framed(x, features)), np.float64).reshape(len(x), -1)

        if classes:
            return Export(data, name.lower(), None, predict, classes, features)
        return Export(data, name.lower(), outputs, None, (), features)


def framed(x: Array, features: tuple[str, ...]) -> Any:
    """The inputs as the estimator was fitted: it warns where names are missing."""
    flat = np.asarray(x, np.float32).reshape(len(x), -1)
    if not features or "pandas" not in sys.modules:
        return flat
    return sys.modules["pandas"].DataFrame(flat, columns=list(features))


def final_step(model: Any) -> Any:
    """The estimator at the end of a pipeline."""
    return final_step(model.steps[-1][1]) if hasattr(model, "steps") else model


def refuse_trees(model: Any) -> None:
    """Ensembles of trees are not neural networks; they are refused by name."""
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    for step in steps:
        name = type(step).__name__
        if any(word in name for word in TREES):
            expected = "a neural network, a linear model, or a pipeline that ends in one"
            remedy = "tree ensembles need a verifier of their own kind, which is not part of verifolio"
            raise UnsupportedNetwork(f"model {name}", expected, "a tree ensemble", remedy)


def to_onnx(model: Any, last: Any, size: int, classifies: bool) -> bytes:
    """skl2onnx's model with scores as its only output, in operators of the main domain."""
    from skl2onnx import to_onnx as convert
    from skl2onnx.common.data_types import FloatTensorType

    shapes = [("input", FloatTensorType([1, size]))]
    both = {"zipmap": False, "raw_scores": True}
    tried: list[dict[int, Any]] = [
        {id(last): both},
        {id(last): {"raw_scores": True}},
        {id(last): {"zipmap": False}},
        {},
    ]
    found, why = None, ""
    for choice in tried if classifies else [{}]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = convert(model, initial_types=shapes, options=choice, target_opset=OPSETS)
            break
        except NameError as error:  # an option that this estimator does not have
            why = str(error)
        except Exception as error:  # a step without an ONNX form, and what converters raise else
            raise _no_form(last, error) from None
    if found is None:
        raise _no_form(last, NameError(why))
    if classifies:
        scores = found.graph.output[-1]
        del found.graph.output[:]
        found.graph.output.append(scores)
    keep_live(found.graph)
    translate(found.graph, type(last).__name__)
    cut_head(found.graph)
    keep_live(found.graph)
    return bytes(found.SerializeToString(deterministic=True))


def _no_form(last: Any, error: Exception) -> InputError:
    text = " ".join(str(error).split())[:200]
    remedy = "leave out the step that it names, or do it before"
    return InputError(f"model {type(last).__name__}", "an estimator that skl2onnx converts", text, remedy)


def translate(graph: Any, name: str) -> None:
    """The operators of the domain for machine learning in those of the main one."""
    nodes: list[Any] = []
    foreign = {n.op_type for n in graph.node if n.domain == MACHINE_LEARNING} - set(FORMS)
    if foreign:
        expected = f"steps made of sums, products, {', '.join(FORMS)}"
        raise UnsupportedNetwork(
            f"model {name}", expected, ", ".join(sorted(foreign)), "use another estimator"
        )
    for node in list(graph.node):
        nodes += FORMS[node.op_type](graph, node) if node.domain == MACHINE_LEARNING else [node]
    del graph.node[:]
    graph.node.extend(nodes)


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _constant(graph: Any, hint: str, values: Any) -> str:
    from onnx import numpy_helper

    name = f"{hint}_{len(graph.initializer)}"
    graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
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


FORMS = {"Scaler": _scaler, "LinearClassifier": _linear, "LinearRegressor": _linear}
