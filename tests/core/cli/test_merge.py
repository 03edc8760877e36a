"""A query over several networks, written as one network and a VNN-LIB 1.0 file, means the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio.cli.main import run
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.testing.samples import write_sum

TWO = """
(vnnlib-version <2.0>)
(declare-network f (declare-input X_f float32 [{n}]) (declare-output Y_f float32 [{m}]))
(declare-network g (equal-to f) (declare-input X_g float32 [{n}]) (declare-output Y_g float32 [{m}]))
{bounds}
(assert (>= Y_f[0] (+ Y_g[0] 0.25)))
"""


def two_properties(folder: Path, more: int = 0) -> tuple[Network, Path]:
    """A network, and a property over two copies of it, which declares so many inputs `more` than it has."""
    network = write_sum(folder)
    n, m = network.input_size + more, network.output_size
    lines = [f"(assert (>= X_{k}[{i}] -1.0))\n(assert (<= X_{k}[{i}] 1.0))" for k in "fg" for i in range(n)]
    text = folder / "two.vnnlib"
    text.write_text(TWO.format(n=n, m=m, bounds="\n".join(lines)))
    return network, text


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Query, Query]:
    network, text = two_properties(tmp_path)
    names = [str(network.path), str(network.path), str(text)]
    assert run(["vnnlib", "merge", *names, "--output", str(tmp_path / "out")]) == 0
    files = tmp_path / "out" / "merged.onnx", tmp_path / "out" / "merged.vnnlib"
    return Query.from_files([names[0], names[1]], text), Query.from_files([files[0]], files[1])


def test_the_merged_network_computes_both(merged: tuple[Query, Query]) -> None:
    two, one = merged
    network, n = two.networks[0], two.networks[0].input_size
    for x in np.random.default_rng(0).uniform(-1, 1, (20, 2 * n)).astype(np.float32):
        apart = np.concatenate([network.replay(x[:n]), network.replay(x[n:])])
        np.testing.assert_allclose(one.networks[0].replay(x), apart, rtol=1e-6, atol=1e-6)


def test_the_merged_property_is_the_same_set(merged: tuple[Query, Query]) -> None:
    two, one = merged
    assert [p.condition_sha256 for p in one.problems] == [p.condition_sha256 for p in two.problems]
    assert [p.domain.sha256 for p in one.problems] == [p.domain.sha256 for p in two.problems]


def test_a_network_declared_equal_to_another_is_given_once(tmp_path: Path) -> None:
    network, text = two_properties(tmp_path)
    files = [str(network.path), str(text)]
    assert run(["vnnlib", "merge", *files, "--output", str(tmp_path / "once")]) == 0
    assert run(["vnnlib", "merge", files[0], *files, "--output", str(tmp_path / "twice")]) == 0
    once, twice = (
        Query.from_files([tmp_path / f / "merged.onnx"], tmp_path / f / "merged.vnnlib")
        for f in ("once", "twice")
    )
    assert once.specification.sha256 == twice.specification.sha256
    assert once.networks[0].sha256 == twice.networks[0].sha256


def test_a_property_of_other_sizes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is written: a network beside a property about more inputs would be a trap."""
    network, text = two_properties(tmp_path, more=1)
    files = [str(network.path), str(text), "--output", str(tmp_path / "out")]
    assert run(["vnnlib", "merge", *files]) == 2
    assert "expected" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
