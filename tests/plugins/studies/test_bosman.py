"""004: statistics against scipy, judgements on made-up rows, and the authors' records where they are."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from verifolio.plugins.studies.bosman import STUDY, boxes, figures, searches, tables
from verifolio.plugins.studies.bosman.brackets import Brackets, unique
from verifolio.plugins.studies.bosman.records import Recomputed, five, known
from verifolio.plugins.studies.bosman.signs import EPSILON, WIDTHS, Schedule, attacked, dense, train
from verifolio.plugins.studies.bosman.subjects import ALL, CIFAR, DENSE, FIRST, HERE, SIGNS, Subject, subject
from verifolio.plugins.studies.page import show
from verifolio.plugins.studies.sources import published
from verifolio.plugins.studies.statistics import (
    Side,
    correlation,
    describe,
    lognormal_p,
    two_sample_p,
)
from verifolio.plugins.studies.study import Place, Size, Tables

SHARED = Path(os.environ.get("VERIFOLIO_SHARED", Path(__file__).parents[4] / "shared" / "data"))
NO_RECORDS = pytest.mark.skipif(
    not (SHARED / "jair" / "published").is_dir(),
    reason=f"no records at {SHARED / 'jair' / 'published'}; set VERIFOLIO_SHARED",
)


def bracket(network: str, image: int, lower: float, upper: float | None, **more: str) -> dict[str, str]:
    row = {
        "network": network,
        "split": "test",
        "image": str(image),
        "label": "7",
        "status": "closed",
        "lower": str(lower),
        "upper": "" if upper is None else str(upper),
        "becomes": "3",
        "seconds": "1.5",
        "cpu": "1.0",
        "budget": "60",
        "published_lower": "",
        "published_upper": "",
        "published_seconds": "",
        "date": "2026-01-01",
        "commit": "abc",
        "load": "1.0",
    }
    return row | more


def test_statistics_are_scipys() -> None:
    random = np.random.default_rng(0)
    values = random.lognormal(-3, 0.5, 80).tolist()
    shape, loc, scale = stats.lognorm.fit(values, floc=0)
    assert lognormal_p(values) == pytest.approx(stats.kstest(values, "lognorm", (shape, loc, scale)).pvalue)
    assert lognormal_p([*values, 0.0, 0.0]) == pytest.approx(lognormal_p(values)), "zeros do not count"
    other = random.lognormal(-2, 0.5, 60).tolist()
    assert two_sample_p(values, other) == pytest.approx(stats.ks_2samp(values, other).pvalue)
    assert math.isnan(two_sample_p(values, other[:3])), "three values say nothing"
    first, second = dict(enumerate(values)), {k: v * 2 for k, v in list(enumerate(values))[5:]}
    n, value = correlation(first, second)
    assert n == 75 and value == pytest.approx(1.0)


def test_a_sample_is_described() -> None:
    side = Side([0.01, 0.03, 0.05], [0.012, 0.04, None], [1.0, 2.0, 3.0])
    found = describe(side, side, 0.002)
    assert found["n"] == "3" and found["lowest"] == "0.01" and found["mean"] == "0.03"
    assert float(found["gap"]) == pytest.approx(0.006), "over the two that have both sides"
    assert float(found["critical"]) == pytest.approx(2 / 3, abs=1e-4), "a wide gap, and one without an end"
    assert float(found["above_040"]) == pytest.approx(1 / 3, abs=1e-4)


def test_published_tables_are_whole() -> None:
    """Every network of every table is a subject; totals of the paper's table 5."""
    counted = {2: 15, 3: 16, 5: 12, 8: 12, 9: 8, 10: 12, 14: 12, 15: 12, 16: 12, 23: 32}
    for number, count in counted.items():
        rows = published(HERE, f"table{number}")
        assert len(rows) == count
        for row in rows:
            if row["network"] != "resnet_18":
                assert subject(row["network"], row.get("training", "standard")), (number, row)
    assert sum(int(r["n_train"]) for r in published(HERE, "table5")) == 1146


def test_a_file_is_measured_once_and_with_the_right_records() -> None:
    assert [s.records for s in unique(DENSE[:1])] == ["results_JAIR_fomlas.csv"]
    keys = Brackets((*FIRST, *DENSE)).wanted(Size())
    assert len(set(keys)) == len(keys) == 200 * 13
    assert not any("4_1024" in network for network, _, _ in keys), "it is not public"
    assert len(Brackets(FIRST).wanted(Size(quick=True))) == 9


