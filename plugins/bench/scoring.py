"""Scores: the competition's points, PAR-2, wrong answers, and what each member contributed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .instances import Instance
from .matching import key_of
from .results import WRITTEN, InstanceResult, Tool, ToolClaim

CORRECT, INCORRECT = 10, -150  # the competition's rules
DECIDED = ("sat", "unsat")
OURS = "verifolio"
BEST = "virtual best"
Pair = tuple[Instance, InstanceResult]


@dataclass(frozen=True)
class Contest:
    """Every tool's claims on the same instances, and what is known to be true of each.

    `ours` is the name of this run; `doubts` say what could not be compared.
    """

    instances: tuple[Instance, ...]
    truths: tuple[str, ...]
    claims: Mapping[str, tuple[ToolClaim, ...]]
    ours: str = OURS
    doubts: tuple[str, ...] = ()

    def counts(self, tool: str, k: int) -> bool:
        """Whether a tool decided an instance in its time, and not wrongly."""
        claim = self.claims[tool][k]
        return claim.result in DECIDED and not self.wrong(tool, k) and self.in_time(tool, k)

    def in_time(self, tool: str, k: int) -> bool:
        """Answers after the limit count as timeouts; of a time that is not recorded nothing is held."""
        return not self.claims[tool][k].seconds > self.instances[k].timeout

    def wrong(self, tool: str, k: int) -> bool:
        claim, truth = self.claims[tool][k], self.truths[k]
        return claim.result in DECIDED and truth in DECIDED and claim.result != truth


@dataclass(frozen=True)
class Line:
    """One tool in one category (or in all)."""

    tool: str
    category: str
    instances: int
    sat: int
    unsat: int
    wrong: int
    score: int
    par2: float
    percent: float = 0.0

    @property
    def decided(self) -> int:
        return self.sat + self.unsat

    def cells(self) -> tuple[str, ...]:
        numbers = (self.instances, self.decided, self.sat, self.unsat, self.wrong, self.score)
        rest = (f"{self.percent:.1f}", f"{self.par2:.2f}")
        return (self.category, self.tool, *(str(n) for n in numbers), *rest)


COLUMNS = ("category", "tool", "instances", "decided", "sat", "unsat", "wrong", "score", "percent", "PAR-2")


def make_contest(
    pairs: Sequence[Pair],
    tools: Sequence[Tool] = (),
    ours: str = OURS,
    everyone: Sequence[Instance] = (),
) -> Contest:
    """Ours and the others'. True is what is expected, else a counterexample of ours, which was replayed.

    `everyone` are all instances of the table, of which `pairs` may be a part: a row about one of the others
    must not be taken for one about these.
    """
    truths = []
    for instance, result in pairs:
        known = instance.expected if instance.expected in DECIDED else ""
        truths.append(known or ("sat" if result.verdict.value == "sat" else ""))
    claims = {ours: tuple(ToolClaim(WRITTEN[r.verdict], r.seconds) for _, r in pairs)}
    doubts = []
    nothing = ToolClaim("unknown", math.nan)
    for tool in tools:
        found, doubtful = tool.compare(everyone or [i for i, _ in pairs])
        name = _free_name(tool.name, claims)
        claims[name] = tuple(found.get(key_of(i), nothing) for i, _ in pairs)
        doubts += [f"{name} has no row that is surely about {text}" for text in doubtful]
    return Contest(tuple(i for i, _ in pairs), tuple(truths), claims, ours, tuple(doubts))


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number where another tool has it already."""
    names = (name, *(f"{name} ({k})" for k in range(2, len(taken) + 3)))
    return next(n for n in names if n not in taken and n != BEST)


def par2(contest: Contest, tool: str, chosen: Sequence[int]) -> float:
    """Mean seconds; twice the limit where an instance was not decided."""
    times = []
    for k in chosen:
        limit, seconds = contest.instances[k].timeout, contest.claims[tool][k].seconds
        times.append(min(seconds, limit) if contest.counts(tool, k) and seconds == seconds else 2 * limit)
    return sum(times) / len(times) if times else 0.0


def lines(contest: Contest) -> list[Line]:
    """Per category and in all, every tool that claims something there, best score first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for k, instance in enumerate(contest.instances):
        groups[instance.category].append(k)
    if len(groups) > 1:
        groups["all"] = list(range(len(contest.instances)))
    found = []
    for category, chosen in groups.items():
        here = [_line(contest, tool, category, chosen) for tool in contest.claims]
        best = max((line.score for line in here), default=0)
        shown = [
            Line(**{**line.__dict__, "percent": 100 * max(line.score, 0) / best if best > 0 else 0.0})
            for line in here
            if line.tool == contest.ours or line.decided or line.wrong
        ]
        found += sorted(shown, key=lambda line: -line.score)
        found += [_virtual_best(contest, category, chosen)] if len(contest.claims) > 1 else []
    return found


def _line(contest: Contest, tool: str, category: str, chosen: Sequence[int]) -> Line:
    good = [contest.claims[tool][k].result for k in chosen if contest.counts(tool, k)]
    wrong = sum(contest.wrong(tool, k) for k in chosen)
    score = CORRECT * len(good) + INCORRECT * wrong
    sat, unsat = good.count("sat"), good.count("unsat")
    return Line(tool, category, len(chosen), sat, unsat, wrong, score, par2(contest, tool, chosen))


def _virtual_best(contest: Contest, category: str, chosen: Sequence[int]) -> Line:
    """The fastest right answer of any tool, instance by instance."""
    sat = unsat = 0
    times = []
    for k in chosen:
        winners = [t for t in contest.claims if contest.counts(t, k)]
        limit = contest.instances[k].timeout
        known = [
            contest.claims[t][k].seconds for t in winners if not math.isnan(contest.claims[t][k].seconds)
        ]
        times.append(min(known, default=limit) if winners else 2 * limit)
        sat += any(contest.claims[t][k].result == "sat" for t in winners)
        unsat += bool(winners) and all(contest.claims[t][k].result == "unsat" for t in winners)
    mean = sum(times) / len(times) if times else 0.0
    return Line(BEST, category, len(chosen), sat, unsat, 0, CORRECT * (sat + unsat), mean, 100.0)


def disagreements(contest: Contest) -> list[str]:
    """Every instance on which decided claims differ, or contradict what is known."""
    found = []
    for k, instance in enumerate(contest.instances):
        said = {t: c[k].result for t, c in contest.claims.items() if c[k].result in DECIDED}
        truth = contest.truths[k]
        values = set(said.values()) | ({truth} if truth else set())
        if len(values) > 1:
            known = f"known to be {truth}; " if truth else ""
            found.append(f"{instance.label}: {known}" + ", ".join(f"{t} says {r}" for t, r in said.items()))
    return found


@dataclass
class Earning:
    """What one member decided."""

    sat: int = 0
    unsat: int = 0
    seconds: list[float] = field(default_factory=list)


def earnings(pairs: Sequence[Pair]) -> list[tuple[str, int, int, float]]:
    """Member, sat, unsat and median seconds, the most decided first."""
    found: dict[str, Earning] = defaultdict(Earning)
    for _, result in pairs:
        if result.verdict.decided:
            earning = found[result.verifier]
            earning.sat += result.verdict.value == "sat"
            earning.unsat += result.verdict.value == "unsat"
            earning.seconds.append(result.seconds)
    rows = [(n, e.sat, e.unsat, sorted(e.seconds)[len(e.seconds) // 2]) for n, e in found.items()]
    return sorted(rows, key=lambda row: -(row[1] + row[2]))
