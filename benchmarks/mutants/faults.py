"""Seeded faults: errors of kinds that have been made; the tests of `make test` must fail on each of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """`before` occurs once in the file; with `after` in its place, something is wrong."""

    name: str
    file: str
    before: str
    after: str

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.file}|{self.before}|{self.after}".encode()).hexdigest()[:12]


FAULTS = (
    Fault(
        "column order: the live neurons of a box are taken in another order",
        "plugins/crown/propagate/tables.py",
        "return (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]",
        "return (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :count].flip(1)",
    ),
    Fault(
        "sign of a slope: positive rows take the upper line",
        "plugins/crown/propagate/program.py",
        "    low_side = rows > 0\n",
        "    low_side = rows < 0\n",
    ),
    Fault(
        "the rounding error of the layers is not charged",
        "plugins/crown/propagate/program.py",
        "return BackwardRows(first, constant, charge + state.underflow())",
        "return BackwardRows(first, constant, state.underflow())",
    ),
    Fault(
        "the rounding error of the input box is not charged",
        "plugins/crown/propagate/region.py",
        "reach = radius + error * (centre.abs() + radius)",
        "reach = radius",
    ),
    Fault(
        "the chord of a ReLU is not lifted for rounding",
        "plugins/crown/propagate/relax/relu.py",
        "lift = slope * (unit * 4 * (high - low) - low) + tiny",
        "lift = slope * -low",
    ),
    Fault(
        "wrong dual norm: an L1 ball with the sum of the coefficients",
        "plugins/crown/propagate/region.py",
        "dual = rows.abs().amax(2)",
        "dual = rows.abs().amax(2) / 2",
    ),
    Fault(
        "swapped pads: the matrix of a convolution begins at the left pad",
        "core/graph/matrix.py",
        "at_h = np.arange(coarse[1]) * op.stride[0] + u * op.dilation[0] - op.pads[0]",
        "at_h = np.arange(coarse[1]) * op.stride[0] + u * op.dilation[0] - op.pads[2]",
    ),
    Fault(
        "lost disjunct: one problem per disjunct but the last",
        "core/reductions/reduction.py",
        "return tuple(replace(problem, disjuncts=(rows,)) for rows in problem.disjuncts)",
        "return tuple(replace(problem, disjuncts=(rows,)) for rows in problem.disjuncts[:-1])",
    ),
    Fault(
        "a reduction narrows a ball's box to less than the ball",
        "core/reductions/reduction.py",
        "    low = np.nextafter(ball.centre - ball.radius, -np.inf)\n",
        "    low = np.nextafter(ball.centre - ball.radius / 2, -np.inf)\n",
    ),
    Fault(
        "a reduction drops the row that keeps the distance below the radius",
        "core/reductions/reduction.py",
        "disjuncts = tuple(join_rows(rows, limit) for rows in problem.disjuncts)",
        "disjuncts = problem.disjuncts",
    ),
    Fault(
        "stale evidence: bounds are offered to larger sets",
        "core/plugin/evidence.py",
        "            and problem.domain.within(self.domain)\n",
        "            and self.domain.within(problem.domain)\n",
    ),
    Fault(
        "evidence under assumptions is offered to everybody",
        "core/plugin/evidence.py",
        'return self.condition in ("", problem.condition_sha256) and self.splits <= splits',
        "return self.splits <= splits",
    ),
    Fault(
        "evidence: two bounds meet in the looser one's upper side",
        "core/plugin/evidence.py",
        "upper=_tighter(np.minimum, self.upper, other.upper)",
        "upper=_tighter(np.minimum, self.upper, other.lower)",
    ),
    Fault(
        "evidence: bounds of other tools enter",
        "core/plugin/evidence.py",
        "        if bounds.foreign:\n            return\n",
        "",
    ),
    Fault(
        "evidence: intervals for the root are cast inward",
        "plugins/crown/search/root.py",
        "down, up = program.space.down, program.space.up",
        "down, up = program.space.up, program.space.down",
    ),
    Fault(
        "evidence: what it assumes is forgotten by what follows from it",
        "plugins/crown/search/root.py",
        'lower, upper, None, assumptions, "crown")',
        'lower, upper, None, Assumptions(), "crown")',
    ),
    Fault(
        "evidence: the kernel takes inactive neurons for active ones",
        "plugins/crown/kernel/boxes.py",
        "phase[known.upper[read] <= 0] = -1",
        "phase[known.upper[read] <= 0] = 1",
    ),
    Fault(
        "wrong strictness: a strict row holds with equality",
        "vnnlib/check.py",
        "margin > 0 or (margin == 0 and not strict) for margin, strict in zip(result",
        "margin > 0 or (margin == 0) for margin, strict in zip(result",
    ),
    Fault(
        "the referee does not move a point into the box",
        "core/trust/referee.py",
        "rounded: Float32 = np.clip(moved.astype(np.float32), lower, upper)",
        "rounded: Float32 = moved.astype(np.float32)",
    ),
    Fault(
        "the referee takes a doubt for a confirmation",
        "core/trust/referee.py",
        "    if bool((margin > slack).all()):\n",
        "    if bool((margin > -slack).all()):\n",
    ),
    Fault(
        "knowledge reversed: a proof covers every larger set",
        "core/trust/knowledge.py",
        "if region.within(p.region)), None)",
        "if p.region.within(region)), None)",
    ),
    Fault(
        "a claimed proof against a witness goes unnoticed",
        "core/trust/conflict.py",
        "return contradict(query, answer, sat.witness, against) if against else answer",
        "return answer",
    ),
    Fault(
        "kernel: negative coefficients take the lower end of the box",
        "plugins/crown/kernel/_boxes.c",
        "double term = coef[i] > 0 ? coef[i] * lo[i] : coef[i] * hi[i];",
        "double term = coef[i] > 0 ? coef[i] * lo[i] : coef[i] * lo[i];",
    ),
    Fault(
        "kernel: the noise of a neuron is not charged",
        "plugins/crown/kernel/_boxes.c",
        "    *error += fabs(c) * net->noise[id];\n",
        "",
    ),
    Fault(
        "float32: bounds are rounded inward",
        "plugins/crown/propagate/layers.py",
        "wrong = cast.double() > exact if towards < 0 else cast.double() < exact",
        "wrong = cast.double() < exact if towards < 0 else cast.double() > exact",
    ),
    Fault(
        "the enclosure of a point has no rounding error",
        "core/graph/enclosure.py",
        "error = error * (1 + gamma(terms)) + gamma(terms) * magnitude + TINY",
        "error = error * (1 + gamma(terms))",
    ),
    Fault(
        "the errors of stored weights are left out",
        "core/graph/enclosure.py",
        "        slack = slack + weight_error @ magnitude\n",
        "        slack = slack + 0.0 * (weight_error @ magnitude)\n",
    ),
    Fault(
        "wrong big-M side: the upper bound where the lower belongs",
        "core/encode/rows.py",
        "builder.add_rows([(one, columns), (diagonal(-high), phase)], none, np.zeros(count))",
        "builder.add_rows([(one, columns), (diagonal(np.maximum(low, -high)), phase)], none, np.zeros(count))",
    ),
    Fault(
        "quadratic kernel: what makes a form convex is not taken off again",
        "plugins/crown/kernel/polynomials.h",
        "value -= s->t[i] * along + fabs(s->grad[i]) + s->gap[i];",
        "value -= s->t[i] * along + fabs(s->grad[i]);",
    ),
    Fault(
        "quadratic kernel: the form of an unstable ReLU has half its width",
        "plugins/crown/kernel/polynomials.h",
        "coef[s->count++] = half * (1 + 16 * UNIT);",
        "coef[s->count++] = half * 0.5;",
    ),
    Fault(
        "quadratic kernel: products of unequal factors count as squares",
        "plugins/crown/kernel/blocks.py",
        "np.where(same | one_parent, EQUAL_FACTOR, FACTOR)",
        "np.where(same | ~same, EQUAL_FACTOR, FACTOR)",
    ),
    Fault(
        "windows: pixels of the padding count as pixels of the image",
        "plugins/crown/propagate/patches.py",
        "made * self._inside(_image(self.images.shape[parent]), window, walk))]",
        "made)]",
    ),
    Fault(
        "windows: a place's window begins at another pixel",
        "plugins/crown/propagate/patches.py",
        "return self.corner * stride + start",
        "return self.corner * stride - start",
    ),
    Fault(
        "windows: the noise of a node is not charged",
        "plugins/crown/propagate/patches.py",
        "walk.add(None, dot(flat.abs(), self._cut(node, self.state.noise[node], current.window, walk)))",
        "pass",
    ),
    Fault(
        "batches of regions: one disjunct out of reach is enough",
        "plugins/crown/search/inputs/regions.py",
        "proved[i] = all(bool((m > 0).any()) for m in margins)",
        "proved[i] = any(bool((m > 0).any()) for m in margins)",
    ),
    Fault(
        "batches of regions: margins are handed to the wrong regions",
        "plugins/crown/search/inputs/regions.py",
        "for i, margins in zip(part, row_margins(program, state, batch), strict=True):",
        "for i, margins in zip(part[::-1], row_margins(program, state, batch), strict=True):",
    ),
    Fault(
        "levels of quantised inputs are taken in the wrong order",
        "plugins/crown/search/cells.py",
        "return Switch(node, entry, column, np.array(levels)[met], places, exact)",
        "return Switch(node, entry, column, np.array(levels)[met][::-1], places, exact)",
    ),
    Fault(
        "a step in single precision has no drift",
        "core/graph/single.py",
        "return self.low - self.drift, self.high + self.drift",
        "return self.low, self.high",
    ),
    Fault(
        "envelopes: slopes are taken as they come",
        "plugins/crown/reduce/envelope.py",
        "alpha, slopes = alpha.clamp(0, 1), slopes.clamp(0, 1)",
        "alpha, slopes = alpha, slopes",
    ),
    Fault(
        "envelopes: a line is lifted to one of its two ends only",
        "plugins/crown/reduce/envelope.py",
        "        lift = torch.maximum(\n            self._most(-tilted)",
        "        lift = torch.minimum(\n            self._most(-tilted)",
    ),
    Fault(
        "checker: the errors of weights are not counted",
        "checker/verifolio_check/bounds.py",
        "raw + (linear.error * down)[:, None], spread,",
        "raw, 0 * spread,",
    ),
    Fault(
        "checker: what rounding takes away from coefficients is not counted",
        "checker/verifolio_check/bounds.py",
        "return -floor_shift(-width, r) + (r > 0)",
        "return floor_shift(width, r)",
    ),
    Fault(
        "checker: a row takes the upper end of the box",
        "checker/verifolio_check/bounds.py",
        "self.grow(np.minimum(*ends).sum(1), exponent + self.model.scale[0])",
        "self.grow(np.maximum(*ends).sum(1), exponent + self.model.scale[0])",
    ),
    Fault(
        "the kernel charges its noise for fewer additions than there are",
        "plugins/crown/kernel/blocks.py",
        "gamma = 1.05 * (features + 2 * sum(map(len, kinds)) + 64) * UNIT",
        "gamma = 1.05 * (features + 64) * UNIT",
    ),
    Fault(
        "a bound of minus infinity becomes a number",
        "plugins/crown/propagate/region.py",
        "return torch.where(bound.isfinite(), bound, torch.full_like(bound, -torch.inf))",
        "return bound.nan_to_num(nan=-torch.inf)",
    ),
    Fault(
        "exact numbers are rounded inward",
        "vnnlib/exact.py",
        "self.below[position] = math.nextafter(double, -math.inf)",
        "self.below[position] = double",
    ),
    Fault(
        "fixed inputs: what rounding leaves of a node is not charged",
        "plugins/crown/reduce/fixed_walk.py",
        "reserve = ROOM * (part.error + rounded)",
        "reserve = ROOM * rounded",
    ),
    Fault(
        "fixed inputs: terms that cancel in a sum charge nothing",
        "plugins/crown/reduce/fixed_walk.py",
        "error = error + gamma(len(before) + LIMB_SUM) * size",
        "error = error + 0.0 * size",
    ),
    Fault(
        "limbs: what is cut off a number is forgotten",
        "plugins/crown/propagate/limbs.py",
        "lost = sum(float(part.abs().max()) for part in made[most:] if part.numel())",
        "lost = 0.0",
    ),
    Fault(
        "limbs: what is left out of the later rows of a dense layer is forgotten",
        "plugins/crown/reduce/limb_layers.py",
        "lost = max(lost, missed + 1.01 * left * inputs * sum(base.largest()))",
        "lost = lost or missed",
    ),
    Fault(
        "windows of changes begin at another pixel",
        "plugins/crown/propagate/changes.py",
        "first = -((kernel[k] - 1 - pads[k] - at) // stride[k])  # rounded up",
        "first = -((kernel[k] - pads[k] - at) // stride[k])  # rounded up",
    ),
    Fault(
        "linearised: an error moves half as far as the function may lie off",
        "plugins/crown/reduce/linearised.py",
        "weight = Csr((piece.radius[own], (own, column))",
        "weight = Csr((piece.radius[own] / 2, (own, column))",
    ),
    Fault(
        "linearised: errors without a number of their own are dropped",
        "plugins/crown/reduce/linearised.py",
        "        rest[own] = 0.0\n",
        "        rest[:] = 0.0\n",
    ),
    Fault(
        "linearised: the rounding of weights times slopes is not charged",
        "plugins/crown/reduce/linearised.py",
        "radius = (abs(weight) @ band.radius + charge * spread) * (1 + charge) + 1e-300",
        "radius = abs(weight) @ band.radius",
    ),
    Fault(
        "signs: a negative factor of a sum keeps values from being negative",
        "plugins/crown/propagate/signs.py",
        "known &= zero | mine if factor >= 0 else zero",
        "known &= zero | mine",
    ),
    Fault(
        "assumptions: negative weights assume that the goal is not violated",
        "plugins/crown/search/neurons/assume.py",
        "found.weight.to(kind).clamp(min=0)",
        "found.weight.to(kind)",
    ),
    Fault(
        "assumptions: the right-hand side of the violated row is left out",
        "plugins/crown/search/values/assume.py",
        "return (bound - given - 4 * program.space.unit * (given.abs() + bound.abs()))[0]",
        "return (bound - 4 * program.space.unit * (given.abs() + bound.abs()))[0]",
    ),
    Fault(
        "kept neurons: the error of a layer's forms is lost on the way back",
        "plugins/crown/reduce/kept.py",
        "self.lost = self.lost + weight @ layer.forms.error",
        "self.lost = self.lost + 0.0 * (weight @ layer.forms.error)",
    ),
)


def stale(root: Path) -> list[str]:
    """Faults whose text no longer occurs exactly once in their file: they need another place."""
    found = []
    for fault in FAULTS:
        path = root / fault.file
        count = path.read_text(encoding="utf-8").count(fault.before) if path.is_file() else 0
        if count != 1:
            found.append(f"{fault.file}: {fault.name}: found {count} times")
    return found
