"""A network is its content: a file that changes is another network, whoever reads it and when."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from verifolio.encode.onnx_writer import write_onnx
from verifolio.errors import InputError
from verifolio.graph import Dense, GraphBuilder, Relu
from verifolio.model.answer import Verdict
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.solve.oracle import Oracle
from verifolio.storage.store import Store

TEXT = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (>= X_0 0.0))\n(assert (<= X_0 1.0))\n"
CHANGED = "expected the file that was loaded .* the file has changed meanwhile"


def steep(path: Path, slope: float) -> Path:
    """y = relu(slope x)."""
    builder = GraphBuilder(1)
    weighed = builder.add(Dense(1, np.zeros(1), np.full((1, 1), slope)), 0)
    write_onnx(builder.finish(builder.add(Relu(1), weighed)), path)
    return path


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_changed_file_is_not_answered_for(tmp_path: Path, executor: str) -> None:
    """y >= 2 is reached by the file that was asked about, but not by the one in its place."""
    (tmp_path / "p.vnnlib").write_text(f"{TEXT}(assert (>= Y_0 2.0))\n")
    path, kept = steep(tmp_path / "net.onnx", 3.0), tmp_path / "answers.db"
    asked = Query.from_files([path], tmp_path / "p.vnnlib")
    steep(path, 1.0)
    with (
        Store(kept) as store,
        Oracle(None, executor, store, timeout=30.0) as oracle,
        pytest.raises(InputError, match=CHANGED),
    ):
        oracle.ask(asked)
    steep(path, 3.0)
    with Store(kept) as store, Oracle(None, "inline", store, timeout=30.0) as oracle:
        assert not list(store.answers())
        assert oracle.ask(Query.from_files([path], tmp_path / "p.vnnlib")).verdict is Verdict.SAT


def test_neither_half_of_a_network_reads_another_file(tmp_path: Path) -> None:
    path = steep(tmp_path / "net.onnx", 3.0)
    network = Network.load(path)
    steep(path, 1.0)
    with pytest.raises(InputError, match=CHANGED):
        _ = network.graph
    with pytest.raises(InputError, match=CHANGED):
        network.replay(np.ones(1, np.float32))
    path.unlink()
    with pytest.raises(InputError, match="a readable file"):
        network.content()


def test_what_was_imported_stays_what_it_was(tmp_path: Path) -> None:
    path = steep(tmp_path / "net.onnx", 3.0)
    network = Network.load(path)
    assert network.replay(np.ones(1, np.float32)).tolist() == [3.0]
    steep(path, 1.0)
    assert network.replay(np.ones(1, np.float32)).tolist() == [3.0]
    assert Network.load(path).replay(np.ones(1, np.float32)).tolist() == [1.0]


def test_a_compressed_file_is_the_same_network(tmp_path: Path) -> None:
    plain = Network.load(steep(tmp_path / "net.onnx", 2.0))
    packed = tmp_path / "net.onnx.gz"
    packed.write_bytes(gzip.compress(plain.content()))
    assert Network.load(packed).model() == plain.model()
    assert Network.load(packed).graph.sha256 == plain.graph.sha256
