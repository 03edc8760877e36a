"""Small pictures as PNG in a data address: inputs, counterexamples, differences."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
# The two ends of a difference: less than before, more than before. White is no change.
LESS, MORE = np.array([33, 102, 172.0]), np.array([178, 24, 43.0])
SIDES = (2, 1024)  # a side shorter or longer than this is no picture that helps


def as_image(values: Array, shape: tuple[int, ...]) -> Array | None:
    """A flat input as (h, w) or (h, w, 3); None where its shape is not that of a picture or does not fit."""
    axes = list(shape)
    while len(axes) > 2 and axes[0] == 1:
        axes = axes[1:]
    if len(axes) == 3 and axes[-1] == 1:
        axes = axes[:2]
    if np.prod(axes or [0]) != values.size or not 2 <= len(axes) <= 3:
        return None
    image = values.reshape(axes)
    if image.ndim == 3 and axes[0] == 3:
        image = image.transpose(1, 2, 0)
    sides = image.shape[:2]
    if min(sides) < SIDES[0] or max(sides) > SIDES[1] or (image.ndim == 3 and image.shape[2] != 3):
        return None
    return np.asarray(image)


def picture(values: Array, shape: tuple[int, ...], low: float, high: float) -> str:
    """The address of an input's picture, its legal values from black to white; nothing where it is no picture."""
    image = as_image(values, shape)
    if image is None:
        return ""
    reach = high - low
    if not np.isfinite(reach) or reach <= 0:  # any value is legal: show those that occur
        finite = image[np.isfinite(image)]
        low, reach = (float(finite.min()), float(np.ptp(finite)) or 1.0) if finite.size else (0.0, 1.0)
    scaled = np.nan_to_num((image - low) / reach, nan=0.5, posinf=1.0, neginf=0.0)
    return address(np.asarray(np.clip(np.rint(255 * scaled), 0, 255), np.uint8))


def difference(values: Array, shape: tuple[int, ...]) -> str:
    """The address of a picture of changes: blue is less, red is more, the strongest colour the largest change."""
    image = as_image(values, shape)
    if image is None:
        return ""
    flat = image.mean(axis=2) if image.ndim == 3 else image
    flat = np.nan_to_num(flat)
    part = flat / (float(np.abs(flat).max()) or 1.0)
    ends = np.where(part[..., None] < 0, LESS, MORE)
    colours = 255 + np.abs(part[..., None]) * (ends - 255)
    return address(np.asarray(np.rint(colours), np.uint8))


def address(image: Bytes) -> str:
    """A PNG, grey (h, w) or in colours (h, w, 3), as a data address."""
    height, width = image.shape[:2]
    kind = 2 if image.ndim == 3 else 0
    lines = np.ascontiguousarray(image).reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), lines], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b"")
    data = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