def test_cifar_is_measured_where_its_images_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(tmp_path))
    assert not Brackets(CIFAR).wanted(Size())
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "test_batch.bin").touch()
    keys = Brackets(CIFAR).wanted(Size())
    assert {n for n, _, _ in keys} == {f"resnet_4b_{how}" for how in ("standard", "fgsm", "pgd")}
    assert len(keys) == 150 and {s for _, s, _ in keys} == {"test"}
    assert not Brackets(CIFAR).wanted(Size(quick=True))


def test_traffic_signs_are_trained_by_table_22() -> None:
    for one in (s for s in SIGNS if s.file):
        assert Schedule.of(one).batch == 128 and Schedule.of(one).epochs in (20, 50)
        sizes = [p.numel() for p in dense(3 * 32 * 32, WIDTHS[one.network], 43).parameters()]
        row = next(r for r in published(HERE, "table19") if r["network"] == one.network)
        assert tables.close(row["parameters"], str(sum(sizes))) and len(sizes) == 2 * int(
            row["linear_layers"]
        )


@pytest.mark.parametrize("training", ["standard", "fgsm", "pgd"])
def test_training_learns_and_attacks_stay_within_their_radius(training: str) -> None:
    import torch
    from torch.nn import functional

    rng = np.random.default_rng(0)
    images = rng.uniform(0, 1, (96, 3, 4, 4)).astype(np.float32)
    labels = (images[:, 0].mean((1, 2)) > 0.5).astype(np.int64)
    one = next(s for s in SIGNS if (s.network, s.training) == ("gtsrb_6_256", training))
    model = train(images, labels, 2, one, Schedule(1e-3, 10, 0.5, 32, 30))
    x, y = torch.tensor(images), torch.tensor(labels)
    moved = attacked(model, x, y, training)
    assert (
        float((moved - x).abs().max()) <= EPSILON + 1e-6
        and 0 <= float(moved.min()) <= float(moved.max()) <= 1
    )
    before, after = (functional.cross_entropy(model(v), y).item() for v in (x, moved))
    assert before < 0.6, "it has learnt something"
    assert after == before if training == "standard" else after > before


def test_open_shares() -> None:
    side = Side([0.0, 0.002, 0.01], [0.003, None, 0.02], [1.0, 1.0, 1.0])
    assert tables.open_share(side, 0.001) == "33.3"
    assert tables.open_share(side, 0.004) == "33.3", "the first has a counterexample, the third is proved"
    assert tables.open_share(Side([], [], []), 0.001) == "-"


def test_boxes_stand_beside_the_records() -> None:
    rows = [bracket("mnist_nn", k, 0.01 * k, 0.01 * k + 0.001) for k in range(5)]
    records = {"network": "nn", "training": "standard", "split": "test", "n": "76", "upper": "0.03"}
    records |= five([0.1, 0.2, 0.3, 0.4, 0.5], "") | five([], "gap_")
    found = Tables({"brackets": rows, "record-boxes": [records]})
    lines = boxes.box_table(found, FIRST, ("test",))[2:]
    assert lines == [
        "| nn | test | records | 76 | 0.1000 | 0.2000 | 0.3000 | 0.4000 | 0.5000 | 0.0300 |",
        "| nn | test | ours | 5 | 0.0000 | 0.0100 | 0.0200 | 0.0300 | 0.0400 | 0.0210 |",
    ]
    shown = boxes.gaps(FIRST)(found).lines
    assert any(line.startswith("| nn | ours | 5 | 5 | 0.0010 |") for line in shown)


def test_medians_are_judged_by_the_records_of_all_twelve() -> None:
    def row(one: Subject, middle: float) -> dict[str, str]:
        base = {"network": one.network, "training": "standard", "split": "train", "n": "99", "upper": ""}
        return base | five([0.0, middle, middle, middle, 1.0], "") | five([], "gap_")

    medians = dict.fromkeys(FIRST, 0.5) | {FIRST[4]: 0.9, FIRST[-1]: 0.1}
    rows = [row(s, m) for s, m in medians.items()]
    said = [str(s.judgement) for s in figures.highest(Tables({"record-boxes": rows})).statements]
    assert said == ["confirmed", "not decided"]
    assert str(figures.highest(Tables({"record-boxes": rows[1:]})).statements[0].judgement) == "not decided"
    rows[0] = row(FIRST[0], 0.95)
    assert str(figures.highest(Tables({"record-boxes": rows})).statements[0].judgement) == "refuted"


