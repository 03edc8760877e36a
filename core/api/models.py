"""Models of any kind as networks: exported, with the preprocessing in front, and compared with the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.api.data import as_dataset, label_text, recoded
from verifolio.api.scores import as_scores
from verifolio.data import check_shape
from verifolio.encode.preprocessing import Channels, Preprocessing, fold, preprocessing_of
from verifolio.errors import InputError, VerifolioError
from verifolio.files.cache import keep_network
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.reader import parse_model
from verifolio.plugin.data_source import NO_LABEL, Dataset
from verifolio.plugin.exporter import Array, Export, Exporter
from verifolio.plugin.manager import current_plugins

COMPARED = 1000  # inputs on which the network is compared with the original; each is one run of ONNX Runtime
CLOSE = 1e-3  # relative difference of outputs: far above rounding in float32, far below another computation
PURE = 0.02  # share of inputs whose class may differ: those that are tied up to rounding


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A network made from a model, and how it compares with it on the data that was given.

    `difference` is the largest of the outputs, `agreement` the share of inputs with the same class, `accuracy` the
    share with the right one; None where there was nothing to compare. Features with `categories` are positions in
    these lists; `note` says what else is worth knowing.
    """

    network: Network
    classes: tuple[Any, ...] = ()
    features: tuple[str, ...] = ()
    categories: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    note: str = ""
    compared: int = 0
    difference: float | None = None
    agreement: float | None = None
    accuracy: float | None = None

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """What it is, and how it compares, in a few lines."""
        sizes = f"{self.network.input_size} inputs, {self.network.output_size} outputs"
        lines = [f"{self.network.path}: {sizes}", *([self.note] if self.note else [])]
        if self.difference is not None and self.compared:
            lines.append(
                f"largest difference from the original on {self.compared} inputs: {self.difference:.2g}"
            )
        if self.agreement is not None:
            lines.append(f"the same class as the original on {self.agreement:.1%} of {self.compared} inputs")
        if self.accuracy is not None:
            lines.append(f"accuracy on these inputs: {self.accuracy:.1%}")
        return "\n".join(lines)


def load_model(model: object, shape: tuple[int, ...] | None = None) -> Export:
    """The model as ONNX; a path or bytes are ONNX already."""
    if isinstance(model, ExportedModel):
        network = model.network
        return Export(network.model(), network.path.stem, classes=model.classes, features=model.features)
    if isinstance(model, Network):
        return Export(model.model(), model.path.stem)
    if isinstance(model, bytes | bytearray):
        return Export(bytes(model), "network")
    if isinstance(model, str | Path):
        path = Path(model)
        reader = _reader(path)
        if reader is None:
            network = Network.load(path)
            if not path.name.endswith((".onnx", ".onnx.gz")):
                parse_model(network)  # what is no model is refused by its own name
            return Export(network.model(), path.name.removesuffix(".gz").removesuffix(".onnx"))
        model = reader.read(path)
    if shape is None:
        raise InputError(
            *("model", "data that shows the shape of its inputs", "none"),
            "give --data or --shape 1,28,28 (X or shape=(1, 28, 28) in Python)",
        )
    return find_exporter(model).export(model, shape)


def _reader(path: Path) -> Exporter | None:
    for cls in current_plugins().exporters:
        if cls.suffixes and path.name.endswith(cls.suffixes):
            return current_plugins().exporters.get(cls.name)()
    return None


def find_exporter(model: object) -> Exporter:
    """Who knows models of this kind."""
    registry = current_plugins().exporters
    for cls in registry:
        if cls.accepts(model):
            return registry.get(cls.name)()
    kinds = ", ".join(cls.name for cls in registry)
    got = f"{type(model).__module__}.{type(model).__qualname__}"
    remedy = "export it to ONNX yourself"
    if isinstance(model, type):
        got, remedy = (
            f"the class {model.__qualname__}",
            f"give a model: {model.__name__}(...) with its weights",
        )
    elif isinstance(model, Mapping):
        got, remedy = f"{got}, perhaps weights alone", "load them into a model and give the model"
    raise InputError("model", f"an ONNX file, its bytes, or a model of {kinds}", got, remedy)


def export(
    model: object,
    X: object = None,
    y: object = None,
    *,
    output: str | Path | None = None,
    name: str = "",
    shape: tuple[int, ...] | None = None,
    scale: float = 1.0,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    channels: Channels = "rgb",
    layout: str = "",
) -> ExportedModel:
    """Write a model as an ONNX network that reads the data as it is, and compare it with the model on that data.

    `scale`, `mean`, `std` and `channels` are what your program does before it calls the model: (x / scale - mean) /
    std, per channel or feature. They become a part of the network. Without `output` the file lies in the cache.
    """
    data = None if X is None else as_dataset(X, y, shape=shape, layout=layout)
    prepared = preprocessing_of(scale, mean, std, channels)
    return exported(model, data, prepared, output=output, name=name, shape=shape)


