"""The recorder of other tools: claims as they are, nothing twice, nothing left behind."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from verifolio.plugins.command.description import VARIABLE, described
from verifolio.testing.samples import write_sum

ROOT = Path(__file__).resolve().parents[3]
PROPERTY = """
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 0.0))
(assert (<= X_0 1.0))
(assert (>= X_1 0.0))
(assert (<= X_1 1.0))
(assert (>= Y_0 {threshold}))
"""
TOOL = """#!{python} -P
import sys, time
net, prop, results, limit = sys.argv[1:]
with open({log!r}, "a") as stream:
    stream.write("run\\n")
if "1.5" in open(prop).read():
    open(results, "w").write("sat\\n((X_0 1.0) (X_1 1.0))")
elif "1.25" in open(prop).read():
    open(results, "w").write("sat\\n((X_0 0.0) (X_1 0.0))")
elif "9.5" in open(prop).read():
    time.sleep(60)
else:
    open(results, "w").write("unsat\\n")
"""


@pytest.fixture(scope="module")
def peers() -> Any:
    spec = importlib.util.spec_from_file_location("peers_under_test", ROOT / "benchmarks" / "peers.py")
    if spec is None or spec.loader is None:
        pytest.skip("benchmarks/peers.py is not here")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four instances of y = x0 + x1 and a tool that is right, wrong about its point, right, and asleep."""
    network = write_sum(tmp_path)
    lines = ["id,category,onnx,vnnlib,timeout,expected"]
    for name, threshold, expected in (
        ("a", 1.5, "sat"),
        ("b", 1.25, "sat"),
        ("c", 3.0, "unsat"),
        ("d", 9.5, ""),
    ):
        (tmp_path / f"{name}.vnnlib").write_text(PROPERTY.format(threshold=threshold))
        lines.append(f"{name},sums,{network.path.name},{name}.vnnlib,60,{expected}")
    (tmp_path / "instances.csv").write_text("\n".join(lines))
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL.format(python=sys.executable, log=str(tmp_path / "runs.txt")))
    tool.chmod(0o755)
    command = [str(tool), "{onnx}", "{vnnlib}", "{results}", "{timeout}"]
    (tmp_path / "fake.yaml").write_text(yaml.safe_dump({"name": "fake", "command": command}))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "fake.yaml"))
    return tmp_path


def test_claims_are_recorded_once(peers: Any, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(data), "--peers", "fake", "--members", "", "--only", "sums", "--cap", "1"]
    arguments += ["--cores", "2", "--out", str(data / "out")]
    assert peers.main(arguments) == 0
    records = [json.loads(line) for line in (data / "out" / "fake.jsonl").read_text().splitlines()]
    assert [r["claim"] for r in records] == ["sat", "sat", "unsat", "timeout"]
    assert records[0]["replay"] == "holds"
    assert "replay fails" in records[1]["replay"]
    runs = (data / "runs.txt").read_text()
    table = capsys.readouterr().out
    assert "sums\tfake\t4\t3\t2\t1\t0" in table
    assert peers.main(arguments) == 0
    assert capsys.readouterr().out == table
    assert (data / "runs.txt").read_text() == runs, "something was run again"
    (data / "c.vnnlib").write_text(PROPERTY.format(threshold=4.0))
    peers._digest.cache_clear()  # files do not change during a run
    peers.main(arguments)
    assert len((data / "runs.txt").read_text()) == len(runs) + len("run\n"), (
        "a changed file is another instance"
    )


def test_an_interrupted_line_is_no_record(peers: Any, data: Path) -> None:
    arguments = [str(data), "--peers", "fake", "--members", "", "--only", "a", "--cap", "5"]
    arguments += ["--out", str(data / "out")]
    peers.main(arguments)
    path = data / "out" / "fake.jsonl"
    path.write_text(path.read_text()[:40] + "\n")
    peers.main(arguments)
    assert (data / "runs.txt").read_text().count("run") == 2


def test_neuralsat_is_told_everything() -> None:
    """Both files, the limit, where the answer goes, and that it may import what lies beside main.py."""
    found = next(d for d in described() if d.name == "neuralsat")
    assert {"{onnx}", "{vnnlib}", "{timeout}", "{results}", "--export_cex"} <= set(found.command)
    assert found.environment["PYTHONSAFEPATH"] == ""
    assert found.unsat == "untrusted"
