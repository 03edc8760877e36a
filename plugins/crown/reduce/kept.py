"""The unstable neurons of a box, layer after layer, each as an affine form over the inputs and the neurons before it.

    z_j = rows_j . (x, h) + bias_j +- error_j,    h = relu(z)

Stable neurons have no column: they are part of the forms. So a backward bound (CROWN; Zhang et al. 2018) is one dense
product per layer over the unstable neurons alone, in float64, whatever operators the network is made of.

Rounding. Replacing rows over a layer by rows over what it reads is exact up to gamma_n times the sum of the absolute
values of all terms (Higham 2002, section 3.1): |coefficients| times `size`, the largest sum of a form's terms. These
are added up on the way, and the bound is lowered by gamma times their total, with room for every addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from verifolio.graph.enclosure import TINY, gamma
from verifolio.plugins.crown.propagate.region import Region, proved
from verifolio.plugins.crown.propagate.relax.relu import ReluRelaxation
from verifolio.plugins.crown.worker_threads import WorkerThreads

# rows that go back together: 16 MB with 8000 columns; fewer make slower products, more leave threads without work
ROWS = 256
# part of the rows that must be settled before the others are copied to go on alone; a choice
SETTLED = 0.25


@dataclass(frozen=True)
class Forms:
    """Affine forms: rows (count, columns) over the inputs, then the neurons so far; bias and error (count,)."""

    rows: Tensor
    bias: Tensor
    error: Tensor

    def __len__(self) -> int:
        return len(self.bias)

    def pick(self, index: Tensor) -> Forms:
        return Forms(self.rows[index], self.bias[index], self.error[index])

    def opposite(self) -> Forms:
        return Forms(-self.rows, -self.bias, self.error)

    def combined(self, weights: Tensor, reach: Tensor) -> Forms:
        """Combinations (combinations, count) of the forms with non-negative weights."""
        rounded = gamma(len(self) + 2) * (weights @ self.size(reach))
        return Forms(weights @ self.rows, weights @ self.bias, 1.05 * (weights @ self.error + rounded) + TINY)

    def size(self, reach: Tensor) -> Tensor:
        """The largest sum of the absolute values of a form's terms, where columns are at most `reach`."""
        return self.rows.abs() @ reach[: self.rows.shape[1]] + self.bias.abs()


@dataclass(frozen=True)
class KeptLayer:
    """Unstable neurons of one layer. Their lines are lower * z <= h <= slope * z + lift."""

    forms: Forms
    low: Tensor
    high: Tensor
    lower: Tensor
    slope: Tensor
    lift: Tensor
    size: Tensor

    def __len__(self) -> int:
        return len(self.low)


@dataclass(frozen=True)
class Passed:
    """Lower bounds (count,), the rows over the inputs behind them, and those that met the neurons (count, kept)."""

    bound: Tensor
    inputs: Tensor
    met: Tensor

    def pick(self, index: Tensor) -> Passed:
        return Passed(self.bound[index], self.inputs[index], self.met[index])


