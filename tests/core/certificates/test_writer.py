"""What searches leave behind becomes certificates that the checker accepts."""

from __future__ import annotations

import gzip
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.certificates.writer import obstacle, write
from verifolio.model.answer import Verdict
from verifolio.model.query import Query
from verifolio.plugin.verifier import Context
from verifolio.plugins.crown.options import CrownOptions
from verifolio.plugins.crown.search.neurons import refinement, stages
from verifolio.plugins.crown.verifier import Crown
from verifolio.plugins.milp.options import MilpOptions
from verifolio.plugins.milp.verifier import Milp
from verifolio.run.budget import Budget
from verifolio_check.main import run


def make_network(path: Path, seed: int, sizes: tuple[int, ...]) -> Path:
    rng = np.random.default_rng(seed)
    nodes, constants, name = [], [], "x"
    for k, (a, b) in enumerate(pairwise(sizes)):
        weight = (rng.normal(size=(a, b)) / np.sqrt(a)).astype(np.float32)
        constants += [numpy_helper.from_array(weight, f"w{k}")]
        constants += [numpy_helper.from_array((rng.normal(size=b) / 3).astype(np.float32), f"b{k}")]
        nodes.append(helper.make_node("Gemm", [name, f"w{k}", f"b{k}"], [f"z{k}"]))
        name = f"z{k}"
        if k + 2 < len(sizes):
            nodes.append(helper.make_node("Relu", [name], [f"h{k}"]))
            name = f"h{k}"
    tensors = [("x", sizes[0]), (name, sizes[-1])]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, s)) for n, s in tensors]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def make_property(path: Path, network: Path, inputs: int, slack: float, conjunction: bool) -> Path:
    """Outputs that no sampled input comes close to."""
    import onnxruntime

    x = np.random.default_rng(0).random((4000, inputs)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(network))
    y = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    text = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    text += [f"(declare-const Y_{i} Real)" for i in range(y.shape[1])]
    text += [f"(assert (>= X_{i} 0.0))\n(assert (<= X_{i} 1.0))" for i in range(inputs)]
    low = [float(y[:, i].min()) - slack * float(np.ptp(y[:, i])) for i in range(2)]
    if conjunction:  # both rows are needed: neither output alone is out of reach
        worst = float((y[:, 0] + y[:, 1]).min()) - slack * float(np.ptp(y[:, 0] + y[:, 1]))
        middle = float(np.median(y[:, 0]))
        text.append(f"(assert (and (<= Y_0 {middle}) (<= Y_1 {worst - middle})))")
    else:
        text.append(f"(assert (or (<= Y_0 {low[0]}) (and (<= Y_1 {low[1]}))))")
    path.write_text("\n".join(text))
    return path


def certify(folder: Path, network: Path, prop: Path, split: str) -> Path:
    traces = folder / "traces"
    traces.mkdir()
    query = Query.from_files([network], prop)
    crown = Crown(CrownOptions(split=split, trace=str(traces)))  # type: ignore[arg-type]
    for problem in query.problems:
        assert crown.run(problem, Context(Budget(60.0))).verdict is Verdict.UNSAT
    target = folder / "c.gz"
    assert write(network, prop, traces, target, 60.0) == str(target)
    return target


@pytest.mark.parametrize("conjunction", [False, True])
@pytest.mark.parametrize("split", ["input", "neuron"])
@pytest.mark.parametrize("seed", [0, 1])
def test_searches_leave_valid_certificates(tmp_path: Path, seed: int, split: str, conjunction: bool) -> None:
    network = make_network(tmp_path / "n.onnx", seed, (3, 12, 12, 2))
    prop = make_property(tmp_path / "p.vnnlib", network, 3, 0.05, conjunction)
    target = certify(tmp_path, network, prop, split)
    assert run(network, prop, target) == (0, "valid")
    with gzip.open(target, "rt") as file:
        text = file.read()
    assert ("r0." in text or "r1." in text) == (split == "neuron" and "/" in text)


def test_what_the_checker_does_not_read_is_said_before_any_search(tmp_path: Path) -> None:
    network = make_network(tmp_path / "n.onnx", 0, (3, 4, 2))
    prop = make_property(tmp_path / "p.vnnlib", network, 3, 0.1, False)
    assert obstacle(network, prop) is None
    model = onnx.load(network)
    model.graph.node[1].op_type = "Sin"
    onnx.save(model, network)
    assert "Sin" in str(obstacle(network, prop))


def test_without_a_trace_the_writer_splits_by_itself(tmp_path: Path) -> None:
    network = make_network(tmp_path / "n.onnx", 0, (3, 4, 2))
    prop = make_property(tmp_path / "p.vnnlib", network, 3, 0.1, False)
    assert write(network, prop, tmp_path, tmp_path / "c.gz", 1.0) == str(tmp_path / "c.gz")
    assert run(network, prop, tmp_path / "c.gz") == (0, "valid")
    false = tmp_path / "false.vnnlib"
    false.write_text(prop.read_text().replace("(<= Y_0 ", "(<= Y_0 99"))
    said = write(network, false, tmp_path, tmp_path / "d.gz", 0.0)
    assert said.startswith("not written") and not (tmp_path / "d.gz").exists()


def test_splits_behind_intermediate_bounds_are_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that is not over at once bounds every neuron by splits of those before it."""
    monkeypatch.setattr(stages, "STAGES", (stages.Stage(0.0, 3, 0.5),))
    monkeypatch.setattr(refinement, "WORTHWHILE", 0.0)
    network = make_network(tmp_path / "n.onnx", 2, (3, 24, 24, 24, 2))
    prop = make_property(tmp_path / "p.vnnlib", network, 3, 0.05, False)
    target = certify(tmp_path, network, prop, "neuron")
    assert run(network, prop, target) == (0, "valid")
    with gzip.open(target, "rt") as file:
        lines = file.read().split("\n")
    claims = lines.index(next(line for line in lines if line.startswith("claims 2")))
    trees = lines.index(next(line for line in lines if line.startswith("tree")))
    assert any(line.startswith("r") for line in lines[claims:trees])


@pytest.mark.parametrize("conjunction", [False, True])
def test_milp_leaves_certificates(tmp_path: Path, conjunction: bool) -> None:
    """Its tree of phases; the multipliers of its leaves are found again by programs of the writer."""
    network = make_network(tmp_path / "n.onnx", 1, (18, 20, 16, 2))
    prop = make_property(tmp_path / "p.vnnlib", network, 18, 1.1, conjunction)
    (tmp_path / "traces").mkdir()
    milp = Milp(MilpOptions(trace=str(tmp_path / "traces"), tighten=0.0))
    nodes = 0
    for problem in Query.from_files([network], prop).problems:
        outcome = milp.run(problem, Context(Budget(60.0)))
        assert outcome.verdict is Verdict.UNSAT
        nodes += int(outcome.stats["nodes"])
    assert nodes > 2
    target = tmp_path / "c.gz"
    assert write(network, prop, tmp_path / "traces", target, 60.0) == str(target)
    assert run(network, prop, target) == (0, "valid")
    with gzip.open(target, "rt") as file:
        assert re.search(r"r\d+\.\d+/", file.read())
