"""torch modules as ONNX: written layer by layer where all layers are known, else by torch's own exporters."""

from __future__ import annotations

import copy
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verifolio.errors import InputError
from verifolio.plugin.exporter import Array, Export, Exporter


class TorchModel(Exporter):
    """A torch.nn.Module, in evaluation mode, on the CPU, in single precision; the module itself is not changed."""

    name: ClassVar[str] = "torch"

    @classmethod
    def accepts(cls, model: object) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(model, torch.nn.Module)

    def export(self, model: Any, shape: tuple[int, ...]) -> Export:
        import torch

        module = copy.deepcopy(model).cpu().float().eval()
        name = type(model).__name__.lower()
        try:
            with torch.no_grad():
                got = module(torch.zeros(1, *shape))
        except Exception as error:  # a stranger's forward may raise anything
            where, text = f"model {name}", " ".join(str(error).split())[:200]
            read = "x".join(map(str, shape))
            raise InputError(
                where, f"one that reads inputs of shape {read}", text, "give the inputs in its shape"
            ) from None
        if not isinstance(got, torch.Tensor) or got.ndim != 2 or len(got) != 1:
            said = f"shape {tuple(got.shape)}" if isinstance(got, torch.Tensor) else type(got).__name__
            raise InputError(f"model {name}", "one output of shape (batch, classes)", said, "wrap the model")

        def outputs(x: Array) -> Array:
            with torch.no_grad():
                found: Array = module(torch.from_numpy(np.asarray(x, np.float32))).double().numpy()
            return found

        return Export(to_onnx(module, shape, name), name, outputs)


def to_onnx(module: Any, shape: tuple[int, ...], name: str) -> bytes:
    """The first exporter that can: our own, torch's quick one, torch's default one."""
    from verifolio.encode.torch_export import export_onnx, unsupported_layers

    with tempfile.TemporaryDirectory(prefix="verifolio-") as folder:
        path = Path(folder) / "model.onnx"
        if not unsupported_layers(module):
            export_onnx(module, path, shape, name=name)
        elif not traced(module, shape, path):
            captured(module, shape, path, name)
        from verifolio.onnx_import.external import with_external_data

        return with_external_data(path, path.read_bytes())


def traced(module: Any, shape: tuple[int, ...], path: Path) -> bool:
    """By tracing one input, which is quick; not where the trace depends on the values of that input."""
    import torch

    with warnings.catch_warnings(record=True) as said, quiet():
        warnings.simplefilter("always")
        try:
            torch.onnx.export(module, (torch.zeros(1, *shape),), str(path), dynamo=False)
        except Exception:  # the other exporter says what is wrong, or can do it
            return False
    return not any(w.category.__name__ == "TracerWarning" for w in said)


def captured(module: Any, shape: tuple[int, ...], path: Path, name: str) -> None:
    """By torch's default exporter, which refuses control flow that depends on values."""
    import torch

    if find_spec("onnxscript") is None:
        remedy = "pip install onnxscript, or export it to ONNX yourself and give the file"
        raise InputError(f"model {name}", "the package onnxscript, which torch exports with", "none", remedy)
    try:
        with warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(module, (torch.zeros(1, *shape),), dynamo=True, verbose=False)
            if program is None:
                raise RuntimeError("no program")
            program.save(str(path))
    except Exception as error:  # whatever torch finds in a stranger's module
        text = " ".join(str(error).split())[:300]
        remedy = (
            "does it decide by values, or change between calls? Export it to ONNX yourself and give the file"
        )
        raise InputError(
            f"model {name}", "a module that torch.onnx.export can export", text, remedy
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without what torch prints while it exports."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        log.setLevel(level)
