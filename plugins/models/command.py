"""The command `export`: a model as an ONNX network, compared with the original on data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, with_default
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.plugin.data_source import Dataset

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="FILE.py:NAME, an ONNX file, or a file of a library, such as net.keras."
    ),
]


@dataclass(frozen=True, kw_only=True)
class Inputs(bundles.Preprocessing, bundles.Indices, bundles.Data):
    """What the model reads."""

    panel: ClassVar[str] = INPUTS
    data: tuple[str, ...] = with_default(bundles.Data, "data", default=())
    shape: str = described(
        "", "The shape of one input, where there is no --data, as 1,28,28.", metavar="NUMBERS"
    )

    def given(self) -> Dataset | None:
        """The chosen inputs of --data."""
        if not self.data:
            return None
        loaded = self.dataset()
        return loaded.take(self.positions(len(loaded)))


@dataclass(frozen=True, kw_only=True)
class Written(bundles.Json, bundles.Output):
    """What is written."""

    output: str = with_default(bundles.Output, "output", default="network.onnx")


def export(model: Model, inputs: Inputs, written: Written) -> None:
    """Write a model as an ONNX network.

    The network reads the data as it is. The preprocessing becomes a part of the network. With --data, the
    network is compared with the original on the chosen inputs, and its accuracy there is printed: a low one
    means that preprocessing or labels are wrong. FILE.py:NAME runs the file and takes the model, or the
    function that makes it, from there.

    Example:
        verifolio export examples/networks/digits_dense.onnx --data digits --scale 1 -o exported.onnx
    """
    from verifolio.api.models import exported
    from verifolio.cli.output import say, say_json
    from verifolio.cli.parse import parse_numbers
    from verifolio.encode.preprocessing import preprocessing_of

    data = inputs.given()
    shape = tuple(int(n) for n in parse_numbers(inputs.shape, "--shape")) or None
    mean, std = parse_numbers(inputs.mean, "--mean"), parse_numbers(inputs.std, "--std")
    prepared = preprocessing_of(inputs.scale, mean, std, inputs.channels)
    found = exported(read_model(model), data, prepared, written.output, shape=shape)
    if written.json:
        facts = {"compared": found.compared, "difference": found.difference, "agreement": found.agreement}
        path, sha256 = str(found.network.path), found.network.sha256
        say_json({"path": path, "sha256": sha256, **facts, "accuracy": found.accuracy})
        return
    for line in found.text().splitlines():
        say(line)


def read_model(spec: str) -> object:
    """A file's path, or what NAME is in FILE.py, called where it is a function."""
    from verifolio.errors import InputError, near
    from verifolio.files.python_file import run_python_file

    path, _, name = spec.partition(":")
    if not path.endswith(".py"):
        return spec
    if not name:
        raise InputError(spec, "FILE.py:NAME", "no name", "name the model in the file")
    module = run_python_file(Path(path))
    model: Any = getattr(module, name, None)
    if model is None:
        raise InputError(
            spec, f"{name} in {path}", "no such name", "check the name" + near(name, vars(module))
        )
    is_function = callable(model) and type(model).__name__ == "function"
    return model() if is_function else model
