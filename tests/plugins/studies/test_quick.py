"""`verifolio study PAPER --all --quick` of every paper: it runs and goes on, and the stable orderings hold."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from verifolio.cli.main import run
from verifolio.plugins.studies.amir.ensembles import ENSEMBLES
from verifolio.plugins.studies.bosman.figures import closer, proved_beyond
from verifolio.plugins.studies.papers import PAPERS, find_study
from verifolio.plugins.studies.rows import Rows
from verifolio.plugins.studies.study import Tables

SHARED = Path(os.environ.get("VERIFOLIO_SHARED", Path(__file__).parents[4] / "shared" / "data"))
NEEDED = {
    "000": ("mnist", "gtsrb"),
    "001": ("mnist",),
    "002": (),
    "003": ("mnist",),
    "004": ("mnist", "jair"),
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # all of them together have twenty minutes


def quick(number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    missing = [name for name in NEEDED[number] if not (SHARED / name).exists()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {SHARED}; set VERIFOLIO_SHARED")
    monkeypatch.setenv("VERIFOLIO_DATA", str(SHARED))
    page = tmp_path / "page.md"
    command = ["study", number, "--all", "--quick", "--rows", str(tmp_path), "--output", str(page)]
    assert run(command) == 0
    assert all(f"## {part.name.capitalize()}" in page.read_text() for part in find_study(number).parts)
    return Rows(tmp_path / "quick", number).tables(find_study(number))


def test_every_paper_has_a_quick_run() -> None:
    assert NEEDED.keys() == PAPERS.keys()


def test_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quick("000", tmp_path, monkeypatch)
    exact = {r["id"]: r for r in found.of("games", way="decomposition")}
    assert len(exact) >= 5
    for game, row in exact.items():
        assert row["lower"] == row["upper"], game
        assert float(row["cpu"]) < 10, game
        for way in ("uniform", "deterministic", "milp"):
            for other in found.of("games", id=game, way=way):
                assert Fraction(other["lower"]) <= Fraction(row["upper"]), (game, way)
    assert exact["21"]["verdict"] == "robust", "a tenth of a level of one pixel moves nothing"
    examples = {r["game"]: (r["lower"], r["upper"]) for r in found.of("examples")}
    assert examples["figure 4"] == ("1/2", "1/2")


def test_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quick("001", tmp_path, monkeypatch)
    total = {
        (r["way"], r["radius"]): (sum(map(int, r["found"].split())), sum(map(int, r["open"].split())))
        for r in found.of("mutual")
    }
    for radius in ("0.02", "0.04"):
        proved, left = total["verify", radius]
        assert all(total[way, radius][0] <= proved + left for way in ("ga1", "ga2", "ga3"))
    assert total["verify", "0.02"][0] <= sum(total["verify", "0.04"]), "a larger ball has no fewer errors"
    assert all(int(r["right"]) > 9000 for r in found.of("accuracy"))
    assert {r["ensemble"] for r in found.of("robust")} == set(ENSEMBLES["mnist"])
    for row in found.of("robust"):
        assert int(row["robust"]) + int(row["broken"]) + int(row["open"]) == int(row["points"])


def test_definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quick("002", tmp_path, monkeypatch)
    kept = {(r["attack"], r["network"]): int(r["kept"]) for r in found.of("security")}
    assert kept["SR", "SR"] >= kept["SR", "Base"], "training for a property does not make it rarer"
    proved = {(r["property"], r["network"]): int(r["proved"]) for r in found.of("satisfaction")}
    assert proved["SR", "SR"] >= proved["SR", "Base"]
    assert all(int(r["right"]) > int(r["n"]) / 2 for r in found.of("accuracy"))


def test_linear_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quick("003", tmp_path, monkeypatch)
    assert len(found.of("distances")) == 24
    assert all(float(r["distance"]) <= 20.01 for r in found.of("distances", way="lp") if r["distance"])
    lazy = {r["rows"]: r for r in found.of("lazy")}
    if lazy["lazy"]["distance"] and lazy["all"]["distance"]:
        assert float(lazy["lazy"]["distance"]) == pytest.approx(float(lazy["all"]["distance"]), abs=0.01)


def test_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quick("004", tmp_path, monkeypatch)
    rows = [r for r in found.of("brackets") if r["lower"]]
    assert len(rows) >= 12
    assert not [r for r in rows if proved_beyond(r)], "a published counterexample inside a proved radius"
    assert not [r for r in rows if closer(r) and r["network"] == "mnist-net_256x2"]
    assert all(float(r["lower"]) <= float(r["upper"]) for r in rows if r["upper"])
    easy, trained = (
        [float(r["upper"]) for r in rows if r["network"] == name and r["upper"]]
        for name in ("mnist_nn", "mnist_nn_pgd")
    )
    assert sum(easy) / len(easy) < sum(trained) / len(trained), (
        "adversarial training moves counterexamples away"
    )
    k = {r["k"]: r for r in found.of("k-binary")}
    if all(r["unanswered"] == "0" for r in k.values()):
        assert {(r["lower"], r["upper"]) for r in k.values()} == {(k["1"]["lower"], k["1"]["upper"])}
    boxes = found.of("record-boxes")
    assert {r["split"] for r in boxes} == {"train", "test"} and len(boxes) > 60
    assert all(float(r["least"]) <= float(r["middle"]) <= float(r["most"]) for r in boxes)
