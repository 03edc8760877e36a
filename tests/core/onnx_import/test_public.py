"""The public networks import, and the page of operators names everything that can be imported."""

from __future__ import annotations

import csv
import os
import re
import time
from pathlib import Path

import onnx
import pytest

from verifolio.onnx_import.check import import_graph
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.table import HANDLERS

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("VERIFOLIO_SHARED", ROOT.parent / "shared" / "data"))


def public_networks() -> dict[str, list[Path]]:
    """The networks of each category."""
    table = DATA / "public" / "instances.csv"
    if not table.is_file():
        pytest.skip(f"no public networks: {table} does not exist; set VERIFOLIO_SHARED")
    found: dict[str, list[Path]] = {}
    with table.open(newline="") as stream:
        for line in csv.DictReader(stream):
            paths = found.setdefault(line["category"], [])
            path = DATA / "public" / line["onnx"]
            if path not in paths:
                paths.append(path)
    return found


def test_public_networks_import() -> None:
    """Three of each category; benchmarks/import_table.py measures all of them."""
    count = 0
    for paths in public_networks().values():
        for path in paths[:3]:
            network = Network.load(path)
            graph = import_graph(network)
            assert graph.input_size == network.input_size
            assert graph.output_size == network.output_size
            count += 1
    assert count >= 40


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_a_small_network_imports_quickly() -> None:
    paths = public_networks()["acasxu"]
    import_graph(Network.load(paths[0]))
    seconds = []
    for path in paths[1:8]:
        start = time.perf_counter()
        import_graph(Network.load(path))
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.03  # the others may have waited for a busy machine


def test_the_page_of_operators_names_every_operator() -> None:
    page = (ROOT / "docs/reference/operators.md").read_text()
    assert [name for name in HANDLERS if f"`{name}`" not in page] == []


def test_the_page_claims_no_operator_that_is_refused() -> None:
    """Before its section of refusals the page names no operator that the table lacks."""
    page = (ROOT / "docs/reference/operators.md").read_text().split("## Refused")[0]
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    # names of graph operators that are also ONNX operators, and what is resolved while a file is read
    ours = {"Conv", "Relu", "Concat", "Sum", "If"}
    named = set(re.findall(r"`([A-Z]\w+)`", page)) & known
    assert named - ours <= set(HANDLERS)
