"""The exact game by decomposition: ask only about sets of networks that the optimistic game would use."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verifolio.plugin.estimator import Progress

from .attack import AttackResult, DeterministicAttack, Method, Outcome, judge_value
from .game import Game, Shares, lay_out, solve
from .lattice import Status, bits, members
from .survey import Question, Survey

ROUND = 16  # questions for the oracle between two looks at the game
FEW = 50  # so many subsets in all: they are attacked together with the sets themselves
SMALL = 5  # so many networks: all subsets are attacked, else singles and pairs


def decompose(survey: Survey, alpha: Fraction | None, exact: bool, progress: Progress) -> AttackResult:
    """Tighten [lower, upper] until it is decided, or nothing is left to ask.

    Lower: the game over the sets known to be fooled. Upper: over all sets not known to be safe. The questions
    come from the game over sets that are neither safe nor asked in vain.
    """
    count = len(survey.networks)
    survey.look()
    _bound_networks(survey)
    while True:
        low = solve([x.lower_family() for x in survey.lattices], count)
        high = solve([x.upper_family() for x in survey.lattices], count)
        verdict = judge_value(low.lower, high.upper, alpha)
        progress(0, 0, f"value in [{float(low.lower):.4g}, {float(high.upper):.4g}]")
        settled = low.lower == high.upper or (verdict is not Outcome.UNKNOWN and not exact)
        if settled or survey.stop():
            break
        vain = any(x.unknown for x in survey.lattices)
        hopeful = solve([x.hopeful_family() for x in survey.lattices], count) if vain else high
        questions = _support(survey, hopeful)
        if not questions:
            break
        _advance(survey, questions)
    reason = _reason(survey, low, high, verdict)
    return AttackResult(
        Method.DECOMPOSITION,
        verdict,
        low.lower,
        high.upper,
        realise(survey, low.shares),
        high.weights,
        reason,
    )


def _bound_networks(survey: Survey) -> None:
    """Bounds of one network after the other, until one is safe everywhere: then no attack is worth anything."""
    places = range(len(survey.spots))
    errors = [sum(survey.clean(j)[0] >> c & 1 for j in places) for c in range(len(survey.networks))]
    for c in sorted(range(len(errors)), key=lambda c: errors[c]):
        survey.bound([(j, 1 << c) for j in places])
        if all(survey.status(j, 1 << c) is Status.UNSAT for j in places):
            return


def _support(survey: Survey, game: Game) -> list[Question]:
    """The open sets that a solution plays."""
    return [
        (j, mask)
        for j, share in enumerate(game.shares)
        for mask in share
        if survey.status(j, mask) is Status.OPEN
    ]


def _advance(survey: Survey, questions: Sequence[Question]) -> None:
    """Attacks and bounds for all of them; then the oracle, each about the smallest set that may be safe."""
    parts = sorted({(j, part) for j, mask in questions for part in _parts(mask)})
    if len(parts) <= FEW:
        survey.attack([*questions, *parts])
    else:
        survey.attack(questions)
        survey.attack([q for q in parts if _below(q, survey.open(questions))])
    survey.bound(questions)
    ranks = _ranks(survey)
    asked = {(j, _smallest_open(survey, j, mask, ranks)) for j, mask in survey.open(questions)}
    ordered = sorted(asked, key=lambda q: (q[1].bit_count(), q))
    survey.verify(ordered[:ROUND])


def _below(question: Question, above: Sequence[Question]) -> bool:
    j, part = question
    return any(j == i and part & ~mask == 0 for i, mask in above)


def _parts(mask: int) -> list[int]:
    """The proper subsets of a small set; the single networks and pairs of a large one."""
    if mask.bit_count() <= SMALL:
        found, part = [], (mask - 1) & mask
        while part:
            found.append(part)
            part = (part - 1) & mask
        return found
    ones = list(bits(mask))
    return ones + [a | b for a in ones for b in ones if a < b]


def _smallest_open(survey: Survey, spot: int, mask: int, ranks: Sequence[int]) -> int:
    """A smallest subset that is neither fooled nor safe: its proof is the easiest, and serves the most.

    Of several the one whose networks rank first, at every point alike: one network that is safe everywhere is
    enough of a proof.
    """
    parts = [p for p in [*_parts(mask), mask] if survey.status(spot, p) is Status.OPEN]
    return min(parts, key=lambda p: (p.bit_count(), sum(ranks[c] for c in members(p)), p))


def _ranks(survey: Survey) -> list[int]:
    """The places of the networks: those first that are fooled least, then those whose bounds fall short the least."""
    places, count = range(len(survey.spots)), len(survey.networks)
    fooled = [sum(survey.status(j, 1 << c) is Status.SAT for j in places) for c in range(count)]
    short = [sum(-min(survey.gaps.get((j, 1 << c), 0.0), 0.0) for j in places) for c in range(count)]
    order = sorted(range(count), key=lambda c: (fooled[c], short[c]))
    return [order.index(c) for c in range(count)]


def realise(survey: Survey, shares: Sequence[Shares]) -> tuple[DeterministicAttack, ...]:
    """Attacks with stored witnesses whose marginals are the shares."""
    found = []
    for play in lay_out(shares):
        points, patterns = [], []
        for j, mask in enumerate(play.sets):
            pattern, x = survey.lattices[j].witness(mask) if mask else survey.clean(j)
            points.append(x)
            patterns.append(pattern)
        found.append(DeterministicAttack(play.probability, tuple(points), tuple(patterns)))
    return tuple(found)


def _reason(survey: Survey, low: Game, high: Game, verdict: Outcome) -> str:
    if low.lower == high.upper or verdict is not Outcome.UNKNOWN:
        return ""
    if survey.stop():
        return "out of time"
    unknown = sum(len(x.unknown) for x in survey.lattices)
    return f"{unknown} questions without an answer"
