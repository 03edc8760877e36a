"""The cases that the ONNX standard ships for each operator: imported and equal, or refused with a reason.

Each float input is the variable in turn while the others are constants, and once all of them are constants.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.graph.module import GraphModule
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.table import HANDLERS

RUNTIME_OPSET, RUNTIME_IR = 26, 11  # the newest that ONNX Runtime loads; the cases may be newer
FOLDED_ONLY = {"QLinearConv"}  # scales are inputs in its case, which must be constants
OWN_CASES = {"ScatterND"}  # places that vary are not among the standard's cases: test_choice.py
SLOW = {"averagepool", "maxpool", "lppool"}  # modules whose own expected outputs take many seconds
MESSAGES = ("supported operators, got ", "expected ")


@lru_cache(maxsize=2)
def standard_cases(slow: bool) -> tuple[Any, ...]:
    """The cases with one node of a listed operator; those of pools are slow to make."""
    from onnx.backend.test.case import node as package

    wanted = {op.lower() for op in HANDLERS}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in SLOW and not slow:
            continue
        if any(module.name.replace("_", "").startswith(op[:4]) for op in wanted):
            importlib.import_module(f"{package.__name__}.{module.name}")  # adds its cases to the list
    found = [c for c in package._NodeTestCases if len(c.model.graph.node) == 1]
    return tuple(
        c for c in found if c.model.graph.node[0].op_type in HANDLERS and not c.model.graph.node[0].domain
    )


def as_tensor(value: Any, name: str) -> Any:
    tensor = onnx.TensorProto()
    tensor.CopyFrom(value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(value, name))
    tensor.name = name
    return tensor


def as_array(value: Any) -> np.ndarray:
    return np.asarray(numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)


def forms(case: Any) -> Iterator[int | None]:
    """Which input is the variable: each float input, then none."""
    for i, (info, value) in enumerate(zip(case.model.graph.input, case.data_sets[0][0], strict=False)):
        if (
            info.type.tensor_type.elem_type == TensorProto.FLOAT
            and value is not None
            and as_array(value).size
        ):
            yield i
    yield None


def build(case: Any, variable: int | None, path: Path) -> tuple[Network, np.ndarray]:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph, inputs = model.graph, list(case.model.graph.input)
    del graph.input[:]
    point = np.zeros(1)
    for i, (info, value) in enumerate(zip(inputs, case.data_sets[0][0], strict=False)):
        if i == variable:
            point = as_array(value)
            graph.input.append(helper.make_tensor_value_info(info.name, TensorProto.FLOAT, point.shape))
        else:
            graph.initializer.append(as_tensor(value, info.name))
    if variable is None:
        graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, [1]))
    for entry in model.opset_import:
        entry.version = min(entry.version, RUNTIME_OPSET)
    model.ir_version = min(model.ir_version, RUNTIME_IR)
    onnx.save(model, path)
    return Network.load(path), point.astype(np.float64).ravel()


def differs(ours: np.ndarray, other: np.ndarray, case: Any) -> bool:
    if ours.size != other.size:
        return True
    size = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    return not np.allclose(ours, other, max(case.rtol, 1e-5), case.atol + 1e-6 * size, equal_nan=True)


def judge(case: Any, variable: int | None, path: Path) -> tuple[str, str]:
    """("passed" | "refused" | "failed", the reason)."""
    if not all(isinstance(v, np.ndarray | np.generic | onnx.TensorProto) for v in case.data_sets[0][0]):
        return "refused", "inputs that are sequences or missing"
    expected = [as_array(v) for v in case.data_sets[0][1]]
    try:
        network, x = build(case, variable, path)
        graph = network.graph
    except InputError as error:
        text = str(error)
        blunder = "agreement with" in text or "equal output sizes" in text
        return "failed" if blunder else "refused", reason(text)
    with torch.no_grad():
        ours = GraphModule(graph, torch.float64)(torch.from_numpy(x)[None]).numpy()[0]
    wanted = np.concatenate([e.astype(np.float64).ravel() for e in expected])
    if differs(ours, wanted, case) or differs(ours, network.replay(x).astype(np.float64), case):
        return "failed", "other numbers"
    shapes = [t.shape for t in network.outputs] == [e.shape for e in expected]
    return ("passed", "") if shapes else ("failed", "other shapes")


def reason(text: str) -> str:
    if "ONNX Runtime" in text:
        return "ONNX Runtime does not run it"
    for start in MESSAGES:
        if start in text:
            text = text.split(start, 1)[1]
    return text.split(";")[0].split("): ", 1)[-1]


def sweep(cases: tuple[Any, ...], folder: Path) -> tuple[dict[str, Counter[str]], Counter[str], list[str]]:
    """Per operator how its cases ended, the reasons of refusals, and what failed.

    A case passes if some form does and none fails; where it has a float input, a form with a variable must.
    """
    table: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases:
        op = case.model.graph.node[0].op_type
        ends = {v: judge(case, v, folder / "net.onnx") for v in forms(case)}
        wrong += [f"{case.name}, input {v}: {why}" for v, (end, why) in ends.items() if end == "failed"]
        counting = [e for v, e in ends.items() if v is not None] or list(ends.values())
        passed = any(end == "passed" for end, _ in counting)
        folded = ends[None][0] == "passed"
        failed = any(end == "failed" for end, _ in ends.values())
        table[op]["failed" if failed else "passed" if passed else "folded only" if folded else "refused"] += 1
        if not passed:
            reasons[f"{op}: {counting[0][1]}"] += 1
    return table, reasons, wrong


def report(table: dict[str, Counter[str]], reasons: Counter[str]) -> str:
    kinds = ("passed", "folded only", "refused", "failed")
    lines = [f"{'operator':24}" + "".join(f"{k:>13}" for k in kinds)]
    rows = [*sorted(table.items()), ("all", sum(table.values(), Counter()))]
    lines += [f"{op:24}" + "".join(f"{count[k]:13}" for k in kinds) for op, count in rows]
    return "\n".join([*lines, "", *(f"{n:4} {why}" for why, n in reasons.most_common())])


def test_the_cases_of_the_standard(tmp_path: Path) -> None:
    """All but the pools."""
    table, reasons, wrong = sweep(standard_cases(slow=False), tmp_path)
    print(report(table, reasons))
    assert wrong == []
    assert all(why.split(": ", 1)[1] for why in reasons)
    assert sum(c["passed"] for c in table.values()) >= 500
    pools = {"AveragePool", "MaxPool"}
    assert {op for op in HANDLERS if not table[op]["passed"]} == FOLDED_ONLY | OWN_CASES | pools
    assert all(table[op]["folded only"] for op in FOLDED_ONLY)


@pytest.mark.slow  # the standard computes the expected outputs of pools in Python
def test_the_cases_of_pools(tmp_path: Path) -> None:
    cases = tuple(c for c in standard_cases(slow=True) if c.model.graph.node[0].op_type.endswith("Pool"))
    table, reasons, wrong = sweep(cases, tmp_path)
    print(report(table, reasons))
    assert wrong == []
    assert all(table[op]["passed"] for op in ("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"))
