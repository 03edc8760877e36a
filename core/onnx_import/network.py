"""Network: an ONNX file, its hash and signature; its Graph for proofs, ONNX Runtime for concrete values."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError

if TYPE_CHECKING:
    from verifolio.graph import Graph
    from verifolio.graph.module import GraphModule

T = TypeVar("T")
P = ParamSpec("P")


class Compute(Protocol):
    """Calls a function that can be imported by its name, wherever its work is to be done."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


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
    """An ONNX file identified by its content. Cheap to pickle: only the path and the hash travel.

    Whoever needs the content reads the file again, and refuses it if its hash is another one by then. `exposed` are
    tensors inside the network that count as further outputs, because a property speaks of them.
    """

    path: Path
    sha256: str
    exposed: tuple[str, ...] = ()
    _compute: Compute | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[Network], tuple[Path, str, tuple[str, ...]]]:
        return Network, (self.path, self.sha256, self.exposed)

    @classmethod
    def load(cls, path: str | Path) -> Network:
        """Read and hash a file (`.onnx` or `.onnx.gz`) and its external data; nothing is imported yet."""
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError(str(path), "an ONNX file", "no such file", "check the path")
        return cls(path, hashlib.sha256(_whole(path)).hexdigest())

    def computed_by(self, compute: Compute) -> Network:
        """The same network, whose values somebody else computes: an oracle's workers (`oracle.compute`)."""
        return replace(self, _compute=compute)

    def compute(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function of this network gives, computed where this network is: in a worker, or else here."""
        return (
            function(*args, **kwargs) if self._compute is None else self._compute(function, *args, **kwargs)
        )

    def content(self) -> bytes:
        """The bytes of the file, which are those that were hashed; weights in other files are part of them."""
        try:
            data = _whole(self.path)
        except OSError as error:
            got = error.strerror or type(error).__name__
            raise InputError(str(self.path), "a readable file", got, "check the path") from None
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise InputError(
                str(self.path),
                f"the file that was loaded (sha256 {self.sha256[:12]}...)",
                f"another (sha256 {found[:12]}...)",
                "the file has changed meanwhile; load it again",
            )
        return data

    def model(self) -> bytes:
        """The ONNX model in the file: its bytes, decompressed (to at most a gigabyte) where it ends in .gz."""
        data = self.content()
        plain = _decompressed(self.path, data) if self.path.suffix == ".gz" else data
        return plain + _more_outputs(self.exposed)

    def exposing(self, names: tuple[str, ...]) -> Network:
        """The same network with these tensors as further outputs."""
        return self if names == self.exposed else replace(self, exposed=names)

    def inner_name(self, name: str) -> str | None:
        """The tensor between inputs and outputs of that name, or that the node of that name computes."""
        from verifolio.onnx_import.reader import inner_name

        return inner_name(self.exposing(()), name)

    @property
    def graph(self) -> Graph:
        """The intermediate form, imported once per process."""
        return _graph(self)

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the inputs and of the outputs, in order; nothing is imported for them."""
        return _names(self)

    @property
    def inputs(self) -> tuple[TensorSignature, ...]:
        return _signature(self)[0]

    @property
    def outputs(self) -> tuple[TensorSignature, ...]:
        return _signature(self)[1]

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

    def replay(self, x: NDArray[Any], optimised: bool = True) -> NDArray[np.floating]:
        """ONNX Runtime, default options, on the original file: flat inputs to flat outputs.

        Not `optimised`: operator by operator, as the file has them. Exposed tensors come from a run that also returns
        them, which keeps operators around them from being fused; the outputs come from the file as it is.
        In single precision unless that rounds some output's type.
        """
        if self.exposed and optimised:
            outputs = self.exposing(()).replay(x)
            return np.concatenate([outputs, self._run(x, optimised)[len(outputs) :]])
        return self._run(x, optimised)

    def _run(self, x: NDArray[Any], optimised: bool) -> NDArray[np.floating]:
        session = _session(self) if optimised else _plain_session(self)
        feeds, start = {}, 0
        flat = np.asarray(x).ravel()
        for tensor in self.inputs:
            part = flat[start : start + tensor.size]
            feeds[tensor.name] = part.astype(tensor.dtype).reshape(tensor.shape)
            start += tensor.size
        results: Sequence[Any] = session.run([t.name for t in self.outputs], feeds)
        flat_results = [np.asarray(r).ravel() for r in results]
        return np.concatenate([r.astype(np.result_type(r.dtype, np.float32)) for r in flat_results])


def _more_outputs(names: Sequence[str]) -> bytes:
    """To be added to a model's bytes: the encoding of a message after that of another is that of both merged."""
    if not names:
        return b""
    import onnx

    more = onnx.ModelProto()
    for name in names:
        more.graph.output.add().name = name
    return bytes(more.SerializeToString())


MAX_MODEL = 1 << 30  # bytes: ONNX files cannot be larger than two gigabytes, and benchmarks' are far smaller


def _whole(path: Path) -> bytes:
    """A file's bytes, with the weights that it has in other files."""
    from verifolio.onnx_import.external import with_external_data

    return with_external_data(path, path.read_bytes())


def _decompressed(path: Path, packed: bytes) -> bytes:
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            data = stream.read(MAX_MODEL + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            str(path), "a gzip file", str(error), "decompress it by hand to see what is wrong"
        ) from None
    if len(data) > MAX_MODEL:
        raise InputError(str(path), f"a model of at most {MAX_MODEL} bytes", "more", "is it a gzip bomb?")
    return data


@lru_cache(maxsize=64)
def _names(network: Network) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from verifolio.onnx_import.reader import tensor_names

    return tensor_names(network)


@lru_cache(maxsize=16)
def _graph(network: Network) -> Graph:
    from verifolio.onnx_import.check import import_graph

    return import_graph(network)


@lru_cache(maxsize=16)
def _signature(network: Network) -> tuple[tuple[TensorSignature, ...], tuple[TensorSignature, ...]]:
    from verifolio.onnx_import.lower import lower_network

    lowered = lower_network(network)
    return lowered.inputs, lowered.outputs


@lru_cache(maxsize=4)
def _plain_session(network: Network) -> Any:
    from verifolio.onnx_import.session import open_session

    return open_session(network, optimised=False)


@lru_cache(maxsize=16)
def _session(network: Network) -> Any:
    from verifolio.onnx_import.session import open_session

    return open_session(network)
