"""A witness's outputs as bytes: single precision as it is, doubles after a mark of one byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_DOUBLES = b"d"  # numbers of four bytes never leave a rest of one


def outputs_to_bytes(y: NDArray[np.floating]) -> bytes:
    """Outputs for a store."""
    if y.dtype == np.float64:
        return _DOUBLES + y.tobytes()
    return y.astype(np.float32).tobytes()


def outputs_from_bytes(data: bytes) -> NDArray[np.floating]:
    """Outputs of a store."""
    if len(data) % 4 == len(_DOUBLES):
        return np.frombuffer(data[len(_DOUBLES) :], np.float64)
    return np.frombuffer(data, np.float32)
