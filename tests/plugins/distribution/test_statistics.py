"""Statistics on known data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from verifolio.cli.main import run as cli
from verifolio.errors import InputError
from verifolio.plugins.distribution.figures import colour_of
from verifolio.plugins.distribution.ledger import DistributionLedger, Entry
from verifolio.plugins.distribution.radius_search import SearchStatus
from verifolio.plugins.distribution.report import SECTIONS, load_rows, make_material
from verifolio.plugins.distribution.statistics import (
    at_radius,
    compare,
    fit_lognormal,
    lilliefors,
    rank_correlation,
    rounding_losses,
    severity,
)
from verifolio.plugins.distribution.summary import summarise
from verifolio.plugins.distribution.table import Row, write_csv


def row(lower: float | None, upper: float | None, k: int = 0, **more: object) -> Row:
    given = {
        "network": "n.onnx",
        "split": "test",
        "status": SearchStatus.CLOSED,
        "seconds": 1.0,
        "queries": 2,
    } | more
    status = given.pop("status")
    place = (given.pop("network"), given.pop("split"))
    return Row(*place, k, 1, 1, lower, upper, status, **given)  # type: ignore[arg-type]


ROWS = [
    row(0.1, 0.1, 0),
    row(0.2, 0.25, 1),
    row(0.3, None, 2, status=SearchStatus.OPEN),
    row(0.0, None, 3, status=SearchStatus.OPEN),
    row(None, None, 4, status=SearchStatus.MISCLASSIFIED),
]


def test_robust_accuracy_is_an_interval() -> None:
    found = at_radius(ROWS, 0.22)
    assert (found.robust.low, found.robust.high) == (0.25, 0.75)  # proved: 0.3; refuted: 0.1
    assert (found.accuracy.low, found.accuracy.high) == (0.2, 0.6)
    assert (found.frequency.low, found.frequency.high) == (0.25, 0.75)
    assert at_radius(ROWS, 0.1).frequency.low == 0.25  # a counterexample at exactly the radius counts


def test_severity_covers_every_possible_mean() -> None:
    pairs = [(0.1, 0.12), (0.2, 0.5), (0.05, 0.6), (0.7, 0.8)]
    radius = 0.3
    found = severity(pairs, radius)
    rng = np.random.default_rng(0)
    means = []
    for _ in range(4000):
        truth = [rng.uniform(lo, up) for lo, up in pairs]
        inside = [t for t in truth if t <= radius]
        means.append(np.mean(inside))
    assert found.low <= min(means)
    assert max(means) <= found.high
    assert found.low == pytest.approx((0.1 + 0.05) / 2)
    assert found.high == pytest.approx((0.12 + 0.3 + 0.3) / 3)
    assert severity([(0.1, 0.12)], 0.2).text(2) == "0.10 .. 0.12"
    assert severity([(0.4, 0.5)], 0.2).text() == "undefined"


def test_the_fit_is_scipys_without_shift() -> None:
    values = np.random.default_rng(1).lognormal(-3, 0.5, 200)
    fit = fit_lognormal([*values.tolist(), 0.0, 0.0])
    assert (fit.count, fit.zeros) == (200, 2)
    assert fit.scale == pytest.approx(math.exp(np.log(values).mean()))
    assert fit.shape == pytest.approx(np.log(values).std())
    assert fit.ks_p == pytest.approx(stats.kstest(values, "lognorm", args=(fit.shape, 0, fit.scale)).pvalue)
    assert fit.lilliefors_p < fit.ks_p
    assert fit.verdict == "log-normal not rejected"
    uniform = fit_lognormal(np.random.default_rng(2).uniform(0.001, 1, 400).tolist())
    assert uniform.verdict == "not log-normal"
    assert uniform.lilliefors_p < 0.01
    assert fit_lognormal([0.0, 0.0, 0.0]).verdict == "invalid"


def test_the_corrected_test_decides() -> None:
    """The naive test accepts what the corrected one rejects, because the fit has seen the values."""
    values = np.exp(np.random.default_rng(4).laplace(0, 1, 60)).tolist()
    fit = fit_lognormal(values)
    assert fit.lilliefors_p < 0.05 < fit.ks_p
    assert fit.verdict == "not log-normal"


def test_lilliefors_has_its_level() -> None:
    """About a twentieth of normal samples is rejected at 5 %, and the critical value of the tables is met."""
    rng = np.random.default_rng(3)
    values = [lilliefors(rng.normal(2, 5, 30), seed=k) for k in range(120)]
    assert 0.0 <= np.mean(np.array(values) < 0.05) < 0.12
    assert 0.3 < np.mean(values) < 0.7


def test_two_samples() -> None:
    rng = np.random.default_rng(4)
    one, other = rng.normal(0, 1, 100).tolist(), rng.normal(2, 1, 80).tolist()
    different, same = compare("x", one, other), compare("x", one[:50], one[50:])
    assert different.ks_p < 1e-6 and different.t_p < 1e-6
    assert same.ks_p > 0.05
    assert math.isnan(compare("x", [1.0], [2.0, 3.0]).ks_p)


def test_rank_correlation_uses_common_inputs() -> None:
    a = {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}
    names, rho = rank_correlation(
        {"a": a, "b": {k: -v for k, v in a.items()}, "c": {0: 1.0, 1: 5.0, 2: 9.0, 9: 0.0}}
    )
    assert names == ["a", "b", "c"]
    assert rho[0, 1] == pytest.approx(-1.0)
    assert rho[0, 2] == pytest.approx(1.0)
    assert np.array_equal(rho, rho.T)


def test_the_summary_counts() -> None:
    found = summarise("n.onnx", "test", ROWS, step=0.02)
    assert (found.inputs, found.measured, found.misclassified) == (5, 4, 1)
    assert (found.closed, found.unsolved, found.terminated) == (2, 1, 1)  # by its gap: nothing else is known
    noted = [replace(ROWS[1], terminated=False), replace(ROWS[2], terminated=True)]
    assert summarise("n.onnx", "test", noted, step=0.02).terminated == 1  # what was noted counts
    assert found.mean_lower == pytest.approx(0.15)
    assert found.mean_gap == pytest.approx(0.025)
    assert found.seconds == 4.0
    assert math.isnan(summarise("n", "s", []).mean_gap)


def test_rounding_losses() -> None:
    rows = [row(0.1, 0.2, rounded=True), row(0.1, 0.2, rounded=False), row(0.1, None)]
    assert (rounding_losses(rows).witnesses, rounding_losses(rows).lost) == (2, 1)


def many() -> list[Row]:
    rng = np.random.default_rng(5)
    rows = []
    for network in ("a.onnx", "b.onnx"):
        for split in ("train", "test"):
            for k in range(30):
                low = float(rng.lognormal(-3, 0.4))
                rows.append(row(low, low + 0.002, k, network=network, split=split, rounded=bool(k % 2)))
    return [*rows, row(None, None, 40, status=SearchStatus.MISCLASSIFIED, network="a.onnx")]


def test_the_sections_have_every_table_and_picture(tmp_path: Path) -> None:
    material = make_material(many(), tmp_path / "out", (0.04, 0.06), step=0.002)
    made = [cls().make(material) for cls in SECTIONS]
    pictures = [path for content in made for _, path in content.pictures]
    assert len(pictures) == 11
    assert all(
        p.suffix == ".svg" and p.with_suffix(".pdf").read_bytes().startswith(b"%PDF") for p in pictures
    )
    tables = {t.name: t for content in made for t in content.tables}
    assert "Lilliefors p" in tables["fits"].columns
    assert "critical terminations" in tables["results"].columns
    assert "a.onnx: train and test" in [row[0] for row in tables["two_samples"].rows]
    assert tables["rounding"].rows[0][1:] == ("30", "15", "50")
    assert len(material.groups) == 4
    assert set(material.correlations) == {"train", "test"}
    assert material.groups[0].summary.terminated == 0


def test_every_network_has_one_colour() -> None:
    """In all groups that it is in, whatever their order."""
    groups = {
        f"{n} {s}": [r for r in many() if (r.network, r.split) == (n, s)]
        for s in ("test", "train")
        for n in ("b.onnx", "a.onnx")
    }
    found = colour_of(groups)
    assert found["a.onnx test"] == found["a.onnx train"] != found["b.onnx test"]
    assert found["b.onnx test"] == found["b.onnx train"]


def test_reports_come_from_tables_and_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = many()
    write_csv(tmp_path / "out.csv", rows)
    with DistributionLedger(tmp_path / "run.db") as ledger:
        ledger.begin("one", {"tolerance": 0.5, "radii": []})
        ledger.begin("two", {"tolerance": 0.5, "radii": [0.001, 0.003, 0.005]})
        for position, one in enumerate(rows):
            entry = Entry(str(position), "", position, one.network, one.split)
            ledger.finish("two", entry, one)
    stored, step = load_rows([tmp_path / "run.db"])
    assert stored == rows
    assert step == pytest.approx(0.002)
    assert cli(["report", str(tmp_path / "out.csv"), "--output", str(tmp_path / "page")]) == 0
    assert "robust on" in capsys.readouterr().out
    assert (tmp_path / "page" / "index.html").is_file()
    with pytest.raises(InputError, match="measured"):
        load_rows([tmp_path / "run.db"], "one")
    assert cli(["report", str(tmp_path / "missing.csv")]) == 2
    assert cli(["distribution", "report", str(tmp_path / "out.csv")]) == 2
    assert "`distribution report` is now `verifolio report`" in capsys.readouterr().err


def test_reused_answers_are_not_in_the_times() -> None:
    rows = [row(0.1, 0.1, 0, seconds=4.0), row(0.1, 0.1, 1, seconds=0.0, reused=2)]
    found = summarise("n.onnx", "test", rows)
    assert (found.seconds, found.mean_seconds, found.reused) == (4.0, 4.0, 1)
    assert "1 reused, not in the times" in found.text()
    assert "nan" not in summarise("net", "test", [row(0.1, None, 0)]).text()
