"""Every public property file: parses, agrees with its twin, and is read fast enough."""

from __future__ import annotations

import csv
import gzip
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verifolio.vnnlib import Specification, inward_float32, load, loads, normalise, parse, write

Same = Callable[[Specification, Specification], None]
MONOTONIC = "monotonic_acasxu_instance_0.v2.vnnlib"


def rows_of(path: Path) -> list[dict[str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_file_loads_with_the_declared_sizes(public: Path) -> None:
    boxes_without_float32 = 0
    known: dict[str, Specification] = {}
    for row in rows_of(public / "instances.csv"):
        name = row["vnnlib"]
        specification = known.get(name) or known.setdefault(name, load(public / name))
        assert specification.cases, name
        assert str(specification.input_size) == row["inputs"], name
        boxes_without_float32 += any(inward_float32(case)[2].any() for case in specification.cases)
    for path in (public / "vnnlib2").glob("*.vnnlib"):
        if path.name != MONOTONIC:
            load(path)
    assert boxes_without_float32 == 25


def test_known_counterexamples_lie_inside_up_to_one_rounding(public: Path) -> None:
    """Published points are decimals on the boundary, rounded to nearest; ours are rounded inward."""
    files = {row["id"]: row["vnnlib"] for row in rows_of(public / "instances.csv")}
    for row in rows_of(public / "witnesses.csv.gz"):
        specification = load(public / files[row["id"]])
        published = np.array(row["x"].split(), dtype=np.float32)
        zeros = np.zeros(specification.output_size)
        case = specification.cases[specification.check(published, zeros).case or 0]
        lower, upper, mask = inward_float32(case)
        x = np.clip(published, lower, upper)
        assert np.all(np.abs(x - published) <= np.spacing(np.abs(published))), row["id"]
        check = specification.check(x, zeros)
        assert check.input_violation == 0 or (check.input_ulp and mask.any()), row["id"]


def test_twins_of_both_versions_agree(public: Path, assert_same: Same) -> None:
    pairs = [row for row in rows_of(public / "vnnlib2_pairs.csv") if row["vnnlib_v1"]]
    assert len(pairs) >= 20
    for row in pairs:
        assert_same(load(public / row["vnnlib_v1"]), load(public / row["vnnlib_v2"]))


def test_infix_comparison_is_read_with_a_warning(public: Path, assert_same: Same) -> None:
    path = public / "vnnlib2" / MONOTONIC
    specification = load(path)
    assert [f"{path}:30:9" in text for text in specification.warnings] == [True]
    plain = loads(path.read_text().replace("(Y_f[3] < Y_g[3])", "(< Y_f[3] Y_g[3])"))
    assert_same(specification, plain)
    assert specification.input_size == 10
    assert not specification.cases[0].empty


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_conversion_keeps_every_number(public: Path, version, assert_same: Same) -> None:  # type: ignore[no-untyped-def]
    for folder in sorted(public.iterdir()):
        for path in sorted(folder.glob("vnnlib/*.vnnlib*"))[:1]:
            document = parse(path)
            specification = normalise(document)
            assert_same(specification, loads(write(document, version)))
            assert_same(specification, loads(write(specification, version)))


def seconds(text: str) -> float:
    best = 99.0
    for _ in range(3):
        start = time.process_time()
        loads(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_three_megabytes_of_bounds_take_less_than_a_second() -> None:
    size, values = 27_000, np.random.default_rng(0).random(27_000).tolist()
    text = "".join(f"(declare-const X_{i} Real)\n" for i in range(size)) + "(declare-const Y_0 Real)\n"
    text += "".join(f"(assert (>= X_{i} {v}))\n(assert (<= X_{i} {v + 0.1}))\n" for i, v in enumerate(values))
    text += "(assert (<= Y_0 0))"
    assert len(text) > 2_900_000
    assert seconds(text) < 1.0


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_three_megabytes_of_regions() -> None:
    values = np.random.default_rng(0).random(300).tolist()
    text = "".join(f"(declare-const X_{i} Real)\n" for i in range(154)) + "(declare-const Y_0 Real)\n"
    clauses = [
        " ".join(f"(>= X_{i} {v}) (<= X_{i} {v + 0.1})" for i in range(154)) + f" (<= Y_0 {v})"
        for v in values
    ]
    text += f"(assert (or {' '.join(f'(and {clause})' for clause in clauses)}))"
    assert len(text) > 2_700_000
    assert seconds(text) < 1.0
