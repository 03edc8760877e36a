"""Tables: features by name, with radii and ranges of their own, whole or fixed; labels by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import verifolio
from verifolio import InputError

HOW: dict[str, Any] = {"executor": "inline", "timeout": 60, "verifier": "crown"}


@pytest.fixture(scope="module")
def table() -> pandas.DataFrame:
    wine = load_wine(as_frame=True)
    frame = wine.data.copy()
    frame["kind"] = wine.target_names[wine.target]
    return frame


@pytest.fixture(scope="module")
def pipeline(table: pandas.DataFrame) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(
        table.drop(columns="kind"), table["kind"]
    )


def test_features_move_as_far_as_they_are_told(pipeline: Any, table: pandas.DataFrame) -> None:
    few = table[::30]
    found = verifolio.robustness(pipeline, few, "kind", epsilon={"alcohol": 3.0, "proline": 900.0}, **HOW)
    assert found.counts["refuted"] and found.counts["open"] == 0
    for one in found.counterexamples:
        assert set(one.changes) <= {"alcohol", "proline"}
        assert one.label.startswith("class_") and "alcohol" in one.text()
        assert one.distance <= 1 + 1e-6
        assert (
            pipeline.predict(pandas.DataFrame([one.input], columns=list(one.features)))[0] == one.prediction
        )
    assert found.accuracy == pipeline.score(few.drop(columns="kind"), few["kind"])
    assert "alcohol 3, proline 900" in repr(found)


def test_fixed_features_and_ranges_are_kept(pipeline: Any, table: pandas.DataFrame) -> None:
    row = table[table["kind"] == "class_0"].iloc[:2]
    wide = {"epsilon": 5.0, "reference": "label", **HOW}
    free = verifolio.robustness(pipeline, row, "kind", **wide)
    assert free.counts["refuted"] == 2
    fixed = [c for c in row.columns if c not in ("alcohol", "kind")]
    held = verifolio.robustness(pipeline, row, "kind", fixed=fixed, range={"alcohol": (13.0, 16.0)}, **wide)
    for one in held.counterexamples:
        assert set(one.changes) == {"alcohol"} and 13 <= one.input[0] <= 16
    with pytest.raises(InputError, match="at alcohol"):
        verifolio.robustness(pipeline, row, "kind", range={"alcohol": (15.0, 16.0)}, **wide)
    with pytest.raises(InputError, match="one of alcohol"):
        verifolio.robustness(pipeline, row, "kind", fixed=["alkohol"], **wide)


def enumerated(model: Any, x: np.ndarray, label: Any, reach: int) -> bool:
    """Whether some whole neighbour has another class, by looking at all of them."""
    steps = np.arange(-reach, reach + 1)
    points = [x + np.array([a, b]) for a in steps for b in steps]
    return any(p != label for p in model.predict(np.array(points, np.float64)))


def test_whole_features_are_whole_and_decided_as_by_enumeration() -> None:
    """Twelve lines in the plane, boxes of nine to forty-nine points: branch and bound against all points."""
    rng = np.random.default_rng(1)
    points = rng.integers(-9, 9, (60, 2)).astype(float)
    labels = (points @ [0.73, -1.31] + 0.4 > 0).astype(int)
    model = LogisticRegression(C=100.0, max_iter=500).fit(points, labels)
    seen = set()
    for x in points[:14]:
        label, reach = model.predict(x[None])[0], int(rng.integers(1, 4))
        found = verifolio.verify(model, x, label, epsilon=float(reach) + 0.4, integers=[0, 1], **HOW)
        wanted = "refuted" if enumerated(model, x, label, reach) else "proved"
        assert found.status == wanted
        seen.add(wanted)
        if found.counterexample is not None:
            assert (found.counterexample.input == np.round(found.counterexample.input)).all()
    assert seen == {"proved", "refuted"}


def test_whole_features_that_are_not_are_refused() -> None:
    model = LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    with pytest.raises(InputError, match="whole"):
        verifolio.verify(model, np.array([0.5, 1.0]), 0, epsilon=1.0, integers=[0], **HOW)


def test_labels_that_the_model_does_not_know_are_refused(pipeline: Any, table: pandas.DataFrame) -> None:
    with pytest.raises(InputError, match="class_0, class_1, class_2"):
        verifolio.robustness(pipeline, table.drop(columns="kind")[:2], ["red", "white"], epsilon=0.1, **HOW)
    with pytest.raises(InputError, match="name the column of the labels"):
        verifolio.robustness(pipeline, table[:2], epsilon=0.1, **HOW)
