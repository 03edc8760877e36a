"""Models of torch, scikit-learn and Keras become networks that compute the same; others are refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC
from torch import Tensor, nn

import verifolio
from verifolio.cli.main import run
from verifolio.errors import InputError, UnsupportedNetwork
from verifolio.plugins.models.torch_model import TorchModel, captured, traced

WINE = load_wine()
X, Y = WINE.data, WINE.target
NAMES = WINE.target_names[Y]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_CACHE", str(tmp_path / "cache"))


class Own(nn.Module):
    """A module with a forward of its own, a dropout and a batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        found: Tensor = self.last(self.drop(y.flatten(1)))
        return found


class Branching(nn.Module):
    """A module whose computation depends on its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else -x


def test_a_torch_module_is_exported_in_evaluation_mode_and_not_changed() -> None:
    torch.manual_seed(0)
    model = Own()
    images = torch.rand(30, 1, 8, 8)
    model.train()
    found = verifolio.export(model, images, torch.zeros(30, dtype=torch.int64), mean=0.3, std=0.4)
    assert model.training
    assert found.difference is not None and found.difference < 1e-5
    assert found.accuracy is not None and "accuracy" in repr(found)
    assert found.network.path.name == "own.onnx"
    again = verifolio.export(model, images, mean=0.3, std=0.4)
    assert again.network == found.network, "the same model is the same file"


def test_layers_that_are_known_need_no_exporter_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx, "export", None)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert verifolio.export(model, np.random.rand(5, 1, 2, 2)).difference is not None


def test_a_module_that_decides_by_values_is_not_traced(tmp_path: Path) -> None:
    assert "Python boolean" in str(traced(Branching(), (4,), tmp_path / "net.onnx"))
    assert traced(Own().eval(), (1, 8, 8), tmp_path / "net.onnx") is None


@pytest.mark.slow  # torch's default exporter takes seconds to import
def test_a_module_that_decides_by_values_is_refused() -> None:
    with pytest.raises(InputError, match=r"torch\.onnx\.export can export"):
        TorchModel().export(Branching(), (4,))


@pytest.mark.slow  # torch's default exporter takes seconds to import
def test_the_default_export_of_torch_is_read(tmp_path: Path) -> None:
    model = Own().eval()
    captured(model, (1, 8, 8), tmp_path / "net.onnx", "own", "no doubt")
    program = torch.onnx.export(model, (torch.zeros(1, 1, 8, 8),), dynamo=True, verbose=False)
    assert program is not None
    program.save(str(tmp_path / "outside.onnx"), external_data=True)
    assert (tmp_path / "outside.onnx.data").is_file()
    x = torch.rand(1, 1, 8, 8)
    with torch.no_grad():
        wanted = model(x)[0].numpy()
    for file in ("net.onnx", "outside.onnx"):
        network = verifolio.Network.load(tmp_path / file)
        assert np.allclose(network.replay(x.numpy()), wanted, atol=1e-5)
        assert network.graph.output_size == 10


def test_inputs_of_the_wrong_shape_are_told() -> None:
    with pytest.raises(InputError, match="reads inputs of shape 8x8"):
        verifolio.export(
            nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(9, 2)), np.zeros((2, 8, 8))
        )


ESTIMATORS: dict[str, Any] = {
    "network": lambda: make_pipeline(StandardScaler(), MLPClassifier((12,), max_iter=40, random_state=0)),
    "logistic": lambda: make_pipeline(MinMaxScaler(), LogisticRegression(max_iter=50)),
    "svm": lambda: make_pipeline(StandardScaler(), LinearSVC(max_iter=200)),
    "sgd": lambda: make_pipeline(StandardScaler(), SGDClassifier(max_iter=20)),
    "ridge": lambda: make_pipeline(StandardScaler(), RidgeClassifier()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", ["numbers", "names", "two"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_are_exported_as_scores(name: str, classes: str) -> None:
    labels = {"numbers": Y + 1, "names": NAMES, "two": NAMES == "class_1"}[classes]
    model = ESTIMATORS[name]().fit(X, labels)
    found = verifolio.export(model, X, labels)
    assert found.agreement == 1.0
    assert found.accuracy == pytest.approx(model.score(X, labels), abs=1e-9)
    assert found.network.output_size == (2 if classes == "two" else 3)
    assert {n.op.__class__.__name__ for n in found.network.graph.nodes}.isdisjoint({"Smooth", "Step"})
    asked = verifolio.robustness(model, X[:9], labels[:9], epsilon=0.0, executor="inline", progress=False)
    assert asked.accuracy == pytest.approx(model.score(X[:9], labels[:9]))


@pytest.mark.filterwarnings("ignore")
def test_regressors_are_exported() -> None:
    for model in (LinearRegression(), MLPRegressor(hidden_layer_sizes=(5,), max_iter=20, random_state=0)):
        found = verifolio.export(make_pipeline(StandardScaler(), model).fit(X, Y * 2.5), X)
        assert found.difference is not None and found.network.output_size == 1


def test_what_is_no_network_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedNetwork, match=r"RandomForestClassifier.*tree ensemble"):
        verifolio.export(RandomForestClassifier(2).fit(X, Y), X)
    searched = GridSearchCV(RandomForestClassifier(2), {"max_depth": [1]}, cv=2)
    with pytest.raises(UnsupportedNetwork, match=r"RandomForestClassifier.*tree ensemble"):
        verifolio.export(make_pipeline(StandardScaler(), searched).fit(X, Y), X)
    with pytest.raises(InputError, match="fitted"):
        verifolio.export(LogisticRegression(), X)
    with pytest.raises(InputError, match="features, got 12"):
        verifolio.export(make_pipeline(StandardScaler(), LinearSVC()).fit(X, Y), X[:, :12])
    with pytest.raises(InputError, match="KNeighborsClassifier"):
        verifolio.export(KNeighborsClassifier().fit(X, Y), X)
    with pytest.raises(InputError, match="torch, sklearn"):
        verifolio.export(object(), X)


def test_an_export_that_computes_something_else_is_refused() -> None:
    class Counting(nn.Module):
        calls = 0.0

        def forward(self, x: Tensor) -> Tensor:
            Counting.calls += 1
            return x.flatten(1) * Counting.calls

    with pytest.raises(InputError, match="a difference of"):
        verifolio.export(Counting(), np.random.rand(9, 4))


@pytest.mark.slow  # Keras takes seconds to import
def test_keras_models_are_exported(tmp_path: Path) -> None:
    code = """
