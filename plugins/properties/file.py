"""A property that a VNN-LIB file states: its own region, its own condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from verifolio.errors import InputError
from verifolio.model.problem import Ball, dense_rows
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.property import Array, Points, Property, Reference
from verifolio.vnnlib import Case, Rows, Specification, load

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FileOptions:
    """`path` of the VNN-LIB file."""

    path: str = ""


class Vnnlib(Property):
    """No point of the file's input set satisfies the file's condition; the reference's radius is not used."""

    name: ClassVar[str] = "vnnlib"
    Options: ClassVar[type] = FileOptions
    growth_reason = "its input set is the file's, whatever the radius"

    @property
    def key(self) -> str:
        return f"vnnlib {self.specification.sha256}"

    @cached_property
    def specification(self) -> Specification:
        path = Path(self.options.path)
        if not self.options.path or not path.is_file():
            got = f"no file {self.options.path!r}"
            raise InputError("option path", "a VNN-LIB file", got, "--option path=FILE")
        return load(path)

    def region(self, reference: Reference) -> tuple[Array, Array]:
        """The box around all of the file's input regions."""
        cases = self.specification.cases
        lower, upper = np.stack([c.lower for c in cases]), np.stack([c.upper for c in cases])
        return lower.min(axis=0), upper.max(axis=0)

    def ball(self, reference: Reference) -> Ball | None:
        return None

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        path = self.options.path
        query = Query(tuple(networks), self.specification, name=path, labels={"property": self.name})
        if query.specification is not self.specification:  # points come in the network's order
            expected = "tensors declared in the order of the network's"
            raise InputError(path, expected, "another order", "reorder the declarations")
        return query

    def satisfied(self, points: Points) -> Tensor:
        import torch

        pairs = zip(points.x.detach().cpu().numpy(), points.y.detach().cpu().numpy(), strict=True)
        violated = [self.specification.check(x, y).holds for x, y in pairs]
        return ~torch.tensor(violated, device=points.y.device)

    def loss(self, points: Points) -> Tensor:
        """DL2 of the negated condition: every case must be left, and every disjunct have a row that fails."""
        import torch

        total = torch.zeros_like(points.y[:, 0])
        both = torch.cat([points.x, points.y], dim=1)
        for case in self.specification.cases:
            outside = self._outside(case, points.x)
            for rows in case.disjuncts:
                total = total + outside * self._fails(rows, both)
        return total

    def _outside(self, case: Case, x: Tensor) -> Tensor:
        """0 where x is outside the case's region, 1 inside."""
        import torch

        inside = [torch.tensor(bool(_inside(case, p)), device=x.device) for p in x.detach().cpu().numpy()]
        return torch.stack(inside).to(x)

    def _fails(self, rows: Rows, both: Tensor) -> Tensor:
        """The loss of "some row is above its right side" (or equal to it, where the row is strict)."""
        import torch

        from verifolio.properties.formula.evaluate import alternatives

        if not rows.count:
            return torch.ones_like(both[:, 0])
        matrix, _, rhs = dense_rows(rows, both.shape[1], 0)
        held = torch.tensor(rhs).to(both) - both @ torch.tensor(matrix).to(both).T
        tie = (held == 0) & ~torch.tensor(rows.strict, device=both.device)
        return alternatives(held.clamp_min(0) + tie)


def _inside(case: Case, x: Array) -> bool:
    from verifolio.vnnlib.check import row_margins

    lower, upper = case.inner
    if case.empty or bool((x < lower).any()) or bool((x > upper).any()):
        return False
    return row_margins(case.input_rows, np.asarray(x, np.float64))[1]
