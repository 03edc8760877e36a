"""Portfolio: an ordered tree of stages, `sequence` and `race`, over verifiers with options and limits."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Literal

from verifolio.errors import InputError, UnknownPlugin
from verifolio.plugin.choice import Choice, build
from verifolio.plugin.manager import Plugins, current_plugins
from verifolio.plugin.verifier import Verifier

Ability = Literal["attack", "approach", "bound"]  # of verifiers: `can_attack_many` and so on


@dataclass(frozen=True)
class Member:
    """A verifier and how much of the query's time it may use: `seconds`, a `share` of all, or what is left.

    An `optional` member that is not installed is passed over; any other one missing is an error. Also passed over is
    a member where the query has more of a feature than `at_most` allows (`verifolio.portfolio.features`). An `early`
    one at the head of the sequence begins while workers still import what the others need, if the network is small.
    """

    verifier: Choice | Verifier
    seconds: float | None = None
    share: float | None = None
    optional: bool = False
    at_most: Mapping[str, int] = field(default_factory=dict)
    early: bool = False

    @property
    def name(self) -> str:
        return self.verifier.name

    def limit(self, total: float) -> float | None:
        """The member's own limit in seconds, None if it takes what is left."""
        limits = [self.seconds] if self.seconds is not None else []
        limits += [self.share * total] if self.share is not None else []
        return min(limits) if limits else None

    def describe(self) -> Mapping[str, object]:
        chosen = self.verifier
        plain = dict(chosen.options) if isinstance(chosen, Choice) else asdict(chosen.options)
        limits: dict[str, object] = {"seconds": self.seconds, "share": self.share, "optional": self.optional}
        limits |= {"at_most": dict(self.at_most), "early": self.early}
        return {"verifier": self.name, "options": plain} | {k: v for k, v in limits.items() if v}


@dataclass(frozen=True)
class Series:
    """Stages one after another; time that one leaves goes to the next."""

    stages: tuple[Stage, ...]

    def describe(self) -> Mapping[str, object]:
        return {"sequence": [s.describe() for s in self.stages]}


@dataclass(frozen=True)
class Race:
    """Stages side by side; the first validated answer stops the others."""

    stages: tuple[Stage, ...]

    def describe(self) -> Mapping[str, object]:
        return {"race": [s.describe() for s in self.stages]}


Stage = Member | Series | Race


@dataclass(frozen=True)
class Portfolio:
    """The tree and the name it goes by, and who works on many questions at once.

    `attack` attacks them, `bounder` bounds them. Without these, the first member of the tree that can does, so that
    a portfolio of one verifier uses nobody else.
    """

    root: Stage
    name: str = "portfolio"
    tags: Mapping[str, str] = field(default_factory=dict)
    attack: Member | None = None
    bounder: Member | None = None

    @cached_property
    def key(self) -> str:
        """A hash of what the portfolio does; two with the same key give the same answers."""
        text = json.dumps(self.root.describe(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def identity(self) -> str:
        """A hash of what it does to queries and to batches: that of queries where it names nobody for batches."""
        if self.attack is None and self.bounder is None:
            return self.key
        named = [None if m is None else m.describe() for m in (self.attack, self.bounder)]
        text = json.dumps([self.key, *named], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(_members(self.root))

    @property
    def early(self) -> tuple[Member, ...]:
        """The early members at the head of the sequence."""
        stages = self.root.stages if isinstance(self.root, Series) else (self.root,)
        head = takewhile(lambda s: isinstance(s, Member) and s.early, stages)
        return tuple(s for s in head if isinstance(s, Member))

    def able(self, ability: Ability, plugins: Plugins | None = None) -> Member | None:
        """Who has a batch ability here; an error where the named one lacks it."""
        known = current_plugins() if plugins is None else plugins
        named = self.bounder if ability == "bound" else self.attack
        chosen = self.members if named is None else (named,)
        for member in chosen:
            cls = class_of(member.verifier, known)
            if cls is None and named is not None and not member.optional:
                build(member.verifier)  # says why it cannot be used
            # bounds that are positive are proofs
            trusted = cls is not None and (cls.can_prove or ability != "bound")
            if trusted and getattr(cls, f"can_{ability}_many"):
                return member
        if named is not None and class_of(named.verifier, known) is not None and ability != "approach":
            proves = " and declares that it can prove" if ability == "bound" else ""
            expected = f"a verifier that can {ability} many questions at once{proves}"
            raise InputError(f"portfolio {self.name}", expected, named.name, "name another one")
        return None

    @property
    def width(self) -> int:
        """How many members run at the same time at most."""
        return _width(self.root)


def allot(stages: Sequence[Stage], left: float, total: float) -> float:
    """Seconds for the first of these stages: its own limit, or an equal part of what the limited ones leave."""
    limits = [s.limit(total) if isinstance(s, Member) else None for s in stages]
    if limits[0] is not None:
        return min(left, limits[0])
    reserved = sum(limit for limit in limits if limit is not None and math.isfinite(limit))
    return max(left - reserved, left / len(limits)) / limits.count(None) if math.isfinite(left) else left


def _members(stage: Stage) -> Iterator[Member]:
    if isinstance(stage, Member):
        yield stage
        return
    for child in stage.stages:
        yield from _members(child)


def _width(stage: Stage) -> int:
    if isinstance(stage, Member):
        return 1
    widths = [_width(s) for s in stage.stages]
    return sum(widths) if isinstance(stage, Race) else max(widths)


def single_verifier(verifier: str | Verifier, options: Mapping[str, object] | None = None) -> Portfolio:
    """A portfolio of one member, by name or as an instance."""
    chosen = Choice(verifier, options or {}) if isinstance(verifier, str) else verifier
    return Portfolio(Member(chosen), chosen.name)


def provers(portfolio: Portfolio, plugins: Plugins) -> Portfolio:
    """The same without members that only falsify: for an asker whose own attacks found nothing.

    It stays as it is where nobody else would be left.
    """
    root = _provers(portfolio.root, plugins)
    return portfolio if root is None or root == portfolio.root else replace(portfolio, root=root)


def _provers(stage: Stage, plugins: Plugins) -> Stage | None:
    if isinstance(stage, Member):
        cls = class_of(stage.verifier, plugins)  # one that is not installed is left for the walk to report
        return stage if cls is None or cls.can_prove else None
    stages = tuple(s for s in (_provers(s, plugins) for s in stage.stages) if s is not None)
    return replace(stage, stages=stages) if stages else None


def class_of(verifier: Choice | Verifier, plugins: Plugins) -> type[Verifier] | None:
    """Of what class a member is, without making one; None if it is not installed."""
    if isinstance(verifier, Verifier):
        return type(verifier)
    try:
        return plugins.verifiers.get(verifier.name)
    except UnknownPlugin:
        return None
