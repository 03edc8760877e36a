"""Data of any kind as a data set: arrays, tensors, frames, data sets of torch, and everything that `--data` reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.data import in_layout, load_data
from verifolio.errors import InputError
from verifolio.plugin.data_source import NO_LABEL, Dataset

BYTE = 255.0  # the largest value of a pixel that is stored in a byte
MOST_CLASSES = 10_000  # more different labels than that are numbers of another kind
LIMIT = 100_000  # inputs that are read from a data set of torch; its length is not always known


def as_dataset(
    X: object, y: object = None, *, shape: Sequence[int] | None = None, layout: str = "", name: str = "data"
) -> Dataset:
    """Inputs along the first axis, and labels: numbers from 0, or names, which are sorted to give the numbers.

    Bytes are scaled to [0, 1]. `shape` is that of one input where the data is flat.
    """
    if isinstance(X, Dataset):
        return in_layout(_relabelled(X, y), layout)
    if isinstance(X, str | Path):
        if isinstance(y, str):  # the name of a column
            X, y = f"{X}:{y}", None
        return in_layout(_relabelled(load_data(str(X)), y), layout)
    features: tuple[str, ...] = ()
    categories: dict[int, tuple[str, ...]] = {}
    if _is_frame(X):
        X, y, features, categories = _from_frame(X, y)
    elif _is_torch_dataset(X):
        X, y = _from_torch(X, y)
    inputs = _array(X, "inputs")
    _check_inputs(X, inputs)
    if inputs.dtype.kind == "f":
        with np.errstate(over="ignore"):
            inputs = inputs.astype(
                np.float32
            )  # what networks read; a feature that may not change is one such number
        if not np.isfinite(inputs).all():
            raise InputError("inputs", "finite values", "nan or infinity", "clean the data")
    labels, names = _labels(y, len(inputs))
    axes = tuple(shape) if shape is not None else inputs.shape[1:]
    if int(np.prod(axes)) != int(np.prod(inputs.shape[1:])):
        raise InputError(
            "shape", f"{int(np.prod(inputs.shape[1:]))} values per input", f"{axes}", "check the shape"
        )
    scale = BYTE if inputs.dtype == np.uint8 else 1.0
    flat = inputs.reshape(len(inputs), -1)
    classes = len(names) or int(labels.max(initial=NO_LABEL)) + 1
    about = (name, "all", flat, labels, tuple(int(n) for n in axes), classes, scale)
    return in_layout(Dataset(*about, features, names, categories), layout)


def _check_inputs(given: object, inputs: NDArray[Any]) -> None:
    """Refuse what is no array of numbers with at least one input along its first axis."""
    if inputs.dtype.kind in "fiub" and inputs.ndim >= 2 and inputs.size:
        return
    expected, got = "numbers, with one input along the first axis", f"{inputs.dtype} of shape {inputs.shape}"
    remedy = "one input x is x[None]" if inputs.ndim == 1 else "give an array, a tensor, a frame or a path"
    if inputs.dtype.kind not in "fiub" and not hasattr(given, "shape"):
        got = f"{type(given).__module__}.{type(given).__name__}"
        remedy = "the order is model, inputs, labels"
    elif inputs.ndim >= 2 and not inputs.size:
        expected, got = "at least one input", f"none (shape {'x'.join(map(str, inputs.shape))})"
        remedy = "was everything filtered out?"
    raise InputError("inputs", expected, got, remedy)


def one_input(x: object, label: object = None, **how: Any) -> Dataset:
    """A data set of a single input without a batch axis, or of one row of a table, or of one picture."""
    labels: object = None if label is None else [label]
    if isinstance(x, str | Path | Dataset) or _is_frame(x):
        named = isinstance(label, str) and label in getattr(x, "columns", ())
        found = as_dataset(x, label if named else None, **how)
        if len(found) != 1:
            remedy = "verifolio.robustness asks about many"
            raise InputError("input", "one", f"{len(found)}", remedy)
        return found if named else _relabelled(found, labels)
    values = _array(x, "input")
    if values.ndim == 2 and len(values) == 1:  # a row of a table, with the axis of rows
        values = values[0]
    return as_dataset(values[None], labels, **how)


def label_text(label: object) -> str:
    """A label as text; whole numbers look alike, however they are stored."""
    value = label.item() if hasattr(label, "item") else label
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _relabelled(data: Dataset, y: object) -> Dataset:
    if y is None:
        return data
    labels, names = _labels(y, len(data))
    return replace(
        data, labels=labels, classes=len(names) or int(labels.max(initial=-1)) + 1, class_names=names
    )


def _labels(y: object, count: int) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Class numbers, and their names where the labels are names."""
    if y is None:
        return np.full(count, NO_LABEL, np.int64), ()
    given = _array(y, "labels")
    if (
        given.ndim == 2
        and given.shape[1] > 1
        and given.dtype.kind in "fiub"
        and (given.sum(axis=1) == 1).all()
        and ((given == 0) | (given == 1)).all()
    ):
        given = given.argmax(axis=1)  # one-hot
    given = given.ravel()
    if len(given) != count:
        raise InputError("labels", f"{count}, as many as inputs", str(len(given)), "check X and y")
    if given.dtype.kind in "fiu":
        whole = given.astype(np.int64)
        if (whole == given).all() and (whole >= 0).all() and int(whole.max(initial=0)) < MOST_CLASSES:
            return whole, ()
        if (whole == given).all() and (whole < 0).any() and len(set(whole.tolist())) < MOST_CLASSES:
            return _named([str(v) for v in whole.tolist()], key=int)  # such as -1 and 1
        raise InputError(
            "labels", "class numbers from 0, or names", f"such as {given[0]}", "labels are classes"
        )
    texts = [label_text(v) for v in given.tolist()]
    if all(t.isascii() and t.isdigit() and len(t) < 10 for t in texts):
        return _labels(np.array(texts, np.int64), count)
    return _named(texts)


