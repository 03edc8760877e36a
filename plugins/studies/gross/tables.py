"""Tables 1 to 6: the published value and time of every game beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..sources import published
from ..study import Judgement, Record, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown
from .games import HERE

# the ids that the excerpts in the paper's text have
EXCERPTS = {
    1: (2, 4, 7, 8, 9, 13, 14, 16, 17, 18, 19, 22, 26, 27),
    2: (1, 3, 7, 10, 14, 17, 20, 21, 24, 25, 28, 29),
    3: (3, 7, 8, 9, 10, 11, 14, 15, 16, 17, 18),
}
FULL = {1: 4, 2: 5, 3: 6}  # the table of the appendix that an excerpt is from
SECONDS = 10.0  # what an exact answer may take
NOTE = (
    "The networks are ours (the paper's are not public), trained on the same pairs of classes and sizes, so values "
    "are not expected to agree; radii are the paper's, in levels of a pixel; changed pixels may leave their range. "
    "Times are seconds, ours CPU time."
)


def row(tables: Tables, game: str, way: str) -> Record | None:
    found = tables.of("games", id=game, way=way)
    return found[0] if found else None


def value(found: Record | None) -> str:
    """The value of a game, or the interval it is in."""
    if found is None:
        return NOTHING
    low, high = Fraction(found["lower"]), Fraction(found["upper"])
    return str(low) if low == high or found["way"] != "decomposition" else f"{low} to {high}"


def answered(found: Record | None) -> str:
    """What a way said, and its time; an exact value stands beside the verdict, since that depends on alpha."""
    if found is None:
        return f"{NOTHING} | {NOTHING}"
    said = value(found)
    if found["way"] != "decomposition" and found["verdict"] == "unknown":
        said = f"none in {found['limit']} s"
    elif found["verdict"] == "robust":
        said = f"{said}, robust" if found["way"] == "decomposition" else "robust"
    return f"{said} | {float(found['cpu']):.2f}"


def games(number: int) -> list[Record]:
    every = published(HERE, "games")
    if number in EXCERPTS:
        return [r for r in every if int(r["id"]) in EXCERPTS[number]]
    return [r for r in every if number != 6 or r["ua"]]


def head(game: Record) -> list[str]:
    return [game[c] for c in ("id", "name", "networks", "attacks", "points", "side", "alpha", "epsilon")]


HEAD = ("id", "name", "members", "attacks", "points", "side", "alpha", "radius")


def programs(tables: Tables, number: int) -> Shown:
    """Tables 1 and 4 (SMT, MILP), 2 and 5 (MILP, MaxMILP): the published programs, ours, and the exact value."""
    ways = ("smt", "milp") if number in (1, 4) else ("milp", "maxmilp")
    lines = []
    for game in games(number):
        theirs = [f"{game[f'{w}_value'] or NOTHING} | {game[f'{w}_time']}" for w in ways]
        mine = [answered(row(tables, game["id"], w)) for w in ways]
        lines.append([*head(game), *theirs, answered(row(tables, game["id"], "decomposition")), *mine])
    titles = [f"{who} {w}{what}" for who in ("paper:", "ours:") for w in ways for what in ("", " s")]
    titles = [*HEAD, *titles[:4], "ours: exact value", "s", *titles[4:]]
    said = exact_statements(tables) if number == 4 else maximum(tables) if number == 5 else []
    return Shown([NOTE, "", *markdown(titles, lines)], said)


def single(tables: Tables, number: int) -> Shown:
    """Tables 3 and 6: attacks on single networks beside the best one."""
    lines = []
    for game in games(number):
        mine = [value(row(tables, game["id"], w)) for w in ("uniform", "deterministic", "decomposition")]
        lines.append([*head(game), game["ua"], game["bda"], game["maxmilp_value"], *mine])
    titles = [*HEAD, "paper: UA", "BDA", "MaxMILP", "ours: UA", "BDA", "exact value"]
    return Shown([NOTE, "", *markdown(titles, lines)], weaker(tables) if number == 6 else ())


def decided(tables: Tables) -> list[tuple[Record, Record]]:
    found = [(g, row(tables, g["id"], "decomposition")) for g in published(HERE, "games")]
    return [(g, r) for g, r in found if r is not None]


def exact_statements(tables: Tables) -> list[Statement]:
    """The paper's limits: which games can be solved, and how fast."""
    found = decided(tables)
    if not found:
        return []
    exact = [r for _, r in found if r["lower"] == r["upper"]]
    slowest = max(float(r["cpu"]) for _, r in found)
    open_there = [g for g in published(HERE, "games") if not g["milp_value"]]
    reached = [g for g, _ in found if g in open_there]
    closed = [g["id"] for g, r in found if g in open_there and r["lower"] == r["upper"]]
    sample = f"{len(found)} games"
    reason = f"Exact values of {len(exact)} of {len(found)} games, the slowest in {slowest:.2f} s of processor time."
    programs = [r for w in ("milp", "smt") for g, _ in found if (r := row(tables, g["id"], w))]
    smt = [r for r in programs if r["way"] == "smt"]
    return [
        judged(
            f"A game needs seconds to hours, up to 739 s (here: under {SECONDS:g} s)",
            slowest > SECONDS,
            sample,
            reason,
        ),
        judged(
            f"Games {', '.join(g['id'] for g in open_there)} cannot be decided in two hours",
            len(closed) < len(reached) if reached else None,
            f"{len(reached)} games",
            f"Exact here: {', '.join(closed) or 'none'} (on our networks).",
        ),
        judged(
            "SMT never proves an ensemble robust in time",
            not any(r["verdict"] == "robust" for r in smt) if smt else None,
            f"{len(smt)} games by SMT",
        ),
    ]


