"""A counterexample as people read it: what was changed by how much, and what the network says."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LINES = 12  # changed features that are listed; more are counted
LEAST_SIDE = 2  # pixels of an image's shorter side


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input close to a given one that violates the property; ONNX Runtime has replayed it.

    `input` and `original` have the shape of the data; `distance` is in the units of epsilon. `label` and
    `prediction` are what the property wants and what the network says, as names where the classes have any.
    """

    index: int
    input: Array
    original: Array
    label: str
    prediction: str
    distance: float
    outputs: Array
    lower: Array
    upper: Array
    features: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Counterexample(index={self.index}, label={self.label}, prediction={self.prediction}, "
            f"distance={self.distance:.4g})"
        )

    @property
    def is_image(self) -> bool:
        """Whether it can be shown as a picture: one or three channels of at least two pixels each way."""
        return image_axes(self.input.shape) is not None

    @property
    def changes(self) -> dict[str, float]:
        """How far each changed feature was moved, the largest change (for its range) first."""
        moved = (self.input - self.original).ravel()
        room = np.maximum((self.upper - self.lower).ravel(), 1e-300)
        order = np.argsort(-np.abs(moved) / room, kind="stable")
        return {self.feature(k): float(moved[k]) for k in order if moved[k] != 0}

    def feature(self, position: int) -> str:
        """The name of a value: the feature's, or its place in the input."""
        if self.features:
            return self.features[position]
        place = np.unravel_index(position, self.input.shape)
        return f"x[{', '.join(str(int(i)) for i in place)}]"

    def text(self) -> str:
        """All of it in lines: changes, outputs, and what is violated."""
        before, after = self.original.ravel(), self.input.ravel()
        lower, upper = self.lower.ravel(), self.upper.ravel()
        place = {self.feature(k): k for k in range(before.size)}
        changes = self.changes
        lines = [
            f"input {self.index}: {self.label} becomes {self.prediction} at distance {self.distance:.4g}"
        ]
        shown = list(changes)[: 0 if self.is_image else LINES]
        width = max(map(len, shown), default=0)
        for name in shown:
            k = place[name]
            lines.append(
                f"  {name:{width}}  {before[k]:.6g} -> {after[k]:.6g}  ({changes[name]:+.4g}, "
                f"allowed {lower[k]:.6g} to {upper[k]:.6g})"
            )
        if len(changes) > len(shown):
            most = max((abs(v) for v in changes.values()), default=0.0)
            more = "" if self.is_image else "further "
            lines.append(f"  {len(changes) - len(shown)} {more}values change, by at most {most:.4g}")
        lines.append(f"  outputs: {', '.join(self._scores())}")
        return "\n".join(lines)

    def _scores(self) -> list[str]:
        """The outputs with the names of the classes, the highest first."""
        order = np.argsort(-self.outputs, kind="stable")[:5]
        names = self.classes if len(self.classes) == len(self.outputs) else ()
        found = [f"{names[k] if names else f'y[{k}]'} {self.outputs[k]:.5g}" for k in order]
        return [*found, "..."] if len(self.outputs) > len(order) else found

    def picture(self, path: str | Path | None = None) -> bytes:
        """A PNG, also written to a file: images and their difference, or changes as bars, with the outputs."""
        from verifolio.results.picture import draw

        data = draw(self)
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
        return data

    def _repr_html_(self) -> str:
        return f"<div>{self.html_picture()}<pre>{html.escape(self.text())}</pre></div>"

    def html_picture(self) -> str:
        """The picture inside a page."""
        data = base64.b64encode(self.picture()).decode()
        return f'<img alt="counterexample {self.index}" src="data:image/png;base64,{data}">'


def image_axes(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Height, width and channels of an image with channels first or none; None for anything else."""
    if len(shape) == 2:
        found = (shape[0], shape[1], 1)
    elif len(shape) == 3 and shape[0] in (1, 3):
        found = (shape[1], shape[2], shape[0])
    else:
        return None
    return found if min(found[:2]) >= LEAST_SIDE else None


def as_image(values: Array) -> Array:
    """An array (height, width) or (height, width, 3), as matplotlib shows it."""
    axes = image_axes(values.shape)
    if axes is None:
        raise TypeError("no image")
    height, width, channels = axes
    if channels == 1:
        return values.reshape(height, width)
    return np.moveaxis(values.reshape(3, height, width), 0, -1)


def png(figure: object) -> bytes:
    """A figure of matplotlib as a PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)  # type: ignore[attr-defined]
    return stream.getvalue()
