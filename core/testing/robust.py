"""Robustness as an assertion: what the pytest plugin asks, and how it shows a counterexample as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from verifolio.api.data import as_dataset, recoded
from verifolio.api.models import class_positions, exported
from verifolio.cli.parse import NORMS
from verifolio.data import check_range, check_shape, in_layout, load_data, parse_indices, parse_range
from verifolio.encode.preprocessing import Preprocessing, preprocessing_of
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.property import Reference
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import Finding, decide
from verifolio.solve.oracle import Oracle
from verifolio.storage.invocation import invoked
from verifolio.storage.store import Store

Array = NDArray[np.float64]
DEFAULTS: dict[str, Any] = {
    "indices": "0:10",
    "norm": "linf",
    "range": "0,1",
    "property": "classification",
    "reference": "label",
    "timeout": 60.0,
    "undecided": "fail",
    "scale": 1.0,
    "mean": None,
    "std": None,
    "channels": "rgb",
    "layout": "",
}
SHADES = " .:-=+*#%@"  # from the lowest legal value to the highest
WIDEST = 32  # columns of a picture in text; a terminal has eighty for two of them
SHOWN = 8  # changed values that are listed


@dataclass(frozen=True, eq=False)
class Request:
    """What a test asks; the model is a file, a model of a library, or a function that makes one."""

    model: object
    data: Dataset
    indices: tuple[int, ...]
    epsilon: float
    norm: str
    range: tuple[float, float]
    property: str
    reference: str
    timeout: float
    undecided: Literal["fail", "skip"]
    names: tuple[str, ...] = ()
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def network(self) -> tuple[Network, Dataset]:
        """The network, and the data as it reads them."""
        if isinstance(self.model, Path) and self.preprocessing.nothing:
            return Network.load(self.model), self.data
        model = self.model() if isinstance(self.model, FunctionType) else self.model
        by_order = choose_property(self.property).by_order
        few = self.data.take(list(self.indices))
        made = exported(model, few, self.preprocessing, by_order=by_order)
        data = replace(recoded(self.data, made.categories), labels=class_positions(self.data, made.classes))
        return made.network, replace(data, class_names=())


@dataclass(frozen=True)
class Found:
    """What came out: proved, refuted or open, and the words for it."""

    status: str
    text: str


def read_request(given: Sequence[object], named: Mapping[str, Any], where: Path) -> Request:
    """The arguments of the mark; files are looked for beside the test first."""
    told = DEFAULTS | dict(named)
    unknown = set(told) - {*DEFAULTS, "data", "epsilon", "model"}
    if unknown:
        raise InputError(f"{where}: robust", f"some of {', '.join(DEFAULTS)}", ", ".join(sorted(unknown)))
    if given:
        told["model"] = given[0]
    missing = [name for name in ("model", "data", "epsilon") if name not in told]
    if missing or len(given) > 1:
        remedy = "write robust('model.onnx', data='test.npz', epsilon=0.01)"
        raise InputError(f"{where}: robust", "a model, data and epsilon", f"no {', '.join(missing)}", remedy)
    data = _data(told["data"], where, str(told["layout"]))
    indices = tuple(parse_indices(str(told["indices"]), len(data)))
    return _request(_model(told["model"], where), data, indices, told)


def _model(given: object, where: Path) -> object:
    return Path(_beside(str(given), where)) if isinstance(given, str | Path) else given


def _data(given: object, where: Path, layout: str) -> Dataset:
    """A name or file as --data has it, or X and y."""
    if isinstance(given, str | Path):
        return in_layout(_load(_beside(str(given), where)), layout)
    X, y = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    return as_dataset(X, y, layout=layout)


def one_input(model: object, x: object, label: int, names: Sequence[str], **told: Any) -> Request:
    """A request about one input that is given as it is."""
    values = np.asarray(x, np.float64)
    data = Dataset("test", "", values.reshape(1, -1), np.array([label]), values.shape or (1,), label + 1)
    return _request(_model(model, Path()), data, (0,), DEFAULTS | told, tuple(names))


def _request(
    model: object,
    data: Dataset,
    indices: tuple[int, ...],
    told: Mapping[str, Any],
    names: tuple[str, ...] = (),
) -> Request:
    if told["norm"] not in NORMS:
        raise InputError("robust: norm", f"one of {', '.join(NORMS)}", repr(told["norm"]))
    if told["undecided"] not in ("fail", "skip"):
        raise InputError("robust: undecided", "fail or skip", repr(told["undecided"]))
    return Request(
        *(model, data, indices, float(told["epsilon"]), told["norm"], parse_range(str(told["range"]))),
        *(told["property"], told["reference"], float(told["timeout"]), told["undecided"]),
        names or data.features,
        preprocessing_of(told["scale"], told["mean"], told["std"], told["channels"]),
    )


def _beside(name: str, where: Path) -> str:
    near = where.parent / name
    return str(near) if near.is_file() else name


@lru_cache(maxsize=8)
def _load(spec: str) -> Dataset:
    return load_data(spec)


class Checker:
    """An oracle for tests, opened when the first one asks."""

    def __init__(self, timeout: float, store: str = "", arguments: Sequence[str] = ()) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(invoked("pytest", {"timeout": timeout, "arguments": list(arguments)}))
        kept = self._stack.enter_context(Store(store)) if store else None
        self._oracle = self._stack.enter_context(Oracle(store=kept, timeout=timeout or math.inf))
        self._made: dict[tuple[object, ...], tuple[Network, Dataset, object]] = {}

    def close(self) -> None:
        self._stack.close()

    def around(self, request: Request, index: int) -> Found:
        """Decide the property around one input."""
        network, data = self._network(request)
        check_shape(data, network)
        check_range(data, [index], *request.range)
        x, label = data.image(index), int(data.labels[index])
        if request.reference == "predicted":
            label = int(network.replay(x).argmax())
        reference = Reference(
            *(x, label, request.epsilon, NORMS[request.norm], *request.range),
            origin=data.origin(index),
        )
        finding = decide(self._oracle, choose_property(request.property), [network], reference)
        return Found(finding.status.value, describe(request, network, index, label, finding))

    def _network(self, request: Request) -> tuple[Network, Dataset]:
        """The network of a request; a model that has been exported for its data is not exported again."""
        key = (id(request.model), request.data.sha256, request.preprocessing)
        if isinstance(request.model, Path):
            return request.network()
        if key not in self._made:  # the model is kept, so that its id stays its own
            self._made[key] = (*request.network(), request.model)
        return self._made[key][:2]


def describe(request: Request, network: Network, index: int, label: int, finding: Finding) -> str:
    """What a failing test prints."""
    origin = request.data.origin(index)
    about = f"{network.path.name} around {origin['data']} input {index} within {request.epsilon:g} ({request.norm})"
    if finding.witness is None:
        why = finding.reason or finding.answer.reason
        return f"{finding.status.value}: {about}" + (f"\n{why}" if why else "")
    x, near = finding.witness.x.astype(np.float64), request.data.image(index)
    y = finding.witness.y
    distance = float(np.linalg.norm(x - near, NORMS[request.norm]))
    lines = [
        f"not robust: {about}",
        f"label {label}, but output {int(y.argmax())} is highest at a distance of {distance:.6g}"
        f" (found by {finding.answer.verifier}, replayed)",
        f"outputs: {', '.join(f'{v:.4g}' for v in y[:16])}",
    ]
    return "\n".join(
        [*lines, *drawing(near, x, request.data.shape, request.range), *changed(near, x, request.names)]
    )


def changed(near: Array, x: Array, names: Sequence[str]) -> list[str]:
    """The values that changed most."""
    order = [int(i) for i in np.argsort(-np.abs(x - near), kind="stable")[:SHOWN] if x[i] != near[i]]
    told = [names[i] if len(names) == x.size else f"x[{i}]" for i in order]
    width = max([5, *map(len, told)])
    lines = [f"{'value':{width}}  {'input':>12}  {'becomes':>12}  {'change':>12}"]
    for i, name in zip(order, told, strict=True):
        lines.append(f"{name:{width}}  {near[i]:12.6g}  {x[i]:12.6g}  {x[i] - near[i]:+12.6g}")
    left = int(np.sum(x != near)) - len(order)
    return [*lines, f"and {left} more"] if left > 0 else lines


def drawing(near: Array, x: Array, shape: Sequence[int], limits: tuple[float, float]) -> list[str]:
    """A small grey image and its counterexample side by side, in characters; nothing for other inputs."""
    axes = [n for n in shape if n != 1]
    if len(axes) != 2 or axes[1] > WIDEST or not all(map(math.isfinite, limits)):
        return []
    low, high = limits

    def line(values: Array) -> str:
        part = np.clip((values - low) / (high - low), 0, 1) * (len(SHADES) - 1)
        return "".join(SHADES[int(k)] for k in np.rint(part))

    pairs = zip(near.reshape(axes), x.reshape(axes), strict=True)
    title = f"{'input':{axes[1]}}  |  counterexample"
    return [title, *(f"{line(cast(Array, a))}  |  {line(cast(Array, b))}" for a, b in pairs)]