def maximum(tables: Tables) -> list[Statement]:
    """Where an ensemble is not robust, is the best attack perfect?"""
    found = [(g, r) for g, r in decided(tables) if g["maxmilp_value"].startswith("1")]
    attackable = [(g, r) for g, r in found if r["verdict"] == "not-robust" and r["lower"] == r["upper"]]
    text = "Where an attack reaches alpha, the best attack reaches 1"
    if not attackable:
        return [Statement(text, Judgement.UNDECIDED, "no game of ours can be attacked")]
    less = [f"{g['id']} ({r['lower']})" for g, r in attackable if Fraction(r["lower"]) < 1]
    more = f"Exact values below 1: {', '.join(less) or 'none'}."
    fewer = [r for _, r in attackable if int(r["mixed"]) <= 3]
    return [
        judged(text, not less, f"{len(attackable)} of {len(found)} games", more),
        judged(
            "(m + 1)^n attacks may be needed for the best mix",
            len(fewer) < len(attackable),
            f"{len(attackable)} games",
            "As many attacks as networks always suffice (a basic solution of the exact program).",
        ),
    ]


def weaker(tables: Tables) -> list[Statement]:
    """UA and BDA beside the exact value."""
    names = ("uniform", "deterministic", "decomposition")
    trios = [[row(tables, g["id"], w) for w in names] for g in games(6)]
    whole: list[Sequence[Fraction]] = [
        [Fraction(r["lower"]) for r in trio if r is not None] for trio in trios if None not in trio
    ]
    if not whole:
        return []
    moved = [t for t in whole if t[2] > 0]
    sample = f"{len(moved)} games with a value above 0, of {len(whole)}"
    below = sum(t[0] < t[2] for t in moved)
    if not moved:
        text = "Attacks on single networks stay below the best mix"
        return [Statement(text, Judgement.UNDECIDED, sample, "No attack moves our networks in these games.")]
    return [
        judged(
            "Attacks on single networks never beat the best mix",
            all(max(t[:2]) <= t[2] for t in whole),
            sample,
        ),
        judged(
            "The uniform attacker never reaches the best value",
            below == len(moved),
            sample,
            f"Below in {below}.",
        ),
        judged(
            "The best deterministic attack never reaches the best value",
            all(t[1] < t[2] for t in moved),
            sample,
            f"Equal in {sum(t[1] == t[2] for t in moved)}: one attack that fools all networks is the best mix.",
        ),
        judged(
            "The best deterministic attack is usually at least as good as the uniform one",
            sum(t[1] >= t[0] for t in moved) * 2 > len(moved),
            sample,
            f"In {sum(t[1] >= t[0] for t in moved)} games.",
        ),
    ]
