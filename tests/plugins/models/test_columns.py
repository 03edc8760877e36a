"""Tables as scikit-learn pipelines read them: columns by name, categories, imputers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

import verifolio
from verifolio.errors import InputError

NUMBERS = ["age", "income", "score"]
HOW: dict[str, Any] = {"executor": "inline", "timeout": 20, "progress": False}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_CACHE", str(tmp_path / "cache"))


def table() -> tuple[Any, Any]:
    rng, n = np.random.default_rng(1), 120
    frame = pandas.DataFrame(
        {
            "age": rng.integers(20, 70, n).astype(float),
            "city": rng.choice(["Aachen", "Berlin", "Celle"], n),
            "income": rng.normal(3000, 800, n),
            "kind": pandas.Categorical(rng.choice(["a", "b"], n)),
            "rooms": rng.choice([1, 2, 4], n),
            "score": rng.random(n),
        }
    )
    y = np.where(frame.age / 10 + frame.income / 1000 + 3 * (frame.city == "Berlin") > 8.5, "yes", "no")
    return frame, y


def fitted(*steps: Any) -> Any:
    frame, y = table()
    last = MLPClassifier((8,), max_iter=80, random_state=0)
    return make_pipeline(*steps, last).fit(frame, y)


EVERYTHING = ColumnTransformer(
    [
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["score", "income"]),
        ("texts", OneHotEncoder(), ["city", "kind"]),
        ("rooms", OneHotEncoder(drop="first"), ["rooms"]),
    ],
    remainder=MinMaxScaler(),
)


@pytest.mark.parametrize(
    "columns",
    [
        EVERYTHING,
        ColumnTransformer([("n", StandardScaler(), NUMBERS)]),
        ColumnTransformer([("n", StandardScaler(), ["income", "age"]), ("k", "passthrough", ["score"])]),
        ColumnTransformer([("n", StandardScaler(), [0, 2]), ("c", OrdinalEncoder(), ["city", "kind"])]),
        ColumnTransformer(
            [
                ("n", StandardScaler(), make_column_selector(dtype_include="number")),
                ("c", OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
            ]
        ),
    ],
)
def test_the_network_predicts_what_the_pipeline_predicts(columns: ColumnTransformer) -> None:
    frame, y = table()
    found = verifolio.export(fitted(columns), frame, y)
    assert found.agreement == 1.0 and found.compared == len(frame)


def test_categories_do_not_change() -> None:
    frame, y = table()
    model = fitted(EVERYTHING)
    found = verifolio.robustness(model, frame.head(12), y[:12], epsilon=100, integers=["age"], **HOW)
    assert found.counts["refuted"] > 0
    for one in found.counterexamples:
        before, after = one.original.ravel(), one.input.ravel()
        moved = {frame.columns[k] for k in np.flatnonzero(before != after)}
        assert moved and moved <= {"age", "income", "score"}
        row = dict(zip(frame.columns, after, strict=True))
        row |= {name: frame[name][one.index] for name in ("city", "kind", "rooms")}
        assert model.predict(pandas.DataFrame([row]))[0] == one.prediction != y[one.index]


def test_a_row_of_a_category_that_was_not_in_its_batch() -> None:
    """Codes come from the model, not from the rows that happen to be asked about."""
    frame, y = table()
    model = fitted(EVERYTHING)
    for city in ("Berlin", "Celle"):
        rows = frame[frame.city == city].head(3)
        assert verifolio.export(model, rows, y[rows.index]).agreement == 1.0


def changed(name: str, value: object) -> Any:
    frame, _ = table()
    frame = frame.astype({"city": object, "kind": object})
    frame.loc[1, name] = value
    return frame.head(3)


@pytest.mark.parametrize(
    ("frame", "epsilon", "words"),
    [
        (changed("city", "Dresden"), 1.0, "one of Aachen, Berlin, Celle, got 'Dresden'"),
        (changed("rooms", 3), 1.0, "column rooms: expected one of 1, 2, 4, got 3.0"),
        (changed("age", np.nan), 1.0, "column age: expected a value in every row"),
        (changed("city", None), 1.0, "column city: expected a value in every row"),
        (
            table()[0].head(3),
            {"city": 1},
            "epsilon of city: expected a feature of numbers, got categories Aachen",
        ),
        (table()[0].head(3), {"agee": 1}, "did you mean age"),
    ],
)
def test_values_that_make_no_sense_are_refused(frame: Any, epsilon: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        verifolio.robustness(fitted(EVERYTHING), frame, table()[1][:3], epsilon=epsilon, **HOW)


def test_texts_that_nobody_encodes_are_refused() -> None:
    frame, y = table()
    model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(frame[NUMBERS], y)
    with pytest.raises(InputError, match="order: age, income, score"):
        verifolio.export(model, frame[["age", "city", "score"]], y)
    with pytest.raises(InputError, match="column city: expected numbers, got such as 'Aachen'"):
        verifolio.export(
            MLPClassifier((4,), max_iter=5).fit(frame[NUMBERS].to_numpy(), y), frame[["age", "city", "score"]]
        )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            ColumnTransformer([("c", OneHotEncoder(), ["rooms"]), ("n", StandardScaler(), ["rooms", "age"])]),
            "column rooms: expected one encoder that reads it",
        ),
        (
            make_pipeline(
                ColumnTransformer([("b", KBinsDiscretizer(3, encode="ordinal"), ["age"])]), OneHotEncoder()
            ),
            "encoders of columns of the data",
        ),
        (
            ColumnTransformer([("f", FunctionTransformer(np.log1p), NUMBERS)]),
            "skl2onnx converts",
        ),
    ],
)
def test_columns_without_an_exact_form_are_refused(columns: Any, words: str) -> None:
    frame, y = table()
    with pytest.raises(InputError, match=words):
        verifolio.export(fitted(columns), frame, y)


def test_radii_are_not_searched_among_categories() -> None:
    frame, y = table()
    with pytest.raises(InputError, match="where a radius is searched, got categories"):
        verifolio.distribution(fitted(EVERYTHING), frame.head(2), y[:2], range=(0, 9999), **HOW)


def test_several_labels_at_once_are_refused() -> None:
    frame, y = table()
    model = MLPClassifier((4,), max_iter=5).fit(frame[NUMBERS], np.c_[y == "yes", y == "no"].astype(int))
    with pytest.raises(InputError, match="one class for every input, got several at once"):
        verifolio.export(model, frame[NUMBERS])
