"""Attacks that look at one network at a time: the uniform attacker and the best deterministic attacker."""

from __future__ import annotations

from fractions import Fraction

from .attack import AttackResult, DeterministicAttack, Method, judge_value, realised_value
from .lattice import SetStatus
from .survey import Survey


def baseline(survey: Survey, alpha: Fraction | None, method: Method) -> AttackResult:
    """For every network an attack that fools it wherever it can be fooled; mixed uniformly, or the best one.

    They are attacks, so they bound the value from below only.
    """
    count = len(survey.networks)
    singles = [single_attack(survey, c) for c in range(count)]
    if method is Method.UNIFORM:
        share = Fraction(1, count)
        attacks = tuple(DeterministicAttack(share, a.points, a.patterns) for a in singles)
    else:
        attacks = (max(singles, key=lambda a: realised_value([a], count)),)
    value = realised_value(attacks, count)
    one = Fraction(1)
    weights = tuple(Fraction(1, count) for _ in range(count))
    verdict = judge_value(value, one + 1, alpha)
    reason = "" if value >= (alpha or 0) else "an attack on single networks proves no robustness"
    return AttackResult(method, verdict, value, one, attacks, weights, reason)


def single_attack(survey: Survey, network: int) -> DeterministicAttack:
    """The best attack on one network; where it cannot be fooled, the point itself."""
    mask = 1 << network
    questions = [(j, mask) for j in range(len(survey.spots))]
    survey.look()
    survey.decide(questions)
    points, patterns = [], []
    for j in range(len(survey.spots)):
        lattice = survey.lattices[j]
        if lattice.status(mask) is SetStatus.SAT:
            # of all known points that fool it, the one that fools the fewest others: nobody looked at them
            pattern = min((p for p in lattice.fooled if p & mask), key=lambda p: p.bit_count())
            x = lattice.fooled[pattern]
        else:
            pattern, x = survey.clean(j)
        points.append(x)
        patterns.append(pattern)
    return DeterministicAttack(Fraction(1), tuple(points), tuple(patterns))