def _named(
    texts: list[str], key: Callable[[str], Any] | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Positions of names in their order."""
    names = tuple(sorted(set(texts), key=key))
    position = {name: k for k, name in enumerate(names)}
    return np.array([position[t] for t in texts], np.int64), names


def _array(value: object, what: str) -> NDArray[Any]:
    """Anything that is an array, without importing what it comes from."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return np.asarray(value.detach().cpu().numpy())
    if torch is not None and isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
        return np.stack([v.detach().cpu().numpy() for v in value])
    try:
        return np.asarray(value)
    except Exception as error:  # whatever a stranger's array raises; rows of different length, for one
        raise InputError(what, "an array of numbers", " ".join(str(error).split())[:100]) from None


def _is_frame(value: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def recoded(data: Dataset, categories: Mapping[int, tuple[Any, ...]]) -> Dataset:
    """The data with the places that a model gives to the values of its categories; refuses what is no number else.

    A feature without values is one that the model does not read.
    """
    for k in set(data.categories) - set(categories):
        remedy = "encode it as numbers inside or before the model, or name the column of the labels (y='...')"
        raise InputError(
            f"column {data.features[k]}", "numbers", f"such as {data.categories[k][0]!r}", remedy
        )
    if not categories:
        return data
    read = {k: values for k, values in categories.items() if values}
    raw = np.array(data.raw, np.float32) / np.float32(data.scale)
    for k, values in read.items():
        places = {_value(v): place for place, v in enumerate(values)}
        known = data.categories.get(k)
        column = [_value(v if known is None else known[int(v)]) for v in raw[:, k].tolist()]
        strange = next((v for v in column if v not in places), None)
        if strange is not None:
            where = f"column {data.features[k] if data.features else k}"
            expected = f"one of {', '.join(map(str, values[:10]))}"
            raise InputError(where, expected, repr(strange), "the model has not seen it")
        raw[:, k] = [places[v] for v in column]
    unread = {k: v for k, v in data.categories.items() if k not in read}
    return replace(data, raw=raw, scale=1.0, categories=unread | read)


def _value(value: Any) -> float | str:
    """Numbers and texts that are equal, however they are stored."""
    return str(value) if isinstance(value, str) else float(value)


def _from_frame(frame: Any, y: object) -> tuple[Any, Any, tuple[str, ...], dict[int, tuple[str, ...]]]:
    """Values, labels, the names of the features, and the texts of columns that are no numbers.

    `y` may be the name of a column.
    """
    if isinstance(y, str):
        if y not in frame.columns:
            raise InputError("labels", f"a column among {', '.join(map(str, frame.columns))}", repr(y))
        frame, y = frame.drop(columns=[y]), frame[y]
    columns, categories = [], {}
    for k, name in enumerate(frame.columns):
        column = frame[name]
        if column.isna().any():
            remedy = "fill it in, or leave the row out: what is missing cannot change by a radius"
            raise InputError(f"column {name}", "a value in every row", "a missing one", remedy)
        if column.dtype.kind not in "fiub":
            texts = column.astype(str)
            categories[k] = tuple(sorted(set(texts)))
            column = texts.map({text: place for place, text in enumerate(categories[k])})
        columns.append(np.asarray(column, np.float64))
    labels = None if y is None else np.asarray(y)
    return np.stack(columns, axis=1), labels, tuple(str(c) for c in frame.columns), categories


def _is_torch_dataset(value: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.Dataset | data.DataLoader)


def _from_torch(source: Any, y: object) -> tuple[Any, Any]:
    """Inputs and labels of a data set or loader, read to the end."""
    inputs: list[NDArray[Any]] = []
    labels: list[Any] = []
    batches = type(source).__name__ == "DataLoader" or hasattr(source, "batch_sampler")
    for item in source if batches else (source[k] for k in range(len(source))):
        x, label = item if isinstance(item, list | tuple) and len(item) == 2 else (item, None)
        values = _array(x, "inputs")
        inputs += list(values) if batches else [values]
        if label is not None:
            labels += list(np.atleast_1d(_array(label, "labels")))
        if len(inputs) > LIMIT:
            raise InputError("data set", f"at most {LIMIT} inputs", "more", "use torch.utils.data.Subset")
    return np.stack(inputs), (np.array(labels) if labels and y is None else y)