def exported(
    model: object,
    data: Dataset | None,
    preprocessing: Preprocessing,
    output: str | Path | None = None,
    name: str = "",
    shape: tuple[int, ...] | None = None,
    by_order: bool = False,
) -> ExportedModel:
    """The network of a model with preprocessing in front, compared with the original where there is data.

    Where nothing but the order of the outputs counts (`by_order`), a model of a library ends in its scores.
    """
    wanted = shape or (None if data is None else data.shape)
    found = load_model(model, wanted)
    if by_order and found.quantities:
        remedy = (
            "ask about the number itself: property='output-range', property_options={'lower': 0, 'upper': 1}"
        )
        raise InputError(f"model {found.name}", "a classifier", "a regressor, which has no classes", remedy)
    if by_order and (found.outputs or found.predict) and not found.classes:
        found = as_scores(found)
    content = fold(found.model, preprocessing)
    if output is None:
        network = _kept(model, content, found, name, preprocessing)
        return _checked(network, found, data, preprocessing)
    place = Path(output)
    place.parent.mkdir(parents=True, exist_ok=True)
    before = place.read_bytes() if place.is_file() else None
    place.write_bytes(content)
    try:
        return _checked(Network.load(place), found, data, preprocessing)
    except VerifolioError:  # what is refused is not left for somebody to take
        if before is None:
            place.unlink(missing_ok=True)
        else:
            place.write_bytes(before)
        raise


def _checked(
    network: Network, found: Export, data: Dataset | None, preprocessing: Preprocessing
) -> ExportedModel:
    """The exported model; refuses what cannot be imported and what computes something else than the model."""
    network.graph  # noqa: B018  # the import
    bare = ExportedModel(network, found.classes, found.features, found.categories, found.note)
    if data is None:
        return bare
    check_features(data, found.features)
    return compare_with_original(bare, found, recoded(data, found.categories), preprocessing)


def _kept(model: object, content: bytes, found: Export, name: str, preprocessing: Preprocessing) -> Network:
    """The user's own file where it is used as it is, or one in the cache."""
    if (
        isinstance(model, ExportedModel | Network | str | Path)
        and preprocessing.nothing
        and not (found.outputs or found.predict)
    ):
        if isinstance(model, ExportedModel | Network):
            return model.network if isinstance(model, ExportedModel) else model
        if _reader(Path(model)) is None:
            return Network.load(model)
    return Network.load(keep_network(content, name or found.name))


def compare_with_original(
    bare: ExportedModel, found: Export, data: Dataset, preprocessing: Preprocessing
) -> ExportedModel:
    """Both on the first inputs of the data; refuses a network that computes something else."""
    network = bare.network
    if not bare.classes and any(n.startswith("-") and n[1:].isdigit() for n in data.class_names):
        got, remedy = f"such as {data.class_names[0]}", "give the places of the classes among the outputs"
        raise InputError("labels", "class numbers from 0, or names", got, remedy)
    check_shape(replace(data, class_names=()) if bare.classes else data, network)
    count = min(len(data), COMPARED)
    inputs = np.stack([data.image(i) for i in range(count)])
    ours = np.stack([network.replay(x) for x in inputs]).astype(np.float64)
    labels = class_positions(data, bare.classes)[:count]
    known = labels != NO_LABEL
    right = (
        float((ours.argmax(axis=1) == labels)[known].mean()) if known.any() and ours.shape[1] > 1 else None
    )
    fed = preprocessing.apply(inputs.reshape(count, *data.shape))
    difference = _difference(found.outputs, fed, ours, network)
    agreement = _agreement(found.predict, fed, ours, network)
    return replace(bare, compared=count, difference=difference, agreement=agreement, accuracy=right)


def _difference(
    outputs: Callable[[Array], Array] | None, fed: Any, ours: Array, network: Network
) -> float | None:
    if outputs is None:
        return None
    theirs = outputs(fed).reshape(len(ours), -1)
    if theirs.shape != ours.shape:
        raise _another(network, f"{theirs.shape[1]} outputs", f"{ours.shape[1]}")
    worst = float(np.abs(theirs - ours).max())
    if not worst <= CLOSE * max(1.0, float(np.abs(theirs).max())):
        raise _another(network, "what the model computes", f"a difference of {worst:.3g}")
    return worst


def _agreement(predict: Any, fed: Any, ours: Array, network: Network) -> float | None:
    if predict is None:
        return None
    share = float((predict(fed) == ours.argmax(axis=1)).mean())
    if share < 1 - PURE:
        raise _another(
            network, "the classes that the model predicts", f"others for {1 - share:.0%} of the inputs"
        )
    return share


def _another(network: Network, expected: str, got: str) -> InputError:
    remedy = "is the model in evaluation mode, and the same at every call? Else export it to ONNX yourself"
    return InputError(f"exported {network.path.name}", expected, got, remedy)


def check_features(data: Dataset, fitted: tuple[str, ...]) -> None:
    """Refuse columns in another order, or of other names, than those that the model was fitted with."""
    if fitted and data.features and data.features != fitted:
        k = next((i for i, (a, b) in enumerate(zip(data.features, fitted, strict=False)) if a != b), 0)
        expected = f"the columns that the model was fitted with, in their order: {', '.join(fitted[:6])}"
        remedy = "order them: X[list(model.feature_names_in_)]"
        raise InputError(f"data {data.name}", expected, f"{data.features[k]} as column {k}", remedy)


def class_positions(data: Dataset, classes: tuple[Any, ...]) -> Any:
    """The labels as positions of the network's outputs, which the model may know by other names."""
    if not classes:
        return data.labels
    position = {label_text(c): k for k, c in enumerate(classes)}
    names = data.class_names or tuple(map(str, range(data.classes)))
    table = {k: position.get(n, NO_LABEL) for k, n in enumerate(names)} | {NO_LABEL: NO_LABEL}
    unknown = sorted({names[k] for k in set(data.labels.tolist()) - {NO_LABEL} if table[k] == NO_LABEL})
    if unknown:
        expected = f"labels among the model's classes {', '.join(map(str, classes))}"
        raise InputError(f"data {data.name}", expected, ", ".join(unknown[:5]), "is this the model's data?")
    return np.array([table[int(k)] for k in data.labels], np.int64)
