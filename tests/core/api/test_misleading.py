"""Data that does not mean what the model means is refused, because every answer about it would mislead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import verifolio
from verifolio.data import parse_indices
from verifolio.errors import InputError

X = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.2], [0.2, 0.9]])


def linear(outputs: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(2, outputs)


def test_columns_in_another_order_than_at_fit_are_refused() -> None:
    from sklearn.linear_model import LogisticRegression

    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = LogisticRegression().fit(frame, [0, 1, 1, 0])
    turned = frame[["b", "a"]]
    with pytest.raises(InputError, match="in their order: a, b"):
        verifolio.robustness(model, turned, [0, 1, 1, 0], epsilon=0.01, executor="inline")
    found = verifolio.robustness(model, frame, [0, 1, 1, 0], epsilon=0.01, executor="inline")
    assert found.accuracy is not None


def test_names_of_some_of_the_classes_are_refused() -> None:
    with pytest.raises(InputError, match="all 3 classes"):
        verifolio.robustness(linear(3), X, ["bird", "cat", "cat", "bird"], epsilon=0.01, executor="inline")


def test_labels_that_are_numbers_in_quotes_are_numbers() -> None:
    texts = verifolio.robustness(linear(3), X, ["2", "2", "0", "1"], epsilon=0.01, executor="inline")
    numbers = verifolio.robustness(linear(3), X, [2, 2, 0, 1], epsilon=0.01, executor="inline")
    assert repr(texts) == repr(numbers)


def test_one_output_has_no_class_that_could_lose() -> None:
    """In a file; of a module in Python it is known what one logit means."""
    file = verifolio.export(linear(1), X).network.path
    with pytest.raises(InputError, match="at least 2 outputs"):
        verifolio.robustness(file, X, [0, 0, 0, 0], epsilon=0.01, executor="inline")


@pytest.mark.parametrize("norm", ["inf", 2, None])
def test_a_norm_that_is_none_is_refused(norm: Any) -> None:
    with pytest.raises(InputError, match="one of l1, l2, linf"):
        verifolio.robustness(linear(3), X, [0, 1, 2, 0], epsilon=0.01, norm=norm, executor="inline")
    with pytest.raises(InputError, match="one of l1, l2, linf"):
        verifolio.distribution(linear(3), X, [0, 1, 2, 0], norm=norm, range=(0, 1), executor="inline")


@pytest.mark.parametrize(
    "indices", [[1, 3], (1, 3), "1,3", slice(1, None, 2), np.array([False, True, False, True])]
)
def test_inputs_are_chosen_in_any_way(indices: Any) -> None:
    found = verifolio.robustness(
        linear(3), X, epsilon=0.0, indices=indices, executor="inline", progress=False
    )
    assert [v.index for v in found] == [1, 3]


@pytest.mark.parametrize("indices", [[-1], [4], [], [0.5], "4", [True, False], [[0, 1]]])
def test_inputs_that_are_not_there_are_refused(indices: Any) -> None:
    with pytest.raises(InputError, match="indices"):
        verifolio.robustness(linear(3), X, epsilon=0.0, indices=indices, executor="inline", progress=False)


def test_one_input_has_no_indices() -> None:
    how: Any = {"indices": [0]}
    with pytest.raises(InputError, match="indices"):
        verifolio.verify(linear(3), X[0], 0, epsilon=0.01, executor="inline", **how)
    with pytest.raises(InputError, match="about many"):
        verifolio.critical(linear(3), X[0], 0, range=(0, 1), executor="inline", **how)


def test_a_radius_in_other_units_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    images = X.reshape(4, 1, 1, 2)
    model = torch.nn.Sequential(torch.nn.Flatten(), linear(3))
    verifolio.robustness(model, images, epsilon=8, executor="inline", progress=False)
    assert "a radius of 8 covers all legal values" in capsys.readouterr().err
    verifolio.robustness(model, images, epsilon=8 / 255, executor="inline", progress=False)
    assert "covers" not in capsys.readouterr().err


def test_bytes_that_a_model_scales_itself_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes are read as 0 to 1; a model that divides by 255 itself then sees almost nothing."""
    images = np.array([[[[10, 200]]], [[[220, 30]]], [[[90, 240]]]], np.uint8)
    layer = torch.nn.Linear(2, 2)
    layer.weight.data, layer.bias.data = torch.eye(2), torch.tensor([0.1, 0.0])

    class Scaling(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = layer(x.flatten(1) / 255)
            return found

    ask: dict[str, Any] = {"epsilon": 0.01, "executor": "inline", "progress": False}
    found = verifolio.robustness(Scaling(), images, [1, 0, 1], **ask)
    assert found.accuracy is not None and found.accuracy < 0.5
    assert "for a network that reads 0 to 255, scale is 1/255" in capsys.readouterr().err
    assert verifolio.robustness(Scaling(), images, [1, 0, 1], scale=1 / 255, **ask).accuracy == 1.0


def test_a_result_leaves_without_a_word() -> None:
    import gc
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = verifolio.robustness(linear(3), X, epsilon=0.0, executor="inline", progress=False)
        assert found.store is not None
        folder = found.store.parent
        assert folder.is_dir()
        del found
        gc.collect()
    assert not folder.exists()


def test_no_inputs_are_no_question() -> None:
    with pytest.raises(InputError, match="at least one input"):
        parse_indices("3:1", 10)


def test_a_radius_may_be_any_number_and_nothing_else() -> None:
    def ask(epsilon: Any) -> str:
        return repr(verifolio.robustness(linear(3), X, [0, 1, 2, 0], epsilon=epsilon, executor="inline"))

    plain = ask(0.125)
    for same in ("1/8", "0.125", np.float32(0.125), np.array(0.125), torch.tensor(0.125)):
        assert ask(same) == plain
    for wrong in (None, True, "many", -0.1, float("nan"), float("inf"), [0.1, None]):
        with pytest.raises(InputError, match="epsilon"):
            ask(wrong)


@pytest.mark.parametrize(
    "options",
    [{"jobs": 0}, {"timeout": -1}, {"memory": "2"}, {"range": 1}, {"range": (1, 0)}, {"range": (0, None)}],
)
def test_numbers_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        verifolio.robustness(linear(3), X, [0, 1, 2, 0], epsilon=0.01, executor="inline", **options)


def test_soft_labels_have_no_class() -> None:
    """They were taken for one-hot labels, whose first largest entry is the class."""
    with pytest.raises(InputError, match="labels"):
        verifolio.robustness(linear(2), X, np.full((4, 2), 0.5), epsilon=0.01, executor="inline")
    hard = verifolio.robustness(linear(2), X, np.eye(2)[[0, 1, 1, 0]], epsilon=0.01, executor="inline")
    assert [v.label for v in hard] == ["0", "1", "1", "0"]


def test_a_module_that_gives_the_class_is_no_network_of_scores() -> None:
    """Its class number was taken for the logit of class 1."""

    class Predicts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.argmax(1, keepdim=True)

    with pytest.raises(InputError, match="before argmax"):
        verifolio.robustness(Predicts(), X, [0, 1, 1, 0], epsilon=0.01, executor="inline")


def test_several_models_have_names() -> None:
    models: Any = [linear(2), linear(2)]
    with pytest.raises(InputError, match="models by name, got list"):
        verifolio.compare(models, X, [0, 1, 1, 0], epsilon=0.01, executor="inline")


def test_only_colours_can_be_in_another_order() -> None:
    """The features of a table were reversed without a word, and torch could not read a reversed picture."""
    with pytest.raises(InputError, match="pictures of 3 channels"):
        verifolio.robustness(linear(2), X, epsilon=0.01, channels="bgr", executor="inline")
    pictures = np.random.default_rng(0).random((2, 3, 2, 2), np.float32)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    exported = verifolio.export(model, pictures, channels="bgr")
    wanted = model(torch.from_numpy(pictures[:, ::-1].copy())).detach().numpy()
    assert np.allclose([exported.network.replay(x.ravel()) for x in pictures], wanted, atol=1e-5)


def test_a_regressor_has_no_classes() -> None:
    """Its number was taken for a logit, and that it stayed above 0 was called proved."""
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(X, [100.0, 200.0, 150.0, 120.0])
    with pytest.raises(InputError, match="a classifier, got a regressor"):
        verifolio.robustness(model, X, epsilon=0.01, executor="inline")
    held: Any = {"property": "output-range", "property_options": {"lower": 0, "upper": 300}}
    assert verifolio.robustness(model, X, epsilon=0.01, executor="inline", **held).counts["proved"] == 4


def test_a_row_of_a_table_stays_a_row_whatever_axes_it_has() -> None:
    """With the axis of rows it was taken for a picture, whose values lie between 0 and 1."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
        model.bias.zero_()
    row = np.array([0.9, 0.7])
    for given in (row, row[None], pandas.DataFrame(row[None], columns=["a", "b"]), list(row)):
        found = verifolio.verify(model, given, 0, epsilon=0.5, executor="inline")
        assert found.counterexample is not None and found.counterexample.input.max() > 1
    with pytest.raises(InputError, match="expected one, got 4"):
        verifolio.verify(model, pandas.DataFrame(X), 0, epsilon=0.5, executor="inline")


def test_the_label_of_one_picture_counts(tmp_path: Path) -> None:
    """It was not read, so that a picture of another class was proved."""
    from PIL import Image

    Image.fromarray(np.array([[255, 0]], np.uint8)).save(tmp_path / "one.png")
    layer = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(torch.nn.Flatten(), layer)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
        layer.bias.zero_()
    asked: Any = {"epsilon": 0.1, "executor": "inline"}
    assert verifolio.verify(model, tmp_path / "one.png", 0, **asked).status == "proved"
    assert verifolio.verify(model, tmp_path / "one.png", 1, **asked).status == "misclassified"


def test_labels_below_zero_are_names_that_the_model_must_know() -> None:
    from sklearn.svm import LinearSVC

    signs = [-1, 1, 1, -1]
    found = verifolio.robustness(LinearSVC().fit(X, signs), X, signs, epsilon=0.01, executor="inline")
    assert found.accuracy == 1 and [v.label for v in found] == ["-1", "1", "1", "-1"]
    with pytest.raises(InputError, match="class numbers from 0"):
        verifolio.robustness(linear(2), X, signs, epsilon=0.01, executor="inline")


def test_what_is_no_data_is_told_by_what_it_is() -> None:
    """Filtered to nothing or given in another order, it was told to write x[None]."""
    asked: Any = {"epsilon": 0.01, "executor": "inline"}
    with pytest.raises(InputError, match=r"at least one input, got none \(shape 0x2\)"):
        verifolio.robustness(linear(2), X[:0], [], **asked)
    turned: Any = linear(2)
    with pytest.raises(InputError, match=r"got torch.nn.modules.linear.Linear; the order is model, inputs"):
        verifolio.robustness(X, turned, [0, 1, 1, 0], **asked)
    with pytest.raises(InputError, match=r"one input x is x\[None\]"):
        verifolio.robustness(linear(2), X[0], [0], **asked)


def test_columns_that_are_missing_are_named() -> None:
    """It was told to leave columns out."""
    from sklearn.linear_model import LogisticRegression

    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = LogisticRegression().fit(frame, [0, 1, 1, 0])
    with pytest.raises(InputError, match="2 features, got 1; it was fitted on a, b"):
        verifolio.robustness(model, frame[["a"]], [0, 1, 1, 0], epsilon=0.01, executor="inline")


def test_weights_in_a_file_are_no_network(tmp_path: Path) -> None:
    """It was told about the wire format of protobuf."""
    torch.save(linear(2).state_dict(), tmp_path / "net.pt")
    with pytest.raises(InputError, match=r"a file of torch.save; load it in Python and give the module"):
        verifolio.robustness(tmp_path / "net.pt", X, [0, 1, 1, 0], epsilon=0.01, executor="inline")


def test_a_file_of_data_that_is_missing() -> None:
    """It was told all kinds of data there are, and asked whether csv was meant."""
    for spec in ("irs.csv", "irs.csv:kind", "no.npz"):
        with pytest.raises(InputError, match="no such file; check the path"):
            verifolio.robustness(linear(2), spec, epsilon=0.01, executor="inline")