import json, keras, numpy as np, verifolio
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
found = verifolio.export(model, np.random.rand(40, 6))
model.save("net.keras")
again = verifolio.export("net.keras", np.random.rand(40, 6))
ends = {"logit": None, "probability": "sigmoid"}
one = {n: keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, end)]) for n, end in ends.items()}
X = np.random.rand(9, 6) - 0.5
labels = {n: (m.predict(X, verbose=0)[:, 0] > (0.5 if ends[n] else 0)).astype(int) for n, m in one.items()}
asked = dict(epsilon=1e-6, range=(-9, 9), executor="inline", progress=False)
right = [verifolio.robustness(m, X, labels[n], **asked).accuracy for n, m in one.items()]
number = verifolio.export(one["logit"], X)
print(json.dumps([found.agreement, again.agreement, found.network.output_size, *right, number.network.output_size]))
"""
    environment = {**os.environ, "KERAS_BACKEND": "torch", "VERIFOLIO_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [1.0, 1.0, 3, 1.0, 1.0, 1]
    assert "torchvision" not in done.stderr


def test_the_command_exports_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    (tmp_path / "mine.py").write_text(code)
    target = tmp_path / "net.onnx"
    assert (
        run(["export", f"{tmp_path}/mine.py:make", "--data", "digits", "--mean", "0.3", "-o", str(target)])
        == 0
    )
    said = capsys.readouterr().out
    assert "64 inputs, 10 outputs" in said and "accuracy on these inputs:" in said
    assert "largest difference from the original on 20 inputs" in said
    assert verifolio.Network.load(target).graph.output_size == 10
    assert run(["export", f"{tmp_path}/mine.py:absent", "--data", "digits", "-o", str(target)]) == 2
    assert "no such name" in capsys.readouterr().err


def test_what_is_refused_is_not_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of weights was copied to the output, and its error named that copy."""
    torch.save({"w": torch.ones(2)}, tmp_path / "net.pt")
    assert run(["export", str(tmp_path / "net.pt"), "-o", str(tmp_path / "out.onnx")]) == 2
    assert "net.pt: expected an ONNX model" in capsys.readouterr().err
    broken = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])
    kind = onnx.TensorProto.FLOAT
    ends = [onnx.helper.make_tensor_value_info(name, kind, [1, 2]) for name in "xy"]
    graph = onnx.helper.make_graph([broken], "broken", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "broken.onnx"))
    assert run(["export", str(tmp_path / "broken.onnx"), "-o", str(tmp_path / "out.onnx")]) == 2
    assert not (tmp_path / "out.onnx").exists()
    (tmp_path / "out.onnx").write_bytes(b"an earlier export")
    assert run(["export", str(tmp_path / "broken.onnx"), "-o", str(tmp_path / "out.onnx")]) == 2
    assert (tmp_path / "out.onnx").read_bytes() == b"an earlier export"


def test_register_exporters() -> None:
    from verifolio.plugin.exporter import Export, Exporter
    from verifolio.plugin.manager import current_plugins

    class Twice(Exporter):
        name = "twice"

        @classmethod
        def accepts(cls, model: object) -> bool:
            return model == "twice"

        def export(self, model: Any, shape: tuple[int, ...]) -> Export:
            return TorchModel().export(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), shape)

    class Plugin:
        @verifolio.hookimpl
        def register_exporters(self, registry: Any) -> None:
            registry.add(Twice)

    with current_plugins().plus(Plugin()).in_use() as plugins:
        assert "twice" in plugins.exporters
