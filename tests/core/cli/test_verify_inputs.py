"""`verify --data`: a line for each input, a summary, pictures, exit codes; readable counterexamples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verifolio.cli.main import run

ROOT = Path(__file__).resolve().parents[3]
NETWORK = str(ROOT / "examples/networks/digits_dense.onnx")
HOW = ["--executor", "inline", "--verifier", "crown", "--timeout", "60"]
ASK = ["verify", NETWORK, "--data", "digits", "--indices", "0:4", "--epsilon", "0.05", *HOW]


def test_a_line_for_each_input_and_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, "--pictures", str(tmp_path / "p")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert sorted(line.split(",")[0] for line in said[:4]) == [
        "0: proved",
        "1: refuted",
        "2: proved",
        "3: misclassified",
    ]
    assert said[-3] == (
        "digits_dense: 2 of 4 proved, 1 with a counterexample, 0 open, 1 misclassified (epsilon 0.05, linf)"
    )
    assert said[-2] == "accuracy on these inputs: 3 of 4"
    assert [p.name for p in sorted((tmp_path / "p").iterdir())] == ["1.png", "1.txt"]


def test_for_programs_and_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, "--json", "--expect", "unsat"]) == 5
    facts = json.loads(capsys.readouterr().out)
    assert facts["counts"] == {"proved": 2, "refuted": 1, "open": 0, "misclassified": 1}
    assert (
        run(
            [
                "verify",
                NETWORK,
                "--data",
                "digits",
                "--indices",
                "0",
                "--epsilon",
                "0.01",
                *HOW,
                "--expect",
                "unsat",
            ]
        )
        == 0
    )


def test_what_is_open_is_told_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "verify",
        NETWORK,
        "--data",
        "digits",
        "--indices",
        "0",
        "--epsilon",
        "0.05",
        "--executor",
        "inline",
    ]
    assert run([*words, "--verifier", "pgd", "--timeout", "1"]) == 3
    assert "1 open: " in (said := capsys.readouterr().out) and "try a timeout of 2 s" in said


def test_wrong_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", NETWORK, "--data", "digits"]) == 2
    assert "add --epsilon 0.05" in capsys.readouterr().err
    assert run(["verify", NETWORK, "p.vnnlib", "--data", "digits", "--epsilon", "0.1"]) == 2
    assert "one network and no property file" in capsys.readouterr().err
    assert run(["verify", NETWORK, "--data", "digits", "--epsilon", "0.1", "--range", "0,0.5"]) == 2
    assert "--range 0,1" in capsys.readouterr().err


def test_features_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """x0 > x1 decides between the two classes; only x1 may move, in whole steps."""
    import torch

    from verifolio.encode.torch_export import export_onnx

    layer = torch.nn.Linear(2, 2)
    layer.weight.data, layer.bias.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2)
    export_onnx(torch.nn.Sequential(layer), tmp_path / "net.onnx", (2,))
    (tmp_path / "t.csv").write_text("left,right,label\n5.5,3,l\n9.5,3,l\n1,9,r\n")
    words = ["verify", str(tmp_path / "net.onnx"), "--data", str(tmp_path / "t.csv"), "--range", "0,20", *HOW]
    words += ["--indices", "0:2"]
    assert run([*words, "--epsilon", "right=3.2", "--integers", "right"]) == 0
    said = capsys.readouterr().out
    assert "0: refuted, l becomes r" in said and "1: proved" in said
    assert "  right  3 -> 6  (+3, allowed -0" in said.replace("allowed 0", "allowed -0")
    assert run([*words, "--epsilon", "3.2", "--fixed", "0,1"]) == 0
    assert "2 of 2 proved" in capsys.readouterr().out


def test_a_counterexample_of_a_file_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "examples/networks/properties/digits_dense_45_0.2.vnnlib")
    assert run(["verify", NETWORK, spec, "--executor", "inline", "--verifier", "pgd", "--timeout", "60"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("sat\n") and "in 0.05 to 0.45" in said and "outputs: Y_0 = " in said
    assert any(line.startswith("  so Y_") and " >= Y_0" in line for line in said.splitlines())
