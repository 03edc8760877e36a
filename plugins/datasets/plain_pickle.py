"""Pickled data read as data: numbers, texts, containers and arrays; nothing that a file names is ever called."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

import numpy as np

from verifolio.errors import InputError

# what numpy writes for an array: a call that makes an empty one, which its state then fills
ARRAY_MAKERS = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
ARRAY, DTYPE = ("numpy", "ndarray"), ("numpy", "dtype")
ENCODE = ("_codecs", "encode")  # how Python 3 writes bytes for Python 2


class Named:
    """Stands for whatever a file names; where the file calls it, it only remembers the arguments."""

    def __init__(self, name: tuple[str, str], arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None

    def __call__(self, *arguments: Any) -> Named:
        return Named(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class InertUnpickler(pickle.Unpickler):
    """An unpickler for which every name is inert."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ARRAY_MAKERS | {ARRAY, DTYPE, ENCODE}:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return Named((module, name))

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


def read_plain(data: bytes, where: str) -> Any:
    """The object that the bytes describe; dictionaries have texts as keys."""
    try:
        return plain(InertUnpickler(BytesIO(data), encoding="bytes").load())
    except Exception as error:  # damaged bytes may raise anything
        got = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(where, "pickled numbers, texts and arrays", got, "is the file damaged?") from None


def plain(value: Any) -> Any:
    """With arrays in the place of what stands for them."""
    if isinstance(value, Named):
        return made(value)
    if isinstance(value, dict):
        return {as_text(plain(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def as_text(key: Any) -> Any:
    """Bytes are the texts of Python 2."""
    return key.decode("latin-1") if isinstance(key, bytes) else key


def made(named: Named) -> Any:
    """An array of bytes or numbers, or bytes."""
    if named.name == ENCODE and named.arguments[1:] in (("latin1",), (b"latin1",)):
        return str(named.arguments[0]).encode("latin-1")
    if named.name not in ARRAY_MAKERS or not isinstance(named.state, tuple) or len(named.state) != 5:
        raise ValueError(f"{'.'.join(named.name)} is no array")
    _, shape, dtype, fortran, raw = named.state
    code = dtype.arguments[0] if isinstance(dtype, Named) and dtype.name == DTYPE else ""
    kind = np.dtype(code.decode() if isinstance(code, bytes) else code)
    content = plain(raw)
    if kind.kind not in "uifb" or not isinstance(content, bytes):
        raise ValueError("an array of something else than numbers")
    return np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")