def test_training_is_judged_by_brackets_that_do_not_overlap() -> None:
    rows = [bracket("mnist_nn", k, 0.02, 0.03) for k in range(5)]
    rows += [bracket("mnist_nn_fgsm_02", k, 0.10, 0.20) for k in range(5)]
    rows += [bracket("mnist_nn_pgd", k, 0.01, 0.20) for k in range(5)]
    said = {s.text: str(s.judgement) for s in tables.trained_statements(Tables({"brackets": rows}))}
    assert said["fgsm training raises the mean radius of mnist_nn"] == "confirmed"
    assert said["pgd training raises the mean radius of mnist_nn"] == "not decided", "its bracket is too wide"
    low = [bracket("mnist_nn_pgd", k, 0.001, 0.002) for k in range(5)]
    found = tables.trained_statements(Tables({"brackets": rows[:5] + low}))
    assert {str(s.judgement) for s in found if s.text.startswith("pgd ")} == {"refuted"}


def test_refuted_radii_are_counted_by_their_margin() -> None:
    base = {"network": "mnist-net", "split": "test", "published_lower": "0.04", "label": "7", "becomes": "3"}
    hits = [
        base | {"image": "0", "found": "yes", "distance": "0.03", "margin": "0.5"},
        base | {"image": "1", "found": "yes", "distance": "0.04", "margin": "0.0001"},
        base | {"image": "2", "found": "no", "distance": "", "margin": ""},
    ]
    rows = [
        bracket("mnist-net", 2, 0.02, 0.03, published_lower="0.035", published_upper="0.037"),
        bracket("mnist-net", 3, 0.05, 0.06, published_lower="0.03", published_upper="0.04"),
    ]
    lines, statement = figures.refuted_table(Tables({"refuted": hits, "brackets": rows}))
    assert lines[-1] == "| net | 3 | 2 | 1 | 1 | 1 |"
    assert statement is not None and str(statement.judgement) == "refuted"
    _, fine = figures.refuted_table(Tables({"refuted": hits[2:]}))
    assert fine is not None and str(fine.judgement) == "confirmed"


def test_searches_are_compared_where_every_k_has_them() -> None:
    def row(image: str, k: str, queries: int, cpu: float, lower: str = "0.01") -> dict[str, str]:
        more = {"upper": "0.012", "cancelled": "1", "unanswered": "0", "wall": "1", "timeout": "60"}
        return {
            "network": "net",
            "image": image,
            "k": k,
            "lower": lower,
            "queries": str(queries),
            "cpu": str(cpu),
        } | more

    rows = [row("0", "1", 8, 5.0), row("0", "2", 12, 7.0), row("1", "1", 1, 1.0)]
    said = searches.k_search(Tables({"k-binary": rows}), 1).statements
    assert [str(s.judgement) for s in said] == ["refuted", "confirmed", "confirmed"]
    assert said[0].sample.startswith("1 searches")
    wrong = [rows[0], row("0", "2", 12, 7.0, lower="0.02")]
    assert str(searches.k_search(Tables({"k-binary": wrong}), 1).statements[1].judgement) == "refuted"


def test_misprints_of_table_4_are_found() -> None:
    (said,) = searches.k_search(Tables({}), 4).statements
    assert str(said.judgement) == "refuted"
    assert said.reason == "k = 2, timeouts: 0.141 is 0.014; k = 8, cancelled: 0.438 is 0.489."


def test_pictures_are_drawn_from_rows(tmp_path: Path) -> None:
    rows = [bracket(s.key, k, 0.01 + 0.001 * k, 0.02 + 0.001 * k) for s in ALL if s.file for k in range(9)]
    rows += [r | {"split": "train"} for r in rows]
    pairs = [{"split": "train", "first": "net", "second": "nn", "n": "9", "spearman": "0.5"}]
    searches = [{"k": "1", "cpu": "1.0", "wall": "2.0"}, {"k": "1", "cpu": "3.0", "wall": "2.0"}]
    found = Tables({"brackets": rows, "record-pairs": pairs, "k-binary": searches})
    for part in STUDY.parts:
        if part.draw is not None:
            path = tmp_path / f"{part.number}.png"
            part.draw(found, path)
            assert path.stat().st_size > 1000, part.name


@NO_RECORDS
def test_the_records_give_the_published_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(SHARED))
    wanted = [("net", "standard", s) for s in ("train", "test")] + [("gtsrb_6_256", "fgsm", "test")]
    rows = list(Recomputed().measure(wanted, Place(tmp_path, Size())))
    assert [(r["n"], r["lowest"], round(float(r["mean"]), 3)) for r in rows] == [
        ("99", "0.005", 0.038),
        ("99", "0.013", 0.042),
        ("71", "0", 0.023),
    ]
    assert len(known(FIRST[0], "test")) == 99
    text = "\n".join(show(STUDY.parts[4], Tables({"records": rows})).lines)
    assert "0.042 / 0.042 / -" in text
