"""The competition's scripts on real files: verdict first, counterexample after it, both versions of VNN-LIB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verifolio.model.query import Query

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "vnncomp_scripts"
NETWORKS = ROOT / "examples" / "networks"
SAFE = NETWORKS / "properties" / "digits_dense_45_0.01.vnnlib"
UNSAFE = NETWORKS / "properties" / "digits_dense_45_0.2.vnnlib"
DENSE = str(NETWORKS / "digits_dense.onnx")
VENV = Path(sys.executable).parent.parent

pytestmark = pytest.mark.skipif(
    not (VENV / "bin" / "verifolio").exists(), reason=f"no command in {VENV}/bin; install the package there"
)


def call(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"VERIFOLIO_VENV": str(VENV)},
    )


def test_an_installed_tool_is_left_alone() -> None:
    done = call("install_tool.sh", "v1")
    assert done.returncode == 0, done.stderr
    assert "is installed" in done.stdout


@pytest.mark.parametrize("script", ["install_tool.sh", "prepare_instance.sh", "run_instance.sh"])
def test_another_version_of_the_interface_is_refused(script: str) -> None:
    done = call(script, "v9")
    assert done.returncode == 1
    assert "v9" in done.stderr


def test_unsat(tmp_path: Path) -> None:
    assert call("prepare_instance.sh", "v1", "digits", DENSE, SAFE).returncode == 0
    results = tmp_path / "out.txt"
    done = call("run_instance.sh", "v1", "digits", DENSE, SAFE, results, "60")
    assert done.returncode == 0, done.stderr
    assert results.read_text() == "unsat\n"


def test_sat_with_a_counterexample(tmp_path: Path) -> None:
    results = tmp_path / "out.txt"
    done = call("run_instance.sh", "v1", "digits", DENSE, UNSAFE, results, "60")
    assert done.returncode == 0, done.stderr
    verdict, _, text = results.read_text().partition("\n")
    assert verdict == "sat"
    pairs = [p.strip("() ").split() for p in text.strip()[1:-1].splitlines()]
    x = np.array([float(v) for name, v in pairs if name.startswith("X_")], np.float32)
    query = Query.from_files([DENSE], UNSAFE)
    assert query.specification.check(x, query.networks[0].replay(x)).holds


def test_version_2_with_two_networks(tmp_path: Path) -> None:
    """The reference parser accepts the property; the counterexample is an assignment of its variables."""
    text = "\n".join(
        [
            "(vnnlib-version <2.0>)",
            "(declare-network f (declare-input X float32 [1,64]) (declare-output Y float32 [1,10]))",
            "(declare-network g (equal-to f) (declare-input U float32 [1,64]) (declare-output V float32 [1,10]))",
            *(f"(assert (and (>= X[0,{k}] 0.0) (<= X[0,{k}] 1.0)))" for k in range(64)),
            *(f"(assert (and (>= U[0,{k}] 0.0) (<= U[0,{k}] 1.0)))" for k in range(64)),
            "(assert (>= Y[0,3] V[0,3]))",
        ]
    )
    file, results = tmp_path / "two.vnnlib", tmp_path / "out.txt"
    file.write_text(text + "\n")
    done = call("run_instance.sh", "v1", "two", f"[('f', '{DENSE}')]", file, results, "60")
    lines = results.read_text().splitlines()
    assert lines[0] == "sat", done.stderr
    assert lines[1] == "X float32 [1,64]"
    names = [line.split()[0] for line in lines if "float32" in line]
    assert names == ["X", "Y", "U", "V"]
    assert len(lines) == 1 + 4 + 2 * (64 + 10)


def test_a_bad_file_is_an_error_in_the_results(tmp_path: Path) -> None:
    bad, results = tmp_path / "bad.vnnlib", tmp_path / "out.txt"
    bad.write_text("(assert (>= X_0 y))")
    done = call("run_instance.sh", "v1", "digits", DENSE, bad, results, "60")
    assert done.returncode == 0
    assert results.read_text() == "error\n"
    assert "bad.vnnlib:1" in done.stderr
    assert call("prepare_instance.sh", "v1", "digits", tmp_path / "no.onnx", bad).returncode == 2
