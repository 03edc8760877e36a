"""`--certificate` of commands with many proofs, and `check` of what they rest on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from verifolio.cli.main import run
from verifolio_check.main import INVALID, UNREADABLE, VALID
from verifolio_check.main import run as check

EXAMPLES = Path(__file__).parents[3] / "examples"
DENSE = EXAMPLES / "networks" / "digits_dense.onnx"
ENSEMBLE = [EXAMPLES / "ensemble" / f"digits_{name}.onnx" for name in "abc"]
INLINE = ("--executor", "inline")


@pytest.fixture(scope="module")
def radii(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution with its table and its folder of certificates."""
    place = tmp_path_factory.mktemp("radii")
    asked = ["distribution", str(DENSE), "--data", "digits", "--indices", "1:4", "--tolerance", "0.02"]
    asked += ["--csv", str(place / "radii.csv"), "--certificate", str(place / "proofs"), *INLINE]
    assert run(asked) == 0
    return place


@pytest.fixture(scope="module")
def value(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an ensemble's value."""
    place = tmp_path_factory.mktemp("value")
    asked = ["ensemble", "attack", *map(str, ENSEMBLE), "--data", "digits:test", "--indices", "1:4"]
    run([*asked, "--epsilon", "0.03", "--certificate", str(place), *INLINE])
    return place


def changed(source: Path, target: Path, name: str, change: dict[str, Any]) -> Path:
    """A copy of a folder with other statements in one of its files."""
    shutil.copytree(source, target)
    stated = json.loads((target / name).read_text())
    (target / name).write_text(json.dumps(stated | change))
    return target


def test_a_table_of_radii_has_its_certificates(radii: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, proofs = radii / "radii.csv", radii / "proofs"
    assert run(["check", str(DENSE), str(table), str(proofs)]) == 0
    assert capsys.readouterr().out == "valid: 2 radii\n"
    larger = radii / "larger.csv"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    rows[1][5] = str(2 * float(rows[1][5]))
    larger.write_text("\n".join(map(",".join, rows)))
    code, said = check(DENSE, larger, proofs)
    assert code == INVALID and "no certificate of the radius" in said


def test_what_a_folder_states_has_to_be_what_its_properties_say(radii: Path, tmp_path: Path) -> None:
    table, proofs = radii / "radii.csv", radii / "proofs"
    name = "digits_dense.onnx_test_1.json"
    stated = json.loads((proofs / name).read_text())
    elsewhere = [min(v + 0.001, 1.0) for v in stated["x"]]
    size = len(stated["x"])
    wrong: list[dict[str, Any]] = [{"x": elsewhere}, {"radius": 1.001 * stated["radius"]}, {"low": -1.0}]
    wrong += [{"std": [0.5] * size}, {"mean": [0.1] * size}]
    for k, change in enumerate(wrong):
        code, said = check(DENSE, table, changed(proofs, tmp_path / str(k), name, change))
        assert code == INVALID and "less than the ball" in said, change
    code, said = check(DENSE, table, changed(proofs, tmp_path / "label", name, {"label": 0}))
    assert code == INVALID
    unreadable: list[dict[str, Any]] = [{"x": 1}, {"x": None}, {"label": "no"}, {"radius": None}]
    for k, change in enumerate(unreadable):
        code, _ = check(DENSE, table, changed(proofs, tmp_path / f"bad{k}", name, change))
        assert code in (INVALID, UNREADABLE)


def test_certificates_of_another_network_do_not_count(radii: Path, tmp_path: Path) -> None:
    other = tmp_path / DENSE.name
    shutil.copy(EXAMPLES / "networks" / "digits_robust.onnx", other)
    code, said = check(other, radii / "radii.csv", radii / "proofs")
    assert code == INVALID and "another network" in said


def test_the_value_of_an_ensemble_is_checked(value: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *map(str, ENSEMBLE), str(value)]) == 0
    assert capsys.readouterr().out.startswith("valid: the value lies between")


def test_a_value_without_its_proofs_or_attacks_is_not_valid(value: Path, tmp_path: Path) -> None:
    game = json.loads((value / "value.json").read_text())
    assert game["proofs"] and check(*ENSEMBLE, value)[0] == VALID
    far = [{"probability": "1", "points": [[1.0] * len(p["x"]) for p in game["points"]]}]
    label = [p | {"label": (p["label"] + 1) % 10} for p in game["points"]]
    wrong = {
        "proofs": ({"proofs": game["proofs"][1:]}, "prove the value"),
        "upper": ({"upper": "0"}, "prove the value"),
        "lower": ({"lower": "1"}, "the attacks reach"),
        "weights": ({"weights": ["1", "1", "1"]}, "add up"),
        "attacks": ({"attacks": far}, "out of reach"),
        "points": ({"points": label}, "another point"),
        "sets": ({"proofs": [p | {"set": [0]} for p in game["proofs"]]}, "another network"),
    }
    for name, (change, complaint) in wrong.items():
        code, said = check(*ENSEMBLE, changed(value, tmp_path / name, "value.json", change))
        assert code == INVALID and complaint in said, (name, said)
    assert check(*reversed(ENSEMBLE), value)[0] == UNREADABLE


def test_a_proof_about_a_smaller_ball_does_not_count(value: Path, tmp_path: Path) -> None:
    """What networks read, (x - mean) / std, may not shrink the ball of one proof around its centre."""
    game = json.loads((value / "value.json").read_text())
    name = f"{game['proofs'][0]['file']}.json"
    x = json.loads((value / name).read_text())["x"]
    change = {"std": [1e6] * len(x), "mean": [v * (1 - 1e6) for v in x]}
    code, said = check(*ENSEMBLE, changed(value, tmp_path / "smaller", name, change))
    assert code == INVALID and "another point" in said


def test_sets_of_networks_have_certificates_too(tmp_path: Path) -> None:
    """Two networks that read one input: neither alone keeps the label, one of them always does."""
    from fractions import Fraction

    import numpy as np

    from tests.checker.networks import save
    from verifolio.onnx_import.network import Network
    from verifolio.plugin.property import Reference
    from verifolio.plugins.ensemble.attack import AttackRequest
    from verifolio.plugins.ensemble.certificates import set_query
    from verifolio.solve.certifying import Certifying, text_of
    from verifolio.solve.oracle import Oracle

    ramp = [(np.array([[1.0, 0.0]], np.float32), np.array([0.1, 0.5], np.float32))]
    fall = [(np.array([[-1.0, 0.0]], np.float32), np.array([1.1, 0.5], np.float32))]
    networks = tuple(Network.load(save(tmp_path / f"{k}.onnx", n)) for k, n in enumerate((ramp, fall)))
    request = AttackRequest(networks, (Reference(np.array([0.5]), 0, 0.5),), Fraction(1))
    with Oracle(executor="inline") as oracle:
        for mask, proved in ((1, False), (2, False), (3, True)):
            query = set_query(request, request.references[0], mask)
            made = Certifying(oracle).make(query, 20.0)
            assert bool(made.data) is proved, made.reason
    made.save(tmp_path / "c.gz")
    (tmp_path / "p.vnnlib").write_bytes(text_of(query))
    files = [n.path for n in networks]
    assert check(*files, tmp_path / "p.vnnlib", tmp_path / "c.gz")[0] == VALID
    assert check(*reversed(files), tmp_path / "p.vnnlib", tmp_path / "c.gz")[0] == INVALID


def test_instances_of_a_benchmark_leave_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "bench",
        str(EXAMPLES / "networks" / "instances.csv"),
        "--only",
        "digits_dense_digits_dense_45_0.01",
    ]
    asked += ["--output", str(tmp_path / "r.csv"), "--no-pictures", "--certificate", str(tmp_path / "proofs")]
    assert run([*asked, *INLINE]) == 0
    assert "certificates: 1 of 1 unsat" in capsys.readouterr().err
    (made,) = (tmp_path / "proofs").rglob("*.gz")
    prop = EXAMPLES / "networks" / "properties" / "digits_dense_45_0.01.vnnlib"
    assert check(DENSE, prop, made) == (VALID, "valid")


@pytest.mark.parametrize(
    ("more", "reason"),
    [(["--norm", "l2"], "no box"), (["--verifier", "pgd"], "pgd leaves nothing")],
)
def test_what_has_no_certificate_is_said_at_once(
    more: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["critical", str(DENSE), "--data", "digits", "--index", "1", "--certificate", str(tmp_path / "c")]
    assert run([*asked, *more, *INLINE]) == 2
    assert reason in capsys.readouterr().err
