"""Models of torch, scikit-learn and Keras as ONNX networks, and the command `export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer

    from verifolio.plugin.exporter import Exporter
    from verifolio.plugin.registry import Registry


@hookimpl
def register_exporters(registry: Registry[Exporter]) -> None:
    from .keras_model import KerasModel
    from .sklearn_model import SklearnModel
    from .torch_model import TorchModel

    for cls in (
        KerasModel,
        TorchModel,
        SklearnModel,
    ):  # with torch below it, a Keras model is a torch module too
        registry.add(cls)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from verifolio.cli.expand import add_command

    from .command import export

    add_command(app, "export", export)
