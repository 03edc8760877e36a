"""The import's own check: a wrong import is found wherever it is wrong, and rounding is not mistaken for one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifolio.errors import InputError
from verifolio.onnx_import import table
from verifolio.onnx_import.activations import clip
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.check import HUGE, agree, check_on_box, find_difference, import_graph
from verifolio.onnx_import.lowering import Lowering
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values import Known, Value, known
from verifolio.testing.recipe import Recipe, RecipeStep

node = helper.make_node


def save(
    path: Path, nodes: Sequence[Any], tensors: dict[str, Any], shape: tuple[int, ...] = (1, 4)
) -> Network:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return Network.load(path)


def cut_relu(low: Lowering, call: Call) -> Value:
    """A ReLU that is right only up to `limit`, below which small inputs stay."""
    return clip(low, low.promote(call.value(0)), 0.0, 50.0)


def shifted(low: Lowering, call: Call) -> Value:
    """The identity, moved by 1e-7: a relative error of a tensor whose numbers are small."""
    return low.add_constant(low.promote(call.value(0)), known(1e-7))


def wrong_constant(low: Lowering, call: Call) -> Value:
    value = call.value(0)
    assert isinstance(value, Known)
    return Known(value.value + 1)


def wrongly(monkeypatch: pytest.MonkeyPatch, op: str, handler: Any) -> None:
    monkeypatch.setitem(table.HANDLERS, op, handler)


def complaint(network: Network) -> str:
    with pytest.raises(InputError) as caught:
        import_graph(network)
    return str(caught.value)


def test_an_error_at_large_inputs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrongly(monkeypatch, "Relu", cut_relu)
    network = save(tmp_path / "net.onnx", [node("Relu", ["x"], ["y"], name="bend")], {})
    assert "a difference at Relu (node 'bend')" in complaint(network)


def test_an_error_in_small_numbers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrongly(monkeypatch, "Identity", shifted)
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Identity", ["a"], ["y"], name="same")]
    network = save(tmp_path / "net.onnx", nodes, {"w": np.float32(1e-4)})
    assert "a difference at Identity (node 'same')" in complaint(network)


def test_the_first_wrong_node_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ReLU hides the error from the output; the tensor before it shows it."""
    wrongly(monkeypatch, "Identity", shifted)
    nodes = [
        node("Identity", ["x"], ["a"], name="first"),
        node("Abs", ["a"], ["b"]),
        node("Sub", ["low", "b"], ["c"]),
        node("Relu", ["c"], ["y"]),
    ]
    network = save(tmp_path / "net.onnx", nodes, {"low": np.float32(-1.0)})
    assert "a difference at Identity (node 'first')" in complaint(network)


def test_a_wrong_constant_is_found_however_the_input_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrongly(monkeypatch, "Floor", wrong_constant)
    nodes = [
        node("Floor", ["c"], ["f"], name="down"),
        node("Sub", ["x", "f"], ["s"]),
        node("Clip", ["s", "zero", "tiny"], ["y"]),
    ]
    tensors = {"c": np.float32(100.5), "zero": np.float32(0), "tiny": np.float32(1e-20)}
    network = save(tmp_path / "net.onnx", nodes, {k: np.asarray(v) for k, v in tensors.items()})
    assert "a difference at Floor (node 'down')" in complaint(network)


