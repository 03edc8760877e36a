"""scikit-learn estimators and pipelines as ONNX, through skl2onnx, in operators of ONNX proper."""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.encode.scores import cut_head, keep_live
from verifolio.errors import InputError, UnsupportedNetwork
from verifolio.plugin.exporter import Array, Export, Exporter

from .columns import (
    Categories,
    categories_of,
    check_encoders,
    column_types,
    final_step,
    first_step,
    framed,
    join_inputs,
)
from .operators import MACHINE_LEARNING, translate

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
            remedy = "leave columns out, or name the column of the labels (y='...')"
            if size < model.n_features_in_:
                fitted = ", ".join(map(str, getattr(model, "feature_names_in_", ())[:20]))
                remedy = f"it was fitted on {fitted or 'other data'}"
            raise InputError(f"model {name}", f"inputs of {model.n_features_in_} features", str(size), remedy)
        classes = tuple(c.item() if hasattr(c, "item") else c for c in getattr(last, "classes_", ()))
        features = tuple(map(str, getattr(model, "feature_names_in_", ())))
        categories = categories_of(model, features, size)
        data = to_onnx(model, features, size, categories, bool(classes))
        positions = {c: k for k, c in enumerate(classes)}

        def answers(x: Array) -> NDArray[Any]:
            found = np.asarray(model.predict(framed(x, features, categories)))
            if classes and found.ndim > 1:
                remedy = "ask about one label at a time"
                raise InputError(f"model {name}", "one class for every input", "several at once", remedy)
            return found

        def predict(x: Array) -> NDArray[np.int64]:
            return np.array([positions[v] for v in answers(x).tolist()], np.int64)

        def outputs(x: Array) -> Array:
            return np.asarray(answers(x), np.float64).reshape(len(x), -1)

        if classes:
            return Export(data, name.lower(), None, predict, classes, features, categories)
        return Export(data, name.lower(), outputs, None, (), features, categories, quantities=True)


def refuse_trees(model: Any) -> None:
    """Ensembles of trees are not neural networks; they are refused by name, wherever they are in the model."""
    name = type(model).__name__
    if any(word in name for word in TREES):
        expected = "a neural network, a linear model, or a pipeline that ends in one"
        remedy = "tree ensembles need a verifier of their own kind, which is not part of verifolio"
        raise UnsupportedNetwork(f"model {name}", expected, "a tree ensemble", remedy)
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else []
    inside = [getattr(model, part, None) for part in ("best_estimator_", "estimator_")]
    members = getattr(model, "estimators_", ())
    for step in (*steps, *inside, *(members if isinstance(members, list) else ())):
        if step is not None and not isinstance(step, str):
            refuse_trees(step)


def to_onnx(
    model: Any, features: tuple[str, ...], size: int, categories: Categories, classifies: bool
) -> bytes:
    """skl2onnx's model with scores as its only output, in operators of the main domain."""
    last = final_step(model)
    by_name = features if hasattr(first_step(model), "transformers_") or categories else ()
    found = converted(model, last, column_types(by_name, size, categories), classifies)
    if classifies:
        scores = found.graph.output[-1]
        del found.graph.output[:]
        found.graph.output.append(scores)
    keep_live(found.graph)
    check_encoders(found.graph, model, features, size)
    translate(found.graph, type(last).__name__)
    join_inputs(found.graph, size)
    cut_head(found.graph)
    keep_live(found.graph)
    return bytes(found.SerializeToString(deterministic=True))


def converted(model: Any, last: Any, types: list[tuple[str, Any]], classifies: bool) -> Any:
    """skl2onnx's model, with the first options that the estimator has."""
    from skl2onnx import to_onnx as convert

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
                found = convert(model, initial_types=types, options=choice, target_opset=OPSETS)
            break
        except NameError as error:  # an option that this estimator does not have
            why = str(error)
        except Exception as error:  # a step without an ONNX form, and what converters raise else
            raise _no_form(last, error) from None
    if found is None:
        raise _no_form(last, NameError(why))
    return found


def _no_form(last: Any, error: Exception) -> InputError:
    text = " ".join(str(error).split())[:200]
    remedy = "leave out the step that it names, or do it before"
    return InputError(f"model {type(last).__name__}", "an estimator that skl2onnx converts", text, remedy)
