"""The pytest plugin: tests per input, the fixture, failures with their counterexample, and a light entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from verifolio.testing.robust import changed, drawing

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "examples" / "pytest_project"
TESTS = """
import numpy as np
import pytest

MODEL, DATA = {model!r}, {data!r}

@pytest.mark.robust(MODEL, data=DATA, indices="0,2", epsilon=0.02)
def test_near():
    pass

@pytest.mark.robust(MODEL, data=DATA, indices="2", epsilon=0.3)
def test_far():
    pass

@pytest.mark.robust(MODEL, data=DATA, indices="0", epsilon=0.05, timeout=0.001, undecided="skip")
def test_no_time():
    pass

@pytest.mark.robust(MODEL, data=DATA, indices="0", epsilon=0.05, timeout=0.001)
def test_no_time_either():
    pass

@pytest.mark.robust(MODEL, data=DATA, indices="0", epsilon=0.0001)
def test_own_words(robust_index):
    assert robust_index == 7

def test_by_hand(robust):
    data = np.load(DATA)
    with pytest.raises(pytest.fail.Exception, match="not robust"):
        robust(MODEL, data["x"][2], int(data["y"][2]), epsilon=0.3)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [*command, "-q", "-rA", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_marked_tests_and_what_they_show(tmp_path: Path) -> None:
    """One process for all, because each starts workers of its own."""
    text = TESTS.format(model=str(PROJECT / "model.onnx"), data=str(PROJECT / "digits.npz"))
    (tmp_path / "test_model.py").write_text(text)
    said = run(tmp_path, "--verifolio-store", "kept.db").stdout
    assert "PASSED test_model.py::test_near[0]" in said and "PASSED test_model.py::test_near[2]" in said
    assert "FAILED test_model.py::test_far[2]" in said
    assert "not robust: model.onnx around digits.npz:all input 2 within 0.3 (linf)" in said
    assert "label 4, but output" in said and "counterexample" in said and "becomes" in said
    assert "SKIPPED" in said and "FAILED test_model.py::test_no_time_either[0]" in said
    assert "FAILED test_model.py::test_own_words[0]" in said and "assert 0 == 7" in said
    assert "PASSED test_model.py::test_by_hand" in said
    assert "Traceback" not in said
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "verifolio", "show", "kept.db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\trefuted\t" in shown.stdout and "\tproved\t" in shown.stdout


MODULES = """
import numpy as np
import pytest
import torch
from torch import nn

X = np.random.default_rng(0).random((4, 6)).astype("float32")

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

MODEL = make().train()
Y = MODEL((torch.from_numpy(X) - 0.3) / 0.5).argmax(1).numpy()

@pytest.mark.robust(MODEL, data=(X, Y), indices="0:2", epsilon=0.0001, mean=0.3, std=0.5)
def test_module():
    pass

@pytest.mark.robust(make, data=(X, Y), indices="0", epsilon=0.0001, mean=0.3, std=0.5)
def test_made():
    assert MODEL.training

@pytest.mark.robust(MODEL, data=(X, 2 - Y), indices="0", epsilon=0.5)
def test_wrong():
    pass

def test_by_hand(robust):
    with pytest.raises(pytest.fail.Exception, match="not robust: sequential.onnx"):
        robust(MODEL, X[0], int(Y[0]), epsilon=0.9)
"""


def test_marks_take_torch_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "test_module.py").write_text(MODULES)
    said = run(tmp_path).stdout
    passed = ("test_module[0]", "test_module[1]", "test_made[0]", "test_by_hand")
    assert [name for name in passed if f"PASSED test_module.py::{name}" not in said] == []
    assert "FAILED test_module.py::test_wrong[0]" in said and "Traceback" not in said


def test_wrong_marks_are_told(tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text(
        "import pytest\n@pytest.mark.robust('m.onnx', epsilon=0.1)\ndef test_it(): pass\n"
    )
    said = run(tmp_path).stdout
    assert "a model, data and epsilon" in said and "no data" in said


def test_the_entry_point_imports_nothing_heavy() -> None:
    """Every run of pytest pays for it, in projects that never verify anything too."""
    (entry,) = (e for e in metadata.entry_points(group="pytest11") if e.name == "verifolio")
    assert entry.value == "verifolio.pytest_plugin"
    code = (
        "import pytest, sys; before = set(sys.modules); import verifolio.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["verifolio", "verifolio.pytest_plugin"]


def test_inputs_as_text() -> None:
    near, x = np.array([0.0, 0.5, 1.0, 0.0]), np.array([0.0, 0.6, 1.0, 0.1])
    assert drawing(near, x, (1, 2, 2), (0.0, 1.0)) == ["input  |  counterexample", " =  |   +", "@   |  @."]
    assert drawing(near, x, (4,), (0.0, 1.0)) == []
    assert changed(near, x, ("a", "b", "c", "d"))[1].split() == ["d", "0", "0.1", "+0.1"]
    many = changed(np.zeros(20), np.ones(20), ())
    assert many[-1] == "and 12 more" and many[1].startswith("x[0]")