def test_the_box_of_a_property_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right everywhere but between 7 million and 8 million."""

    def dented(low: Lowering, call: Call) -> Value:
        x = low.promote(call.value(0))
        return low.sum((1.0, 1.0), x, clip(low, low.add_constant(x, known(-7e6)), 0.0, 1e4))

    wrongly(monkeypatch, "Identity", dented)
    network = save(tmp_path / "net.onnx", [node("Identity", ["x"], ["y"])], {})
    import_graph(network)
    with pytest.raises(InputError, match="a difference at Identity"):
        check_on_box(network, np.full(4, 7.1e6), np.full(4, 7.2e6))


CANCELLING: dict[str, list[Any]] = {
    "differences": [
        node("Add", ["x", "big"], ["a"]),
        node("Sub", ["a", "big"], ["b"]),
        node("Relu", ["b"], ["y"]),
    ],
    "normalised": [
        node("Add", ["x", "big"], ["a"]),
        node("ReduceMean", ["a"], ["m"], axes=[1]),
        node("Sub", ["a", "m"], ["c"]),
        node("Mul", ["c", "c"], ["s"]),
        node("ReduceMean", ["s"], ["v"], axes=[1]),
        node("Add", ["v", "one"], ["e"]),
        node("Sqrt", ["e"], ["r"]),
        node("Div", ["c", "r"], ["y"]),
    ],
    "steep": [
        node("Mul", ["x", "big"], ["a"]),
        node("Sigmoid", ["a"], ["s"]),
        node("Mul", ["s", "big"], ["y"]),
    ],
    "softmax": [node("Mul", ["x", "big"], ["a"]), node("Softmax", ["a"], ["s"]), node("Log", ["s"], ["y"])],
}


@pytest.mark.parametrize("name", CANCELLING)
def test_rounding_is_no_difference(name: str, tmp_path: Path) -> None:
    tensors = {"big": np.array(3e4, np.float32), "one": np.array(1e-5, np.float32)}
    import_graph(save(tmp_path / "net.onnx", CANCELLING[name], tensors))


def test_what_agrees_at_once_agrees_with_any_spread() -> None:
    """The comparison that needs no estimate of cancellation against the one that has it, 300 wide."""
    random = np.random.default_rng(5)
    seen = {True: 0, False: 0}
    for trial in range(2000):
        size = (
            10.0 ** random.uniform(-40, 38, (3, 1)) if trial % 2 else 10.0 ** random.uniform(-3, 3, (3, 300))
        )
        ours = size * random.standard_normal((3, 300))
        theirs = ours * (1 + 10.0 ** random.uniform(-9, -3) * random.standard_normal((3, 300)))
        if trial % 5 == 0:
            theirs[random.integers(3), random.integers(300)] = random.choice(
                [np.nan, np.inf, -np.inf, 2 * HUGE]
            )
        spread = 10.0 ** random.uniform(-12, 0) * np.abs(ours) * (trial % 3)
        at_once = agree(ours, theirs)
        seen[at_once] += 1
        assert not at_once or find_difference(ours, spread, theirs) is None
        assert not at_once or bool((np.abs(theirs) < HUGE).all())
    assert min(seen.values()) > 200


def test_a_difference_of_any_entry_does_not_agree() -> None:
    """Just above what the other comparison allows where roundings move nothing."""
    ours = np.array([[1.0, 2.0, 4.0]])
    assert agree(ours, ours * (1 + 2.0**-16))
    for k in range(3):
        theirs = ours.copy()
        theirs[0, k] += 2.0**-15 * (ours[0, k] + 1.0) * 1.001
        assert not agree(ours, theirs)
        assert find_difference(ours, np.zeros_like(ours), theirs) is not None
    assert not agree(ours, np.full_like(ours, np.nan))


def test_a_value_that_rounding_moves_across_a_limit_is_no_difference(tmp_path: Path) -> None:
    """A Clip at 6 of a convolution that is 6.01 here and 5.988 there, where its terms are in the millions.

    The estimate of rounding moved this value away from the limit alone, and the network was refused.
    """
    drawn = (("image", 1365268827, 11), ("window", 922482350, 5), ("Relu", 182351496))
    steps = (*drawn, ("window", 616942048, 5), ("Clip", 1386798636))
    recipe = Recipe(242, 1, tuple(RecipeStep(*step) for step in steps), 1.0, 1613913005)
    assert recipe.write(tmp_path / "clip.onnx").graph.output_size == 1
