"""Errors of the kinds that have been made, planted one at a time: the tests of `make test` must fail on each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Planted:
    """`before` occurs once in the file; with `after` in its place, something is wrong."""

    name: str
    file: str
    before: str
    after: str


PLANTED = (
    Planted(
        "column order: the live neurons of a box are taken in another order",
        "plugins/crown/tables.py",
        "return (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]",
        "return (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :count].flip(1)",
    ),
    Planted(
        "sign of a slope: positive rows take the upper line",
        "plugins/crown/program.py",
        "    low_side = rows > 0\n",
        "    low_side = rows < 0\n",
    ),
    Planted(
        "the rounding error of the layers is not charged",
        "plugins/crown/program.py",
        "return Pushed(first, constant, charge + state.underflow())",
        "return Pushed(first, constant, state.underflow())",
    ),
    Planted(
        "the rounding error of the input box is not charged",
        "plugins/crown/region.py",
        "reach = radius + error * (centre.abs() + radius)",
        "reach = radius",
    ),
    Planted(
        "the chord of a ReLU is not lifted for rounding",
        "plugins/crown/relax/relu.py",
        "lift = slope * (unit * 4 * (high - low) - low) + tiny",
        "lift = slope * -low",
    ),
    Planted(
        "wrong dual norm: an L1 ball with the sum of the coefficients",
        "plugins/crown/region.py",
        "dual = rows.abs().amax(2)",
        "dual = rows.abs().amax(2) / 2",
    ),
    Planted(
        "swapped pads: the matrix of a convolution begins at the left pad",
        "core/graph/matrix.py",
        "at_h = np.arange(coarse[1]) * op.stride[0] + u * op.dilation[0] - op.pads[0]",
        "at_h = np.arange(coarse[1]) * op.stride[0] + u * op.dilation[0] - op.pads[2]",
    ),
    Planted(
        "lost disjunct: one problem per disjunct but the last",
        "core/reductions/reduction.py",
        "return tuple(replace(problem, disjuncts=(rows,)) for rows in problem.disjuncts)",
        "return tuple(replace(problem, disjuncts=(rows,)) for rows in problem.disjuncts[:-1])",
    ),
    Planted(
        "a reduction narrows a ball's box to less than the ball",
        "core/reductions/reduction.py",
        "    low = np.nextafter(ball.centre - ball.radius, -np.inf)\n",
        "    low = np.nextafter(ball.centre - ball.radius / 2, -np.inf)\n",
    ),
    Planted(
        "a reduction drops the row that keeps the distance below the radius",
        "core/reductions/reduction.py",
        "disjuncts = tuple(join_rows(rows, limit) for rows in problem.disjuncts)",
        "disjuncts = problem.disjuncts",
    ),
    Planted(
        "stale evidence: bounds are offered to larger sets",
        "core/plugin/evidence.py",
        "            and problem.domain.within(self.domain)\n",
        "            and self.domain.within(problem.domain)\n",
    ),
    Planted(
        "evidence under assumptions is offered to everybody",
        "core/plugin/evidence.py",
        'return self.condition in ("", problem.condition_sha256) and self.splits <= splits',
        "return self.splits <= splits",
    ),
    Planted(
        "evidence: two bounds meet in the looser one's upper side",
        "core/plugin/evidence.py",
        "upper=_tighter(np.minimum, self.upper, other.upper)",
        "upper=_tighter(np.minimum, self.upper, other.lower)",
    ),
    Planted(
        "wrong strictness: a strict row holds with equality",
        "vnnlib/check.py",
        "margin > 0 or (margin == 0 and not strict) for margin, strict in zip(result",
        "margin > 0 or (margin == 0) for margin, strict in zip(result",
    ),
    Planted(
        "the referee does not move a point into the box",
        "core/trust/referee.py",
        "rounded: Float32 = np.clip(moved.astype(np.float32), lower, upper)",
        "rounded: Float32 = moved.astype(np.float32)",
    ),
    Planted(
        "the referee takes a doubt for a confirmation",
        "core/trust/referee.py",
        "    if bool((margin > slack).all()):\n",
        "    if bool((margin > -slack).all()):\n",
    ),
    Planted(
        "knowledge reversed: a proof covers every larger set",
        "core/trust/knowledge.py",
        "if region.within(p.region)), None)",
        "if p.region.within(region)), None)",
    ),
    Planted(
        "a claimed proof against a witness goes unnoticed",
        "core/trust/conflict.py",
        "return contradict(query, answer, sat.witness, against) if against else answer",
        "return answer",
    ),
    Planted(
        "kernel: negative coefficients take the lower end of the box",
        "plugins/crown/_boxes.c",
        "double term = coef[i] > 0 ? coef[i] * lo[i] : coef[i] * hi[i];",
        "double term = coef[i] > 0 ? coef[i] * lo[i] : coef[i] * lo[i];",
    ),
    Planted(
        "kernel: the noise of a neuron is not charged",
        "plugins/crown/_boxes.c",
        "            *error += fabs(c) * net->noise[id];\n",
        "",
    ),
    Planted(
        "float32: bounds are rounded inward",
        "plugins/crown/layers.py",
        "wrong = cast.double() > exact if towards < 0 else cast.double() < exact",
        "wrong = cast.double() < exact if towards < 0 else cast.double() > exact",
    ),
    Planted(
        "the enclosure of a point has no rounding error",
        "core/graph/enclosure.py",
        "error = error * (1 + gamma(terms)) + gamma(terms) * magnitude + TINY",
        "error = error * (1 + gamma(terms))",
    ),
    Planted(
        "the errors of stored weights are left out",
        "core/graph/enclosure.py",
        "        slack = slack + weight_error @ magnitude\n",
        "        slack = slack + 0.0 * (weight_error @ magnitude)\n",
    ),
    Planted(
        "wrong big-M side: the upper bound where the lower belongs",
        "core/encode/rows.py",
        "builder.add_rows([(one, columns), (diagonal(-high), phase)], none, np.zeros(count))",
        "builder.add_rows([(one, columns), (diagonal(np.maximum(low, -high)), phase)], none, np.zeros(count))",
    ),
    Planted(
        "exact numbers are rounded inward",
        "vnnlib/exact.py",
        "self.below[position] = math.nextafter(double, -math.inf)",
        "self.below[position] = double",
    ),
)


def stale(root: Path) -> list[str]:
    """Planted errors whose text no longer occurs exactly once in their file: they need another place."""
    found = []
    for error in PLANTED:
        path = root / error.file
        count = path.read_text(encoding="utf-8").count(error.before) if path.is_file() else 0
        if count != 1:
            found.append(f"{error.file}: {error.name}: found {count} times")
    return found
