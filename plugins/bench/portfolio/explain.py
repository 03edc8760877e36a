"""What a portfolio does: its stages in words, the time each gets, and what each would have decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from verifolio.plugin.choice import Choice
from verifolio.portfolio.chooser import find_chooser
from verifolio.portfolio.features import FEATURES
from verifolio.portfolio.tree import Member, Portfolio, Race, Series, Stage, allot

from .runs import Configuration, Run, Source
from .table import Table, decided, make_table, par2


@dataclass(frozen=True)
class Row:
    """One stage, `depth` levels below the root; only members have more than a title."""

    depth: int
    title: str
    member: Member | None = None
    seconds: float = 0.0

    @property
    def limit(self) -> str:
        """The member's own limits in words."""
        if self.member is None:
            return ""
        parts = [f"{self.member.seconds:g} s"] if self.member.seconds is not None else []
        parts += [f"{100 * self.member.share:g} %"] if self.member.share is not None else []
        return f"at most {' and '.join(parts)}" if parts else "what is left"

    @property
    def options(self) -> str:
        chosen = {} if self.member is None else dict(configuration_of(self.member).options)
        return ", ".join(f"{k}={v}" for k, v in chosen.items())


def rows(stage: Stage, timeout: float, depth: int = 0, left: float | None = None) -> Iterator[Row]:
    """The tree from top to bottom, with the seconds of a query of `timeout` if nobody finishes early."""
    left = timeout if left is None else left
    if isinstance(stage, Member):
        own = stage.limit(timeout)
        yield Row(depth, stage.name, stage, left if own is None else min(left, own))
        return
    series = isinstance(stage, Series)
    yield Row(depth, "in turn:" if series else "side by side:")
    for k, child in enumerate(stage.stages):
        part = allot(stage.stages[k:], left, timeout) if series else left
        yield from rows(child, timeout, depth + 1, part)
        left = left - part if series else left


def when(member: Member) -> str:
    """What the member is for, and why it would be passed over here."""
    from verifolio.plugin.manager import current_plugins

    verifiers = current_plugins().verifiers
    if member.name not in verifiers:
        return "not installed" + ("; passed over" if member.optional else "")
    cls = next(c for c in verifiers if c.name == member.name)
    missing = verifiers.unavailable(member.name)
    if missing is not None:
        return f"not available: {missing}" + ("; passed over" if member.optional else "")
    does = [word for word, can in (("proves", cls.can_prove), ("refutes", cls.can_falsify)) if can]
    about = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    limits = [f"at most {most} {FEATURES[name][0]}" for name, most in member.at_most.items()]
    early = ["early"] if member.early else []
    return "; ".join(filter(None, [*early, *limits, " and ".join(does), about]))


def configuration_of(member: Member) -> Configuration:
    """The member as recorded runs name it, on one core."""
    described = member.describe()
    options = described["options"]
    chosen = options if isinstance(member.verifier, Choice) and isinstance(options, Mapping) else {}
    return Configuration(member.name, dict(chosen))


def counted(portfolio: Portfolio, runs: Sequence[Run]) -> dict[str, int] | None:
    """How many instances each verifier decided when this very portfolio ran, if that was recorded."""
    run = next((r for r in runs if r.key == portfolio.key and r.records), None)
    if run is None:
        return None
    found: dict[str, int] = {}
    for record in run.records.values():
        if record.result in ("sat", "unsat"):
            found[record.by] = found.get(record.by, 0) + 1
    return found


def contributions(portfolio: Portfolio, runs: Sequence[Run], source: Source) -> list[str]:
    """Who decided what: as recorded when this portfolio ran, and by the recorded times of its members."""
    lines, real = [], counted(portfolio, runs)
    if real is not None:
        lines.append("when it ran: " + ", ".join(f"{name} decided {count}" for name, count in real.items()))
    if all(r.configuration is None for r in runs):
        return lines
    table = make_table(runs, source.truths)
    found = simulated(portfolio, table)
    if isinstance(found, str):
        return [*lines, f"by its members' own runs: {found}"]
    done, counts = np.array(found[0]), Counter(found[1])
    names = [f"{m.name} (stage {k + 1}) {counts[k]}" for k, m in enumerate(portfolio.members)]
    total = f"{decided(done)} of {len(done)} decided, PAR-2 {par2(done, table.limits):.2f}"
    return [*lines, f"by its members' own runs: {total}: {', '.join(names)}"]


def simulated(portfolio: Portfolio, table: Table) -> tuple[list[float], list[int]] | str:
    """When each instance would have been decided, and by which member (by its place); or why nobody knows."""
    names = {_plain(c): k for k, c in enumerate(table.configurations)}
    places, missing = {}, []
    for place, member in enumerate(portfolio.members):
        row = names.get(_plain(configuration_of(member)))
        places[id(member)] = (place, row)
        missing += [configuration_of(member).name] if row is None else []
    if missing:
        return f"no recorded run of {', '.join(dict.fromkeys(missing))}"
    times, by = [], []
    for k, limit in enumerate(table.limits.tolist()):
        done, place, _ = _Replay(table, k, limit, places).stage(portfolio.root, limit)
        times.append(done)
        by.append(place)
    return times, by


def with_defaults(table: Table) -> Table:
    """The default's trees as they would have done by their members' own runs, where all of those are there.

    Only this compares like with like: a measured portfolio had the machine of another hour.
    """
    others = {f"{name}, measured": times for name, times in table.others.items()}
    for _, portfolio in find_chooser().conditions():
        found = simulated(portfolio, table)
        if not isinstance(found, str):
            others[f"{portfolio.name}, computed"] = np.array(found[0])
    return replace(table, others=others)


def _plain(configuration: Configuration) -> str:
    return Configuration(configuration.verifier, configuration.options).name


class _Replay:
    """One instance through a tree, by recorded times: seconds to the answer, whose it is, seconds spent."""

    def __init__(
        self, table: Table, column: int, total: float, places: Mapping[int, tuple[int, int | None]]
    ) -> None:
        self.table, self.column, self.total, self.places = table, column, total, places

    def stage(self, stage: Stage, left: float) -> tuple[float, int, float]:
        if isinstance(stage, Member):
            return self._member(stage, left)
        if isinstance(stage, Race):
            ends = [self.stage(s, left) for s in stage.stages]
            done, place, _ = min(ends, key=lambda end: end[0])
            return done, place, max(end[2] for end in ends)
        clock = 0.0
        for k, child in enumerate(stage.stages):
            part = allot(stage.stages[k:], left - clock, self.total)
            done, place, spent = self.stage(child, part)
            if math.isfinite(done):
                return clock + done, place, clock + spent
            clock += spent
        return math.inf, -1, clock

    def _member(self, member: Member, left: float) -> tuple[float, int, float]:
        place, row = self.places[id(member)]
        own = member.limit(self.total)
        left = left if own is None else min(left, own)
        solved = float(self.table.solved[row or 0, self.column])
        spent = float(self.table.spent[row or 0, self.column])
        if solved <= left:
            return solved, place, solved
        return math.inf, -1, min(left, spent)