class KeptNeurons:
    """The layers so far on one box. `reach`: the largest absolute value of every column."""

    def __init__(self, region: Region, cores: int = 1) -> None:
        self.region, self.cores = region, cores
        self.inputs = region.lower.shape[1]
        self.layers: list[KeptLayer] = []
        self.reach = torch.maximum(region.lower.abs(), region.upper.abs())[0]

    @property
    def count(self) -> int:
        return len(self.reach) - self.inputs

    def add(self, forms: Forms, low: Tensor, high: Tensor) -> None:
        """One more layer: neurons whose inputs have these forms and lie between low < 0 and high > 0."""
        lines = ReluRelaxation().lines(None, (low[None], high[None]))
        if lines.upper_bias is None:
            raise TypeError("the upper line of a ReLU has an intercept")
        slopes = lines.lower_slope[0][0], lines.upper_slope[0][0], lines.upper_bias[0]
        self.layers.append(KeptLayer(forms, low, high, *slopes, forms.size(self.reach)))
        self.reach = torch.cat([self.reach, high])

    def terms(self) -> int:
        """More roundings than any term of a bound passes: sums over all columns and steps, twice, and single ones."""
        return 2 * len(self.reach) + 8 * len(self.layers) + 64

    def ends(self, forms: Forms) -> tuple[Tensor, Tensor]:
        """Bounds (count,) from below and from above; only as good as it takes to show which phase is impossible."""
        high = -self._shared(forms.opposite())
        low = torch.full_like(high, -torch.inf)
        alive = (~(high <= 0)).nonzero()[:, 0]
        low[alive] = self._shared(forms.pick(alive))
        return low, high

    def _shared(self, forms: Forms) -> Tensor:
        found = torch.full_like(forms.bias, -torch.inf)
        waiting = list(torch.arange(len(forms)).split(ROWS)) if len(forms) else []

        def work(part: Tensor) -> bool:
            with torch.no_grad():  # every thread has its own setting
                found[part] = self._settle(forms.pick(part))
            return False

        WorkerThreads(self.cores, lambda: waiting.pop() if waiting else None, work).run()
        return proved(found)

    def _settle(self, forms: Forms) -> Tensor:
        """Lower bounds; a form that is positive by the intervals of the neurons on the way goes no further."""
        found = torch.full_like(forms.bias, -torch.inf)
        at = torch.arange(len(forms))
        for going in self._walk(forms):
            bound = going.rough()
            found[at] = torch.fmax(found[at], bound)
            left = (~(found[at] > 0)).nonzero()[:, 0]
            if len(left) <= (1 - SETTLED) * len(at):
                going.keep(left)
                at = at[left]
            if not len(at):
                break
        return found

    def lower(self, forms: Forms, slopes: Tensor | None = None) -> Passed:
        """Lower bounds of forms; `slopes` (count, kept): of their own lower lines, else the default ones."""
        met = [forms.rows[:, :0]]
        for going in self._walk(forms, slopes):
            met.insert(1, going.met)
        return Passed(going.rough(), going.rows[:, : self.inputs], torch.cat(met, 1))

    def _walk(self, forms: Forms, slopes: Tensor | None = None) -> Iterator[_Backward]:
        """The same forms over ever fewer columns: as they are, then layer by layer back to the inputs."""
        going = _Backward(self, forms)
        yield going
        stop = self.count
        for layer in reversed(self.layers):
            own = None if slopes is None else slopes[:, stop - len(layer) : stop].clamp(0, 1)
            going.step(layer, layer.lower if own is None else own)
            stop -= len(layer)
            yield going


class _Backward:
    """Rows on their way back: rows . (x, h) + constant - gamma total - lost lies below the forms."""

    def __init__(self, kept: KeptNeurons, forms: Forms) -> None:
        self.kept = kept
        self.rows, self.constant = forms.rows.clone(), forms.bias.clone()
        self.total, self.lost = forms.size(kept.reach), forms.error.clone()
        self.met = forms.rows[:, :0]

    def step(self, layer: KeptLayer, lower: Tensor) -> None:
        """Take the last layer's columns away."""
        start = self.rows.shape[1] - len(layer)
        self.met = self.rows[:, start:]
        below = self.met.clamp(max=0)
        inner = self.met * torch.where(self.met > 0, lower, layer.slope)
        weight = inner.abs()
        self.constant = self.constant + inner @ layer.forms.bias + below @ layer.lift
        self.total = self.total + weight @ layer.size - below @ layer.lift
        self.lost = self.lost + weight @ layer.forms.error
        self.rows = self.rows[:, :start].addmm_(inner, layer.forms.rows)

    def rough(self) -> Tensor:
        """The bound that the intervals of the columns give; without columns of neurons, that of the backward pass."""
        kept, n = self.kept, self.kept.inputs
        at_inputs = kept.region.minimise(self.rows[None, :, :n], kept.terms())[0]
        at_neurons = self.rows[:, n:].clamp(max=0) @ kept.reach[n : self.rows.shape[1]]
        # a twentieth more pays for the rounding of the totals and of what follows
        charge = 1.05 * (gamma(kept.terms()) * self.total + self.lost) + TINY * (1 + kept.reach.sum())
        bound = at_inputs + at_neurons + self.constant - charge
        return torch.where(bound == torch.inf, torch.full_like(bound, torch.nan), bound)

    def keep(self, index: Tensor) -> None:
        self.rows, self.constant = self.rows[index], self.constant[index]
        self.total, self.lost, self.met = self.total[index], self.lost[index], self.met[index]
