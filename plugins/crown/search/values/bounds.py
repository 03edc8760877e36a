"""Proved bounds where the inputs of nonlinear functions lie in pieces of their intervals.

On a piece the lines are closer to the function, and its ends enter the bound with a multiplier: for z in [l, u] and
any m, min f(x) >= min (f(x) + m z) - max(m l, m u), as in beta-CROWN (Wang et al. 2021), where l or u is nought.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verifolio.plugins.crown.optimise.adam import Adam
from verifolio.plugins.crown.optimise.dual import BoundResult, Dual, start
from verifolio.plugins.crown.propagate.program import State
from verifolio.plugins.crown.propagate.region import proved
from verifolio.plugins.crown.search.root import Root
from verifolio.plugins.crown.search.values.pieces import Pieces, SplitColumns
from verifolio.run.budget import Budget

# A piece's lines start where its parent's ended and need small steps; its multipliers start at nought and need large
# ones. Choices; all values are sound.
ALPHA_RATE, MULTIPLIER_RATE, DECAY = 0.03, 0.2, 0.97
CANDIDATES = 8  # columns kept per piece, of which as many are tried as TRIAL_CHILDREN allow; a choice


@dataclass(frozen=True)
class Found:
    """The best margins (count,), of which row of the goal, and the variables that give them.

    `met` are the coefficients that this row arrived with at every function and at the input.
    """

    margin: Tensor
    row: Tensor
    alpha: Tensor
    multiplier: Tensor
    met: dict[int, Tensor]

    def pick(self, index: Tensor) -> Found:
        met = {i: r[index] for i, r in self.met.items()}
        return Found(self.margin[index], self.row[index], self.alpha[index], self.multiplier[index], met)

    def or_better(self, other: Found) -> Found:
        """The better of two, each by itself."""
        gained = other.margin > self.margin
        return Found(
            torch.where(gained, other.margin, self.margin),
            torch.where(gained, other.row, self.row),
            torch.where(gained[:, None], other.alpha, self.alpha),
            torch.where(gained[:, None], other.multiplier, self.multiplier),
            {i: torch.where(gained[:, None], other.met[i], r) for i, r in self.met.items()},
        )


class ValueBounds:
    """Proved bounds of pieces of one root's domain."""

    def __init__(self, root: Root, budget: Budget) -> None:
        self.root, self.budget = root, budget
        shares = start(root.program, root.state)
        self.columns = SplitColumns(root.program, root.state, shares)
        self._alpha = torch.cat([root.state.region.lower[:, :0], *self._stand_for(shares)], 1)

    def _stand_for(self, shares: dict[int, Tensor]) -> Iterator[Tensor]:
        for i, share in shares.items():
            rule = self.root.program.relaxations[i]
            ends = None if rule is None else rule.range(*self.root.state.inputs(self.root.program, i))
            yield share if ends is None else ends[0] + share * (ends[1] - ends[0])

    def first(self) -> Pieces:
        """The whole domain, for every open goal."""
        columns, count = self.columns, len(self.root.goal.rhs)
        low, high = (ends.expand(count, -1) for ends in (columns.low, columns.high))
        none = torch.full((count, CANDIDATES), -1, device=low.device)
        return Pieces(
            torch.arange(count, device=low.device),
            torch.zeros(count, dtype=torch.int64, device=low.device),
            low.new_full((count,), -torch.inf),
            low,
            high,
            self._alpha.expand(count, -1),
            torch.zeros_like(low),
            none,
            none.to(low.dtype),
            none.to(low.dtype),
        )

    def propagated(self, pieces: Pieces) -> tuple[Pieces, Tensor]:
        """See `SplitColumns.propagated`."""
        return self.columns.propagated(self.root.state, pieces)

    def evaluate(self, pieces: Pieces, alpha: Tensor, multiplier: Tensor) -> BoundResult:
        """One backward pass with the given variables; any are sound."""
        program, columns, whole = self.root.program, self.columns, self.root.state
        state, goal = columns.state(whole, pieces), self.root.goal.pick(pieces.goal)
        self.enclose(state, alpha)
        height = goal.rows.shape[1]
        cut = columns.cut(pieces)
        multiplier = torch.where(cut, multiplier, torch.zeros_like(multiplier))
        touched = {p for p, part in columns.by_node(cut).items() if bool(part.any())}
        extra = {
            p: part[:, None].expand(-1, height, -1)
            for p, part in columns.by_node(multiplier).items()
            if p in touched
        }
        if goal.inputs is not None:
            extra[0] = extra[0] + goal.inputs if 0 in extra else goal.inputs
        rows: dict[int, Tensor] = {}
        bound = program.lower(state, program.graph.output, goal.rows, extra or None, rows.__setitem__)
        ends = torch.maximum(multiplier * pieces.low, multiplier * pieces.high)
        ends = torch.where(cut, ends, torch.zeros_like(ends))
        lifted = ends.sum(1) + program.gamma(multiplier.shape[1]) * ends.abs().sum(1)
        lost = 4 * program.space.unit * (goal.rhs.abs() + lifted.abs()[:, None])
        margin = bound - lifted[:, None] - goal.rhs - lost
        return BoundResult(margin, Dual(), rows)

    def enclose(self, state: State, alpha: Tensor) -> None:
        """The lines that the variables (count, parameters), or (count, rows, parameters), stand for."""
        program, values = self.root.program, self.columns.lines(alpha)
        for i in program.nonlinear:
            rule = program.relaxations[i]
            if i in values and rule is not None:
                program.enclose(state, i, rule.lines_of(values[i], *state.inputs(program, i)))
            else:
                program.relax(state, i)

    @torch.no_grad()
    def ascend(self, pieces: Pieces, iterations: int, rate: float = ALPHA_RATE) -> Found:
        """Raise the bound of every piece by its variables; the best seen count."""
        least, most = self.columns.range(pieces)
        share = self.columns.shares(pieces, least, most).requires_grad_()
        multiplier = pieces.multiplier.clone().requires_grad_()
        adam = Adam(([share], rate), ([multiplier], MULTIPLIER_RATE))
        best, step = None, 0
        while True:
            with torch.enable_grad():
                alpha = least + share * (most - least)
                result = self.evaluate(pieces, alpha, multiplier)
                lead = proved(result.margin).amax(1)
                pull = torch.where((lead <= 0) & lead.isfinite(), lead, torch.zeros_like(lead)).sum()
            found = self._found(result, alpha, multiplier)
            best = found if best is None else best.or_better(found)
            step += 1
            over = step >= iterations or bool((best.margin > 0).all()) or self.budget.expired()
            if over or not pull.requires_grad:
                return best
            adam.step(torch.autograd.grad(pull, [share, multiplier], allow_unused=True), DECAY ** (step - 1))
            share.clamp_(0, 1)

    @staticmethod
    def _found(result: BoundResult, alpha: Tensor, multiplier: Tensor) -> Found:
        margin, row = proved(result.margin.detach()).max(1)
        every = torch.arange(len(row), device=row.device)
        met = {i: r.detach().expand(len(row), -1, -1)[every, row] for i, r in result.captured.items()}
        return Found(margin, row, alpha.detach().clone(), multiplier.detach().clone(), met)

    @torch.no_grad()
    def ranked(self, pieces: Pieces, found: Found) -> Pieces:
        """The pieces with their new bounds, variables and columns to cut."""
        saved = self.columns.savings(pieces, found.met)
        width = (pieces.high - pieces.low).nan_to_num(0.0, 0.0, 0.0)
        # where nothing is proved yet no line says what a cut may save; and there is no middle of an endless interval
        saved = torch.where(found.margin[:, None].isfinite(), saved, width)
        saved = torch.where(pieces.low.isfinite() & pieces.high.isfinite(), saved, torch.zeros_like(saved))
        best = saved.topk(min(CANDIDATES, saved.shape[1]), dim=1)
        branch = torch.where(best.values > 0, best.indices, torch.full_like(best.indices, -1))
        under, at = self.columns.middle(pieces, branch.clamp(min=0))
        return replace(
            pieces,
            row=found.row,
            bound=torch.fmax(found.margin, pieces.bound),
            alpha=found.alpha,
            multiplier=found.multiplier,
            branch=branch,
            at=at,
            under=under,
        )
