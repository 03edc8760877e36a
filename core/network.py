"""Network: an ONNX file, its hash and signature; its Graph for proofs, ONNX Runtime for concrete values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError

if TYPE_CHECKING:
    from verifolio.graph import Graph
    from verifolio.graph.module import GraphModule


@dataclass(frozen=True)
class TensorSignature:
    """Name, shape (a symbolic batch dimension counts as 1) and numpy type of a network's input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Network:
    """An ONNX file identified by its content. Cheap to pickle: only the path and the hash travel."""

    path: Path
    sha256: str

    @classmethod
    def load(cls, path: str | Path) -> Network:
        """Read and hash a file (`.onnx` or `.onnx.gz`); nothing is imported yet."""
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError(str(path), "an ONNX file", "no such file", "check the path")
        return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())

    @property
    def graph(self) -> Graph:
        """The intermediate form, imported once per process."""
        return _graph(self)

    @property
    def inputs(self) -> tuple[TensorSignature, ...]:
        return _session(self)[1]

    @property
    def outputs(self) -> tuple[TensorSignature, ...]:
        return _session(self)[2]

    @property
    def input_size(self) -> int:
        return sum(t.size for t in self.inputs)

    @property
    def output_size(self) -> int:
        return sum(t.size for t in self.outputs)

    def module(self, dtype: Any = None) -> GraphModule:
        """The graph as a torch module, for gradients."""
        import torch

        from verifolio.graph.module import GraphModule

        return GraphModule(self.graph, torch.float32 if dtype is None else dtype)

    def replay(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """ONNX Runtime, default options, on the original file: flat inputs to flat outputs."""
        session, inputs, outputs = _session(self)
        feeds, start = {}, 0
        flat = np.asarray(x).ravel()
        for tensor in inputs:
            part = flat[start : start + tensor.size]
            feeds[tensor.name] = part.astype(tensor.dtype).reshape(tensor.shape)
            start += tensor.size
        results: Sequence[Any] = session.run([t.name for t in outputs], feeds)
        return np.concatenate([np.asarray(r, np.float32).ravel() for r in results])


MAX_MODEL = 1 << 30


def read_model(path: Path) -> bytes:
    """The bytes of an ONNX file, decompressed (to at most a gigabyte) where its name ends in .gz."""
    import gzip
    import zlib

    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as stream:
            data = stream.read(MAX_MODEL + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            str(path), "a gzip file", str(error), "decompress it by hand to see what is wrong"
        ) from None
    if len(data) > MAX_MODEL:
        raise InputError(str(path), f"a model of at most {MAX_MODEL} bytes", "more", "is it a gzip bomb?")
    return data


@lru_cache(maxsize=16)
def _graph(network: Network) -> Graph:
    from verifolio.onnx_import import import_graph

    return import_graph(network)


@lru_cache(maxsize=16)
def _session(network: Network) -> tuple[Any, tuple[TensorSignature, ...], tuple[TensorSignature, ...]]:
    from verifolio.onnx_import.session import open_session

    return open_session(network)
