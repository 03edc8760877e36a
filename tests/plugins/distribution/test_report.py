"""Reports of real runs: costs of searches, tables by split, and every picture."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import onnx
import pytest

from verifolio import Content, Material, Registry, Section, Table, current_plugins, hookimpl
from verifolio.cli.main import run as cli
from verifolio.data import load_data
from verifolio.onnx_import.network import Network
from verifolio.plugins.distribution.costs import search_costs, worst_case
from verifolio.plugins.distribution.figures_between import extreme_pairs
from verifolio.plugins.distribution.ledger import DistributionLedger
from verifolio.plugins.distribution.run import Distribution, Setting, make_items
from verifolio.solve.oracle import Oracle

NETWORKS = Path(__file__).resolve().parents[3] / "examples" / "networks"
GRID = tuple(round(0.01 + 0.02 * k, 3) for k in range(16))
NAMES = ("digits_dense.onnx", "digits_twin.onnx")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks on both splits, searched with one and with two queries at a time, and by brackets."""
    folder = tmp_path_factory.mktemp("report")
    path = folder / "run.db"
    twin = folder / NAMES[1]
    model = onnx.load(NETWORKS / NAMES[0])
    model.doc_string = "another file, the same function"
    onnx.save(model, twin)
    networks = [Network.load(NETWORKS / NAMES[0]), Network.load(twin)]
    sets = [(load_data(f"digits:{split}"), range(3)) for split in ("train", "test")]
    # brackets first: they would begin with what the others know, and their times would say nothing
    settings = [Setting(tolerance=0.01), *(Setting("k-binary", (f"k={k}",), GRID) for k in (1, 2))]
    with DistributionLedger(path) as ledger:
        for setting in settings:
            with Oracle(executor="inline") as oracle:
                Distribution(setting, make_items(networks, sets), oracle, ledger).run()
    return path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_one_command_makes_every_table_and_picture(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "page"
    assert cli(["report", str(store), "--output", str(out), "--thresholds", "0.05,0.1"]) == 0
    pictures = {p.stem for p in out.glob("*.svg")}
    assert pictures == {
        *("ecdf", "boxes", "histogram", "counts", "times", "spearman_train", "spearman_test"),
        *("extremes", "split_boxes", "split_curves", "scatter", "searches"),
    }
    page = (out / "index.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == len(pictures)
    quality = table(out / "quality.csv")
    assert [r["network"] for r in quality] == ["digits_dense", "digits_twin"]
    assert {
        "mean gap (train)",
        "mean gap (test)",
        "log-normal (Lilliefors) (test)",
        "% critical (train)",
    } <= set(quality[0])
    same = [{k: v for k, v in r.items() if k != "network"} for r in quality]
    assert same[0] == same[1]  # the twin is the same network
    counts = table(out / "counts.csv")
    assert {r["radius"] for r in counts} == {"0.05", "0.1"}
    assert len(table(out / "radii.csv")) == 4


def test_costs_of_searches_come_from_the_log(store: Path, tmp_path: Path) -> None:
    with DistributionLedger(store) as ledger:
        one, two, bracket = search_costs([ledger])
        twice = search_costs([ledger, ledger])  # as if each run were spread over two stores
        rows = {run: ledger.rows(run) for run, _ in ledger.runs()}
    assert (one.label, two.label, bracket.label) == ("k = 1", "k = 2", "bracket")
    assert (one.bound, bracket.bound) == (worst_case(16, 1), None)
    assert one.inputs == two.inputs == bracket.inputs == sum(r.measured for r in next(iter(rows.values())))
    assert one.bound is not None and one.least <= one.mean <= one.most <= one.bound
    assert one.cancelled == 0
    assert [(c.label, c.inputs) for c in twice] == [(c.label, 2 * c.inputs) for c in (one, two, bracket)]
    assert sum(one.busy) <= sum(one.wall) * 1.01  # one query at a time
    for cost, mine in zip((bracket, one, two), rows.values(), strict=True):
        assert cost.queries == sum(r.queries for r in mine)
        assert cost.cancelled == sum(r.cancelled for r in mine)
    assert cli(["report", str(store), "--output", str(tmp_path)]) == 0
    assert [r["search"] for r in table(tmp_path / "searches.csv")] == ["k = 1", "k = 2", "bracket"]
    assert table(tmp_path / "answers.csv")[0]["queries"] == str(one.queries)


def test_the_worst_case_is_known_for_few_numbers_of_queries() -> None:
    """Table 1 of the paper prints 8 and 11 for 200 radii; with 4 queries its formula gives 16."""
    assert [worst_case(200, k) for k in (1, 2, 4, 8)] == [8, 11, 16, None]
    assert [worst_case(n, 1) for n in (1, 3, 4, 16)] == [1, 2, 3, 5]


def test_extreme_pairs_ignore_what_is_undefined() -> None:
    rho = np.array([[1, 0.2, np.nan], [0.2, 1, 0.7], [np.nan, 0.7, 1]])
    assert extreme_pairs(["a", "b", "c"], rho) == [("c", "b", 0.7), ("b", "a", 0.2)]
    assert extreme_pairs(["a"], rho[:1, :1]) == []


class Open(Section):
    name, report = "open", "distribution"

    def make(self, material: Material) -> Content:
        seen = sorted({str(r["network"]) for r in material.records})
        return Content((Table("seen", "Networks that were seen", ("network",), tuple((n,) for n in seen)),))


class Elsewhere(Open):
    name, report = "elsewhere", "another report"


class Plugin:
    @hookimpl
    def register_sections(self, registry: Registry[Section]) -> None:
        registry.add(Open)
        registry.add(Elsewhere)


def test_register_sections(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the named sections, in their order; one of another report is refused."""
    report = ["report", str(store), "--output", str(tmp_path)]
    with current_plugins().plus(Plugin()).in_use():
        assert cli([*report, "--section", "open"]) == 0
        assert [r["network"] for r in table(tmp_path / "seen.csv")] == list(NAMES)
        assert [p.name for p in sorted(tmp_path.iterdir())] == ["index.html", "inputs.csv", "seen.csv"]
        assert cli([*report, "--section", "elsewhere"]) == 2
        assert "a section of the report distribution" in capsys.readouterr().err
        assert cli([*report, "--section", "nobody"]) == 2
        assert "statistics" in capsys.readouterr().err
