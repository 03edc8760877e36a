"""torch modules as ONNX: written layer by layer where all layers are known, else by torch's own exporters."""

from __future__ import annotations

import copy
import inspect
import re
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from verifolio.errors import InputError
from verifolio.plugin.exporter import Array, Export, Exporter

from .quiet import quiet

SCORES = (
    "logits"  # the output that holds the scores where there are several, as in the models of transformers
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of terminals


class TorchModel(Exporter):
    """A torch.nn.Module, in evaluation mode, on the CPU, in single precision; the module itself is not changed."""

    name: ClassVar[str] = "torch"

    @classmethod
    def accepts(cls, model: object) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(model, torch.nn.Module)

    def export(self, model: Any, shape: tuple[int, ...]) -> Export:
        import torch

        model = unwrapped(model)
        name = type(model).__name__.lower()
        original = copied(model, name)
        module = readable(original, shape, name)
        kinds = {p.dtype for p in original.parameters() if p.is_floating_point()}
        own = torch.float64 if kinds == {torch.float64} else torch.float32
        compared = picked(original, shape, own) if own is torch.float64 else module
        note = ""
        if kinds & {torch.float16, torch.bfloat16}:
            note = f"the module computes in {', '.join(map(str, kinds))}, the network in single precision"

        def outputs(x: Array) -> Array:
            given = torch.from_numpy(np.asarray(x, np.float32)).to(own)
            with torch.no_grad():  # one by one: some modules know no other batches
                return torch.cat([compared(row[None]).double() for row in given]).numpy()

        return Export(to_onnx(module, shape, name), name, outputs, note=note)


def unwrapped(model: Any) -> Any:
    """The module inside of torch.compile and of the wrappers that run it in parallel."""
    while type(model).__name__ in ("OptimizedModule", "DataParallel", "DistributedDataParallel"):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


def copied(model: Any, name: str) -> Any:
    """A copy in evaluation mode on the CPU."""
    try:
        return copy.deepcopy(model).cpu().eval()
    except Exception as error:  # tensors with a history of gradients, for one
        remedy = "make the module anew and load its state_dict"
        raise InputError(f"model {name}", "a module that can be copied", _short(error), remedy) from None


def readable(original: Any, shape: tuple[int, ...], name: str) -> Any:
    """The module with one output (batch, classes), in single precision; or why there is none."""
    import torch

    problem: Exception | None = None
    for module in (copy.deepcopy(original).float(), original):  # some convert to double precision themselves
        try:
            return picked(module, shape, torch.float32)
        except InputError:
            raise
        except Exception as error:  # a stranger's forward may raise anything
            problem = problem or error
    read = "x".join(map(str, shape))
    got, remedy = _short(problem), remedy_for(copy.deepcopy(original).float(), shape)
    raise InputError(f"model {name}", f"one that reads inputs of shape {read}", got, remedy) from None


def picked(module: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The module itself, or one around it that gives the one output of shape (batch, classes)."""
    import torch

    with torch.no_grad():
        got = module(torch.zeros(1, *shape, dtype=dtype))
    name = type(module).__name__.lower()
    key = None if isinstance(got, torch.Tensor) else _key(got, name)
    found = got if key is None else got[key]
    if not found.is_floating_point():
        remedy = "return the scores: what comes before argmax or a threshold"
        raise InputError(f"model {name}", "scores", f"whole numbers ({found.dtype})", remedy)
    if found.ndim == 2 and len(found) == 1:
        return module if key is None else _wrapped(module, key)
    if found.ndim == 1:
        return _wrapped(module, key)
    said, remedy = f"shape {tuple(found.shape)}", "wrap the module in one whose forward returns the scores"
    raise InputError(f"model {name}", "one output of shape (batch, classes)", said, remedy)


def _key(got: Any, name: str) -> Any:
    """By what the scores are found among several outputs: the only tensor, or the one that is named for them."""
    import torch

    items = dict(got) if isinstance(got, Mapping) else dict(enumerate(got if isinstance(got, tuple) else ()))
    tensors = [k for k, v in items.items() if isinstance(v, torch.Tensor)]
    if SCORES in tensors or len(tensors) == 1:
        return SCORES if SCORES in tensors else tensors[0]
    said = f"{type(got).__name__} of {', '.join(map(str, tensors)) or 'no tensor'}"
    remedy = "wrap the module in one whose forward returns the scores alone, such as model(x)[0]"
    raise InputError(f"model {name}", f"one output of shape (batch, classes), or {SCORES!r}", said, remedy)


def _wrapped(module: Any, key: Any) -> Any:
    from torch import Tensor, nn

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            got = self.module(x)
            found: Tensor = got if key is None else got[key]
            return found.reshape(1, -1)

    return Scores().eval()


def remedy_for(module: Any, shape: tuple[int, ...]) -> str:
    """What to do about a module that cannot read the data, as far as trying shows."""
    import torch

    def reads(other: tuple[int, ...], dtype: Any = torch.float32) -> bool:
        try:
            with torch.no_grad():
                module(torch.zeros(1, *other, dtype=dtype))
        except Exception:  # that is the answer
            return False
        return True

    if _needed(module) > 1:
        return "it reads several inputs: wrap it in a module whose forward takes one and divides it"
    if len(shape) == 2 and reads((1, *shape)):
        return f"it wants an axis for channels: shape={(1, *shape)}"
    if len(shape) == 3 and reads((shape[2], *shape[:2])):
        return "it wants channels first: layout='hwc' turns the axes"
    if len(shape) > 1 and shape[0] == 1 and reads(shape[1:]):
        return "the first axis is one too many: give x[0]"
    if reads(shape, torch.int64):
        return (
            "it reads whole numbers, such as tokens: give the part behind its embedding, and embedded inputs"
        )
    return "give the inputs in its shape"


def _needed(module: Any) -> int:
    """How many arguments the module cannot do without."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        asked = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # no Python function
        return 1
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in asked)


def _short(error: Exception | None, most: int = 200) -> str:
    return " ".join(COLOURS.sub("", str(error)).split())[:most]


def to_onnx(module: Any, shape: tuple[int, ...], name: str) -> bytes:
    """The first exporter that can: our own, torch's quick one, torch's default one."""
    from verifolio.encode.torch_export import export_onnx, unsupported_layers
    from verifolio.onnx_import.external import with_external_data

    with tempfile.TemporaryDirectory(prefix="verifolio-") as folder:
        path = Path(folder) / "model.onnx"
        if not unsupported_layers(module):
            export_onnx(module, path, shape, name=name)
        else:
            doubt = traced(module, shape, path)
            if doubt is not None:
                captured(module, shape, path, name, doubt)
        return with_external_data(path, path.read_bytes())


def traced(module: Any, shape: tuple[int, ...], path: Path) -> str | None:
    """By tracing one input, which is quick; why that is not enough, or None where it is."""
    import torch

    try:
        with quiet() as said:
            torch.onnx.export(module, (torch.zeros(1, *shape),), str(path), dynamo=False)
    except Exception as error:  # the other exporter says what is wrong, or can do it
        return _short(error)
    texts = [str(w.message) for w in said if w.category.__name__ == "TracerWarning"]
    return _short(Exception(texts[0])) if texts else None


def captured(module: Any, shape: tuple[int, ...], path: Path, name: str, doubt: str) -> None:
    """By torch's default exporter, which refuses control flow that depends on values."""
    import torch

    if find_spec("onnxscript") is None:
        remedy = "pip install onnxscript, or export it to ONNX yourself and give the file"
        raise InputError(f"model {name}", "the package onnxscript, which torch exports with", "none", remedy)
    try:
        with quiet():
            program = torch.onnx.export(module, (torch.zeros(1, *shape),), dynamo=True, verbose=False)
            if program is None:
                raise RuntimeError("no program")
            program.save(str(path))
    except Exception:  # whatever torch finds in a stranger's module; what tracing said is easier to read
        remedy = (
            "does it decide by values, or change between calls? Export it to ONNX yourself and give the file"
        )
        raise InputError(
            f"model {name}", "a module that torch.onnx.export can export", doubt, remedy
        ) from None
