"""Pictures: one file, or a folder with a folder of pictures for each class."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from verifolio.errors import InputError
from verifolio.plugin.data_source import NO_LABEL, Dataset

from .files import FileSource

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
MOST_PIXELS = 1 << 24  # of one picture; a network reads far fewer, and a file may claim any number
MOST_PICTURES = 100_000  # in a folder: the size of a large test set


class Pictures(FileSource):
    """A picture, or a folder of pictures: its folders are the classes, in the order of their names.

    Pixels are scaled to [0, 1], channels come first, grey pictures have one. All must have the same size.
    """

    name: ClassVar[str] = "pictures"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    reads_folders: ClassVar[bool] = True

    def read(self, path: Path, split: str) -> Dataset:
        if path.is_file():
            return _dataset(path, [path], [NO_LABEL], ())
        folders = [p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
        # one without pictures is a class as well, unless no folder has any
        classes = sorted(p.name for p in folders) if any(map(_pictures, folders)) else []
        files = [(p, k) for k, name in enumerate(classes) for p in _pictures(path / name)]
        if not classes:
            files = [(p, NO_LABEL) for p in _pictures(path)]
        if not files:
            expected = f"pictures ({', '.join(SUFFIXES[:3])}, ...), in one folder for each class"
            raise InputError(str(path), expected, "none", "check the folder")
        if len(files) > MOST_PICTURES:
            raise InputError(
                str(path), f"at most {MOST_PICTURES} pictures", str(len(files)), "use a part of it"
            )
        return _dataset(path, [p for p, _ in files], [k for _, k in files], tuple(classes))


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name.lower().endswith(SUFFIXES))


def _dataset(path: Path, files: list[Path], labels: list[int], names: tuple[str, ...]) -> Dataset:
    pixels = [_read(file) for file in files]
    shape = pixels[0].shape
    for file, one in zip(files, pixels, strict=True):
        if one.shape != shape:
            sizes = ["x".join(map(str, s)) for s in (shape, one.shape)]
            raise InputError(
                str(file), f"a picture of {sizes[0]} as {files[0].name}", sizes[1], "resize the pictures"
            )
    flat = np.stack([p.ravel() for p in pixels])
    return Dataset(path.name, "all", flat, np.array(labels, np.int64), shape, len(names), 255.0, (), names)


def _read(file: Path) -> NDArray[np.uint8]:
    """Channels, height, width, in bytes."""
    return pixels_of(file, str(file), None)


def pixels_of(source: Path | IO[bytes], where: str, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """Channels, height, width, in bytes; resized (bilinear) where a size is given."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a bomb of pixels is a warning of the library
            with Image.open(source) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise ValueError(f"{image.width} x {image.height} pixels")
                if image.mode[0] in "IF":  # which the library cuts off at 255
                    raise ValueError(
                        f"more than 8 bits a pixel (mode {image.mode}); convert it, or give arrays"
                    )
                grey = image.mode in ("1", "L", "LA")
                plain = image.convert("L" if grey else "RGB")
                sized = plain if size is None else plain.resize(size, Image.Resampling.BILINEAR)
                values: NDArray[Any] = np.asarray(sized, np.uint8)
    except Exception as error:  # a damaged file may raise anything
        got = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(where, "a picture", got, "is the file damaged?") from None
    return values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0).copy()
