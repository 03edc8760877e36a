"""002: properties by name, statuses on a network of the examples, and judgements on made-up rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio import Network, Oracle
from verifolio.plugins.studies.casadio import sampled, tables
from verifolio.plugins.studies.casadio.measure import RADII, Satisfaction, Security, statuses
from verifolio.plugins.studies.casadio.networks import DATA, PROPERTIES, REGIMES, VERIFIED, property_of
from verifolio.plugins.studies.casadio.sampled import keeps
from verifolio.plugins.studies.sources import published
from verifolio.plugins.studies.study import Size, Tables

NETWORK = Path(__file__).resolve().parents[3] / "examples" / "networks" / "digits_dense.onnx"


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_definition_is_decided(name: str) -> None:
    with Oracle(timeout=5.0) as oracle:
        found = statuses(property_of(name), Network.load(NETWORK), "digits", range(2), 0.01, oracle)
    assert len(found) == 2 and set(found) <= {"proved", "refuted", "open"}


def test_a_quick_run_is_about_digits() -> None:
    assert {data for data, *_ in Satisfaction().wanted(Size(quick=True))} == {"digits"}
    assert {regime for *_, regime, _ in Security().wanted(Size(quick=True))} == set(VERIFIED)


def satisfied(prop: str, network: str, proved: int, left: int = 0) -> dict[str, str]:
    counts = {"n": "20", "proved": str(proved), "refuted": str(20 - proved - left), "open": str(left)}
    return {"data": "gtsrb", "block": "0", "property": prop, "network": network} | counts


def test_table_1_is_judged_by_what_is_proved() -> None:
    shares = {"CR": (0, 1, 2, 9), "SR": (0, 1, 12, 20), "LR": (0, 0, 0, 0)}
    rows = [satisfied(p, n, k) for p, values in shares.items() for n, k in zip(VERIFIED, values, strict=True)]
    found = tables.proved_statements(Tables({"satisfaction": rows}), "gtsrb")
    assert [str(s.judgement) for s in found] == ["confirmed"] * 3
    rows[1] = satisfied("CR", "SCR", 15)
    found = tables.proved_statements(Tables({"satisfaction": rows}), "gtsrb")
    assert [str(s.judgement) for s in found] == ["confirmed", "confirmed", "refuted"]
    none = tables.proved_statements(Tables({"satisfaction": rows}), "fashion-mnist")
    assert {str(s.judgement) for s in none} == {"not decided"}
    text = "\n".join(tables.satisfaction(Tables({"satisfaction": [satisfied("SR", "SR", 12, left=3)]})).lines)
    assert "24.0 / 60.0 (open 3)" in text


def security(attack: str, network: str, kept: int) -> list[dict[str, str]]:
    base = {"data": "gtsrb", "attack": attack, "network": network, "n": "50", "kept": str(kept)}
    return [base | {"radius": r} for r in RADII]


def test_curves_are_judged_by_their_means() -> None:
    rows = [
        *security("SR", "LR", 50),
        *security("SR", "SR", 40),
        *security("LR", "LR", 5),
        *security("LR", "SR", 9),
    ]
    found = {s.text: str(s.judgement) for s in tables.figure2(Tables({"security": rows}), "gtsrb")}
    assert list(found.values()) == ["confirmed", "refuted", "not decided"]
    text = "\n".join(tables.curves([("SR", "Adv")])(Tables({"security": security("SR", "Adv", 25)})).lines)
    assert "| gtsrb | SR | Adv | 50 | 100.0 / 50.0 | 100.0 / 50.0 | 100.0 / 50.0 |" in text


def test_accuracy_needs_all_regimes() -> None:
    rows = [
        {"data": "gtsrb", "network": n, "n": "100", "right": "80" if n == "Adv" else "90"} for n in REGIMES
    ]
    said = tables.accuracy(Tables({"accuracy": rows})).statements
    assert [str(s.judgement) for s in said] == ["not decided", "confirmed"]
    assert str(tables.accuracy(Tables({"accuracy": rows[:3]})).statements[1].judgement) == "not decided"


def test_the_records_are_whole() -> None:
    """Every curve of both data sets: three attacks, seven networks, five radii."""
    rows = published(tables.HERE, "security")
    assert {(r["data"], r["attack"], r["network"]) for r in rows} == {
        (d, a, n) for d in DATA for a in ("SR", "SCR", "LR") for n in REGIMES
    }
    assert all(0 <= float(r[radius]) <= 100 for r in rows for radius in RADII)
    base = next(r for r in rows if (r["data"], r["attack"], r["network"]) == ("fashion-mnist", "SCR", "Base"))
    assert [base[r] for r in ("0.06", "0.08", "0.1")] == ["62.6", "33.9", "15.1"]
    assert tables.mean_of_records("fashion-mnist", "SR", "LR") == 100
    assert "under SCR attacks" in "\n".join(tables.large(Tables({})))


def test_samples_keep_a_property() -> None:
    before = np.zeros((3, 2), np.float32)
    after = np.array([[10, 0], [0, 10.5], [0.2, 0]], np.float32)
    labels = np.array([0, 0, 1])
    assert keeps("SR", before, after, labels).tolist() == [True, False, True]
    assert keeps("SCR", before, after, labels).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("sr", "scr", "said"), [(1000, 990, "confirmed"), (1000, 980, "refuted"), (990, 990, "refuted")]
)
def test_constraint_accuracy_is_judged(sr: int, scr: int, said: str) -> None:
    rows = [
        {"data": "gtsrb", "property": p, "network": "Base", "n": "100", "samples": "10", "kept": str(k)}
        for p, k in (("SR", sr), ("SCR", scr))
    ]
    shown = sampled.shown(Tables({"sampled": rows}))
    assert str(shown.statements[0].judgement) == said
    assert str(sampled.shown(Tables({})).statements[0].judgement) == "not decided"
