"""torch modules as people have them: several outputs, one logit, softmax heads, other precisions and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import verifolio
from verifolio.encode.scores import with_scores
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

HOW: dict[str, Any] = {"executor": "inline", "timeout": 20, "progress": False}
X = np.random.default_rng(0).random((6, 6)).astype(np.float32)
IMAGES = np.random.default_rng(0).random((4, 1, 6, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)


class Wrapped(nn.Module):
    """A linear layer, and what is done to its input and its output."""

    def __init__(self, outputs: int = 3, after: Any = None, before: Any = None) -> None:
        super().__init__()
        self.layer = nn.Linear(6, outputs)
        self.after, self.before = after or (lambda y: y), before or (lambda x: x)

    def forward(self, x: Tensor) -> Any:
        return self.after(self.layer(self.before(x)))


class Answer(dict[str, Any]):
    """As the models of transformers answer."""


def classes(model: nn.Module) -> list[int]:
    return [int(v) for v in model(torch.from_numpy(X)).argmax(1)]


@pytest.mark.parametrize(
    "after",
    [
        lambda y: {"logits": y},
        lambda y: Answer(loss=None, logits=y, hidden=y * 2),
        lambda y: {"scores": y},
        lambda y: (y,),
    ],
)
def test_the_scores_are_found_among_the_outputs(after: Any) -> None:
    model = Wrapped(after=after)
    found = verifolio.robustness(model, X, classes(model.layer), epsilon=1e-4, **HOW)
    assert found.accuracy == 1.0 and found.counts["proved"] == 6


def test_outputs_that_could_all_be_the_scores_are_refused() -> None:
    with pytest.raises(InputError, match=r"tuple of 0, 1; .* such as model\(x\)\[0\]"):
        verifolio.export(Wrapped(after=lambda y: (y, y * 2)), X)


def test_modules_that_know_one_batch_size_only() -> None:
    one = verifolio.export(Wrapped(before=lambda x: x.reshape(1, 6)), X)
    none = verifolio.export(Wrapped(before=lambda x: x.reshape(6)), X)
    assert one.compared == none.compared == 6
    assert max(one.difference or 0.0, none.difference or 0.0) < 1e-5


def test_double_and_half_precision(capsys: pytest.CaptureFixture[str]) -> None:
    """The network reads single precision; what it is compared with is the module as it is."""
    double = verifolio.export(Wrapped().double(), X)
    assert double.difference is not None and 0 < double.difference < 1e-5
    inside = Wrapped(before=lambda x: x.double(), after=lambda y: y.float())
    inside.layer.double()
    assert verifolio.export(inside, X).compared == 6
    found = verifolio.export(Wrapped().bfloat16(), X)
    assert "computes in torch.bfloat16, the network in single precision" in found.text()


@pytest.mark.parametrize("head", [torch.sigmoid, lambda y: y, lambda y: y.squeeze(-1)])
def test_one_logit_is_two_classes(head: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A logit z, or its sigmoid: class 1 where z > 0, and the verdicts are those of |z| against what moves it."""
    model = Wrapped(1, after=head)
    z = model.layer(torch.from_numpy(X)).detach()
    model.layer.bias.data -= z.median()
    z = (z - z.median()).numpy().ravel()
    reach = 0.05 * float(model.layer.weight.detach().abs().sum())
    found = verifolio.robustness(model, X, (z > 0).astype(int), epsilon=0.05, range=(-1, 2), **HOW)
    assert found.accuracy is not None and found.accuracy >= 5 / 6  # one lies on the border
    right = [i for i in range(6) if found[i].status != "misclassified"]
    sure = {i: "proved" for i in right if abs(z[i]) > 1.01 * reach}
    sure |= {i: "refuted" for i in right if abs(z[i]) < 0.99 * reach}
    assert {i: found[i].status for i in sure} == sure and set(sure.values()) == {"proved", "refuted"}
    assert "-z for class 0 and z for class 1" in capsys.readouterr().err


def test_one_probability_without_a_sigmoid_is_refused() -> None:
    model = Wrapped(1, after=lambda y: torch.clamp(y * 0.01 + 0.5, 0, 1))
    with pytest.raises(InputError, match="look like probabilities"):
        verifolio.robustness(model, X, [0, 1, 0, 1, 0, 1], epsilon=0.01, **HOW)


def operators(network: Network) -> set[str]:
    import onnx

    return {n.op_type for n in onnx.load_model_from_string(network.model()).graph.node}


def test_a_softmax_is_cut_away_where_only_the_order_counts() -> None:
    """The property about a range of outputs sees the probabilities themselves."""
    model = Wrapped(after=lambda y: torch.softmax(y, 1))
    found = verifolio.robustness(model, X, classes(model), epsilon=1e-3, **HOW)
    assert found.accuracy == 1.0 and "Softmax" not in operators(found.network)
    bounded = verifolio.robustness(
        model,
        X[:2],
        epsilon=1e-3,
        property="output-range",
        property_options={"lower": 0.0, "upper": 1.0},
        **HOW,
    )
    assert "Softmax" in operators(bounded.network) and bounded.counts["refuted"] == 0


def test_a_softmax_over_another_axis_stays() -> None:
    from onnx import TensorProto, helper

    def model(axis: int) -> bytes:
        node = helper.make_node("Softmax", ["x"], ["y"], axis=axis)
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
        graph = helper.make_graph([node], "g", ends[:1], ends[1:])
        return bytes(helper.make_model(graph).SerializeToString())

    assert with_scores(model(0))[1] == ""
    assert with_scores(model(1))[1] == "softmax"


class Two(nn.Module):
    """Reads two inputs."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class Tokens(nn.Module):
    """Reads whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.table(x).mean(1)
        return found


CONV = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 2))
RGB = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 2))


@pytest.mark.parametrize(
    ("model", "x", "remedy"),
    [
        (CONV, IMAGES[:, 0], r"shape=\(1, 6, 6\)"),
        (RGB, np.zeros((2, 6, 6, 3), np.float32), "layout='hwc'"),
        (CONV, IMAGES[:, None], r"give x\[0\]"),
        (Two(), X, "several inputs"),
        (Tokens(), X, "behind its embedding"),
        (Wrapped, X, r"the class Wrapped; give a model: Wrapped\(\.\.\.\)"),
        (Wrapped().state_dict(), X, "load them into a model"),
    ],
)
def test_what_does_not_fit_is_told_with_the_remedy(model: object, x: Any, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        verifolio.export(model, x)


def test_what_torch_says_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="Python boolean"):
        verifolio.export(Wrapped(after=lambda y: y if y.sum() > 0 else -y), X)
    assert capfd.readouterr() == ("", "")


def test_wrappers_are_taken_off() -> None:
    assert verifolio.export(nn.DataParallel(Wrapped()), X).network.path.stem == "wrapped"
