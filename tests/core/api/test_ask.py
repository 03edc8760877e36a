"""`robustness`, `verify`, `attack` and `compare`: what they answer, say and keep."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import verifolio
from verifolio import InputError, Robustness
from verifolio.api import ask
from verifolio.api.progress import Counter
from verifolio.cli.main import run as cli

from .conftest import MEAN, STD

Digits = tuple[np.ndarray, np.ndarray]
HOW: dict[str, Any] = {"executor": "inline", "timeout": 60, "verifier": "crown"}


@pytest.fixture(scope="module")
def result(model: nn.Module, digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Robustness:
    images, labels = digits[0][1500:1504], digits[1][1500:1504]
    return verifolio.robustness(model, images, labels, epsilon=0.08, mean=MEAN, std=STD, **HOW)


def test_every_input_has_a_verdict_that_holds(result: Robustness, model: nn.Module, digits: Digits) -> None:
    assert sum(result.counts.values()) == len(result) == 4
    assert result.counts["proved"] and result.counts["refuted"]
    for verdict in result:
        label = int(digits[1][1500 + verdict.index])
        assert verdict.label == str(label)
        found = verdict.counterexample
        assert (found is None) == (verdict.status != "refuted")
        assert bool(verdict) == (verdict.status == "proved")
        if found is not None:
            moved = torch.from_numpy((found.input - MEAN) / STD).float()[None]
            assert str(int(model(moved).argmax())) == found.prediction != found.label
            assert np.abs(found.input - digits[0][1500 + verdict.index]).max() <= 0.08 + 1e-6
            assert found.distance == pytest.approx(0.08, abs=0.0801)


def test_results_are_read_in_many_ways(result: Robustness, tmp_path: Path) -> None:
    assert "of 4 proved" in repr(result) and len(repr(result).splitlines()) <= 3
    frame = result.to_pandas()
    assert list(frame["status"]) == [v.status for v in result]
    assert "<table>" in result._repr_html_() and "data:image/png" in result._repr_html_()
    assert result.plot().axes
    result.save(tmp_path / "out")
    with (tmp_path / "out/results.csv").open() as file:
        assert [r["status"] for r in csv.DictReader(file)] == [v.status for v in result]
    facts = json.loads((tmp_path / "out/result.json").read_text())
    assert facts["counts"] == result.counts
    first = result.counterexamples[0]
    assert (tmp_path / f"out/counterexamples/{first.index}.png").read_bytes().startswith(b"\x89PNG")
    assert verifolio.Network.load(tmp_path / "out/sequential.onnx").sha256 == result.network.sha256
    with verifolio.Store(tmp_path / "out/store.db") as store:
        assert list(store.answers())
    assert cli(["report", str(tmp_path / "out"), "-o", str(tmp_path / "page")]) == 0
    assert "sequential" in next((tmp_path / "page").glob("*.html")).read_text()


def test_wrong_preprocessing_shows_at_once(
    model: nn.Module, digits: Digits, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = digits[0][1500:1506], digits[1][1500:1506]
    found = verifolio.robustness(model, images, labels, epsilon=0.001, mean=5.0, std=0.1, **HOW)
    assert found.accuracy is not None and found.accuracy < 0.6
    assert "are preprocessing" in capsys.readouterr().err
    assert f"accuracy on these inputs: {round(found.accuracy * 6)} of 6" in repr(found)


def test_one_input_and_an_attack(model: nn.Module, digits: Digits) -> None:
    x, label = digits[0][1501], int(digits[1][1501])
    assert verifolio.verify(model, x, label, epsilon=0.001, mean=MEAN, std=STD, **HOW)
    far = verifolio.verify(model, torch.from_numpy(x), epsilon=0.5, mean=MEAN, std=STD, **HOW)
    assert far.status == "refuted" and not far
    attacked = verifolio.attack(model, x[None], [label], epsilon=0.001, mean=MEAN, std=STD, executor="inline")
    assert attacked.counts["open"] == 1 and "proved" not in attacked.text().split("open")[1]


def test_models_are_compared(model: nn.Module, digits: Digits) -> None:
    weak = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    images, labels = digits[0][1501:1503], digits[1][1501:1503]
    found = verifolio.compare({"good": model, "weak": weak}, images, labels, epsilon=0.001, **HOW)
    assert list(found.to_pandas()["network"]) == ["good", "weak"]
    assert "weak" in repr(found) and found["good"].network.path.stem == "good"


def test_data_out_of_range_and_of_another_shape_are_refused(model: nn.Module, digits: Digits) -> None:
    with pytest.raises(InputError, match="range"):
        verifolio.robustness(model, digits[0][:2] * 16, digits[1][:2], epsilon=0.1, **HOW)
    with pytest.raises(InputError, match="did you mean timeout"):
        verifolio.robustness(model, digits[0][:2], digits[1][:2], epsilon=0.1, timeut=3)  # type: ignore[call-arg]
    coloured = nn.Sequential(nn.Conv2d(3, 1, 3), nn.Flatten(), nn.Linear(36, 2))
    pixels = np.random.default_rng(0).random((2, 8, 8, 3))
    with pytest.raises(InputError, match="8x8x3"):
        verifolio.robustness(coloured, pixels, epsilon=0.1, **HOW)
    assert len(verifolio.robustness(coloured, pixels, epsilon=1e-6, layout="hwc", **HOW)) == 2


def test_an_interruption_keeps_what_is_known(
    model: nn.Module, digits: Digits, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient(Counter):
        def __call__(self, status: str) -> None:
            super().__call__(status)
            if self.done == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(ask, "Counter", Impatient)
    images, labels = digits[0][1500:1505], digits[1][1500:1505]
    found = verifolio.robustness(model, images, labels, epsilon=0.001, mean=MEAN, std=STD, **HOW)
    assert found.interrupted and found.counts["open"] == 3
    assert "2 of 5 inputs are decided" in capsys.readouterr().err
    assert "go on" in repr(found)


def test_a_store_is_used_again(model: nn.Module, digits: Digits, tmp_path: Path) -> None:
    images, labels = digits[0][1501:1503], digits[1][1501:1503]
    store = tmp_path / "store.db"
    first = verifolio.robustness(model, images, labels, epsilon=0.002, store=store, **HOW)
    again = verifolio.robustness(model, images, labels, epsilon=0.002, store=store, **HOW)
    assert not any(v.reused for v in first) and all(v.reused for v in again if v.verifier)
    assert "known before" in again[0].line() or again[0].status == "misclassified"
