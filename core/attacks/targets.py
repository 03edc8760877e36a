"""Problems as tensors: one target per disjunct, rows padded to one size, boxes rounded inward to float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verifolio.model.problem import Domain, Problem
from verifolio.vnnlib import Rows

Array = NDArray[np.float64]
NEVER_BINDING = 1e30  # right side of rows that only fill a batch; far below float32's largest number
MAX_INPUT_ENTRIES = 200_000_000  # of dense input rows: 800 MB in float32


@dataclass(frozen=True, eq=False)
class Targets:
    """A batch of T goals on one network: reach, inside a box (and a ball), rows that all hold at once.

    `owner` (T) is the problem a goal belongs to. `lower`, `upper` are (T, n). The rows are
    `output_rows` (T, R, m) and `input_rows` (T, R, n; None where no row mentions inputs), with `rhs` and
    `strict` (T, R); a problem's own rows over inputs are appended to each of its disjuncts. `scale` (T, R)
    makes rows comparable. `centre` (T, n) and `radius` (T) describe balls of one `norm` (0: none).
    """

    owner: Tensor
    lower: Tensor
    upper: Tensor
    output_rows: Tensor
    rhs: Tensor
    strict: Tensor
    scale: Tensor
    input_rows: Tensor | None = None
    centre: Tensor | None = None
    radius: Tensor | None = None
    norm: float = 0.0

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def width(self) -> Tensor:
        return self.upper - self.lower

    def take(self, index: Tensor) -> Targets:
        """The goals at these positions."""
        return self._mapped(lambda v: v[index])

    def to(self, device: str, dtype: torch.dtype) -> Targets:
        return self._mapped(lambda v: v.to(device, dtype if v.is_floating_point() else v.dtype))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Targets:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        changed: dict[str, Any] = {k: change(v) for k, v in parts.items() if isinstance(v, Tensor)}
        return replace(self, **changed)

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        """(row - rhs) / scale of every row at inputs (T, S, n) with outputs (T, S, m): (T, S, R)."""
        left = torch.bmm(y, self.output_rows.transpose(1, 2))
        if self.input_rows is not None:
            left = left + torch.bmm(x, self.input_rows.transpose(1, 2))
        return (left - self.rhs[:, None]) / self.scale[:, None]

    def reached(self, values: Tensor) -> Tensor:
        """Whether all rows hold, (T, S): equality is enough unless a row is strict."""
        return ((values < 0) | ((values <= 0) & ~self.strict[:, None])).all(-1)


def make_targets(problems: Sequence[Problem]) -> Targets:
    """All disjuncts of problems that share a graph and the norm of their balls."""
    pairs = [(k, _joined(p, d)) for k, p in enumerate(problems) for d in p.disjuncts]
    owner = torch.tensor([k for k, _ in pairs], dtype=torch.int64)
    boxes = [inner_box(p.domain) for p in problems]
    lower = torch.from_numpy(np.stack([low for low, _ in boxes]))[owner]
    upper = torch.from_numpy(np.stack([high for _, high in boxes]))[owner]
    n, m = problems[0].graph.input_size, problems[0].graph.output_size
    inputs, outputs, rhs, strict = _padded([rows for _, rows in pairs], n, m)
    targets = Targets(owner, lower, upper, outputs, rhs, strict, torch.ones_like(rhs), inputs)
    balls = [p.domain.ball for p in problems]
    found = [b for b in balls if b is not None and not math.isinf(b.norm)]
    if not found:
        return targets
    centre = np.stack([np.zeros(n) if b is None else b.centre for b in balls]).astype(np.float32)
    radius = [math.inf if b is None or math.isinf(b.norm) else b.radius for b in balls]
    return replace(
        targets,
        centre=torch.from_numpy(centre)[owner],
        radius=torch.tensor(radius, dtype=torch.float32)[owner],
        norm=found[0].norm,
    )


def inner_box(domain: Domain) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The float32 box inside the domain's box and the bounding box of its ball.

    Where an interval holds no float32, both ends are the float32 nearest to its middle.
    """
    lower, upper = domain.lower, domain.upper
    if domain.ball is not None:
        lower = np.maximum(lower, domain.ball.centre - domain.ball.radius)
        upper = np.minimum(upper, domain.ball.centre + domain.ball.radius)
    low, high = _up32(lower), -_up32(-upper)
    middle = (lower / 2 + upper / 2).astype(np.float32)
    return np.where(low > high, middle, low), np.where(low > high, middle, high)


def _up32(values: Array) -> NDArray[np.float32]:
    """The smallest float32 not below each value."""
    largest = np.finfo(np.float32).max
    near = np.clip(values, -largest, largest).astype(np.float32)
    up = np.nextafter(near, np.float32(np.inf))
    return np.asarray(np.where(near.astype(np.float64) < values, up, near), np.float32)


@dataclass(frozen=True, eq=False)
class _Plain:
    """Rows as triples and right-hand sides, without their exact form."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    coefficient: Array
    rhs: Array
    strict: NDArray[np.bool_]


def _joined(problem: Problem, disjunct: Rows) -> _Plain:
    """A disjunct's rows followed by the rows of the input set."""
    parts = [disjunct] if problem.domain.rows is None else [disjunct, problem.domain.rows]
    shifts = np.cumsum([0, *(p.count for p in parts[:-1])])
    return _Plain(
        np.concatenate([p.row + s for p, s in zip(parts, shifts, strict=True)]),
        np.concatenate([p.column for p in parts]),
        np.concatenate([p.coefficient for p in parts]),
        np.concatenate([p.rhs for p in parts]),
        np.concatenate([p.strict for p in parts]),
    )


def _padded(rows: list[_Plain], n: int, m: int) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
    """Dense (input part, output part, rhs, strict) of shape (T, R, ...); missing rows never bind."""
    count = max(1, max((len(r.rhs) for r in rows), default=1))
    outputs = np.zeros((len(rows), count, m), np.float32)
    rhs = np.full((len(rows), count), NEVER_BINDING, np.float32)
    strict = np.zeros((len(rows), count), bool)
    mixed = any(bool((r.column < n).any()) for r in rows)
    inputs = np.zeros((len(rows), count, n), np.float32) if mixed else None
    for t, r in enumerate(rows):
        is_output = r.column >= n
        outputs[t, r.row[is_output], r.column[is_output] - n] = r.coefficient[is_output]
        if inputs is not None:
            inputs[t, r.row[~is_output], r.column[~is_output]] = r.coefficient[~is_output]
        rhs[t, : len(r.rhs)] = r.rhs
        strict[t, : len(r.rhs)] = r.strict
    dense = None if inputs is None else torch.from_numpy(inputs)
    return dense, torch.from_numpy(outputs), torch.from_numpy(rhs), torch.from_numpy(strict)


def input_entries(problem: Problem) -> int:
    """How many numbers the dense input part of a problem's rows would take."""
    own = problem.domain.rows
    extra = 0 if own is None else own.count
    if not extra and not problem.mixes_inputs:
        return 0
    rows = max((d.count for d in problem.disjuncts), default=0) + extra
    return len(problem.disjuncts) * rows * problem.domain.size
