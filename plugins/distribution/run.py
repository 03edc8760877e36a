"""Running a distribution: every input of every data set on every network, side by side, resumable."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from verifolio.errors import InputError, SoundnessAlarm, VerifolioError
from verifolio.model.answer import Answer, Verdict
from verifolio.model.radius import RadiusStart
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.estimator import OracleLike
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.options import build_options, split_pairs
from verifolio.plugin.property import Growth, Property
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import Finding, PropertyStatus

from .bracket import BracketOptions
from .families import make_families
from .family import Family
from .ledger import DistributionLedger, Entry, Sight
from .look import look, seed_of
from .radius_search import KNOWN, Critical, RadiusQuestion, RadiusSearch, SearchStatus, SearchStep, make_step
from .table import Row, distinct

DEFAULT = "bracket"  # the search where no grid is given
LOOK = 8  # inputs of one quick look
PIXELS = 255.0  # levels of an image whose data set does not say how many it has


@dataclass(frozen=True)
class Setting:
    """What is asked about every input; part of the run's identity."""

    search: str = DEFAULT
    choices: tuple[str, ...] = ()  # of the search, key=value
    radii: tuple[float, ...] = ()
    tolerance: float = 1e-3
    largest: float = 0.0
    norm: float = math.inf
    timeout: float = math.inf
    budget: float = math.inf
    reference: str = "label"  # or "predicted": what must not change
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 1.0
    about: str = "classification"  # the property
    options: tuple[str, ...] = ()  # of the property, key=value
    portfolio: str = ""

    @property
    def prop(self) -> Property:
        return property_of(self.about, self.options)

    @property
    def run(self) -> str:
        """The run's name: the same settings continue the same run. Names of files are not part of it."""
        text = json.dumps(self.__dict__ | {"about": self.prop.key}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def estimator(self) -> RadiusSearch:
        """The search, with its own options."""
        return search_of(self.search, self.choices)


@cache
def search_of(name: str, choices: tuple[str, ...]) -> RadiusSearch:
    """An installed estimator that declares to be a search over radii."""
    cls = current_plugins().estimators.get(name)
    if not issubclass(cls, RadiusSearch):
        able = [c.name for c in current_plugins().estimators if issubclass(c, RadiusSearch)]
        raise InputError("--search", f"a search over radii: {', '.join(able)}", name)
    return cls(build_options(cls.Options, split_pairs(choices), f"search {name}"))


def search_choices(name: str, choices: Sequence[str], k: int) -> tuple[str, ...]:
    """The options of a search, `--k` among them where it has such an option and nothing else says it."""
    has_k = "k" in getattr(current_plugins().estimators.get(name).Options, "__dataclass_fields__", {})
    told = any(c.startswith("k=") for c in choices)
    return (*choices, f"k={k}") if has_k and not told else tuple(choices)


@cache
def property_of(spec: str, options: tuple[str, ...]) -> Property:
    """The property, read once; it must be one whose critical radius exists."""
    prop = choose_property(spec, split_pairs(options))
    if prop.growth is Growth.OTHER:
        raise InputError(
            f"property {prop.name}",
            "one that holds at every radius below one where it holds",
            prop.growth_reason,
            "ask about single radii: verifolio measure",
        )
    return prop


@dataclass(frozen=True, eq=False)
class Item:
    """One input on one network, or on the networks that the property is about; names are for people."""

    position: int
    networks: tuple[Network, ...]
    name: str
    data: Dataset
    split: str
    index: int

    @property
    def place(self) -> tuple[str, str, int]:
        return self.name, self.split, self.index

    @property
    def network_key(self) -> str:
        return "+".join(n.sha256 for n in self.networks)

    @cached_property
    def key(self) -> str:
        """What the input is, whatever the files are called."""
        text = f"{self.network_key}|{self.data.sha256}|{self.index}"
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(eq=False)
class Look:
    """Inputs that are looked at together, before the first of them is searched."""

    items: tuple[Item, ...]
    done: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


Listener = Callable[[Row, int, int], None]


@dataclass
class Distribution:
    """One run; `listen(row, done, total)` is called as inputs finish."""

    setting: Setting
    items: Sequence[Item]
    oracle: OracleLike
    ledger: DistributionLedger
    jobs: int = 1
    keep: Path | None = None
    listen: Listener = lambda _row, _done, _total: None
    _looks: dict[str, Look] = field(default_factory=dict, init=False, repr=False)

    def run(self) -> list[Row]:
        """All rows, those of an earlier run included; a soundness alarm ends everything."""
        self.ledger.begin(self.setting.run, self.setting.__dict__)
        self._looks = self._plan_looks()
        known = self.ledger.finished(self.setting.run)
        finished = {key for key, row in known.items() if row.status is not SearchStatus.ERROR}
        waiting = {i.key: i for i in self.items if i.key not in finished}
        done = len(self.items) - len(waiting)
        for row in self._work(list(waiting.values())):
            done += 1
            self.listen(row, done, len(self.items))
        return self.rows()

    def rows(self) -> list[Row]:
        """What is finished so far, in the order of the items."""
        found = self.ledger.finished(self.setting.run)
        mine = [(i, found[i.key]) for i in self.items if i.key in found]
        return [replace(row, network=i.name, split=i.split) for i, row in mine]

    def _work(self, items: list[Item]) -> Iterator[Row]:
        waiting = iter(items)
        running: set[Future[Row]] = set()
        with ThreadPoolExecutor(self.jobs, "inputs") as threads:
            try:
                while True:
                    while len(running) < self.jobs and (item := next(waiting, None)) is not None:
                        running.add(threads.submit(self._one, item))
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        running.remove(future)
                        yield future.result()
            finally:
                if running:
                    self.oracle.close()  # whatever the others still ask is cancelled

    def _plan_looks(self) -> dict[str, Look]:
        """Groups of neighbours that are looked at together; the same ones in every session of a run."""
        if not self.setting.estimator.continues:
            return {}
        found: dict[str, Look] = {}
        for _, part in itertools.groupby(self.items, key=lambda i: (i.name, i.split)):
            mine = list(part)
            for start in range(0, len(mine), LOOK):
                group = Look(tuple(mine[start : start + LOOK]))
                found |= {item.key: group for item in group.items}
        return found

    def _look(self, item: Item) -> None:
        """The quick look at this input and its neighbours, unless there was one."""
        group = self._looks.get(item.key)
        if group is None:
            return
        with group.lock:
            if group.done:
                return
            group.done = True
            families = self._families(group.items)
            able = [f for f in families if f.fixed and f.disjuncts]
            good = [f for f in able if f.predicted == f.label]
            todo = [f for f in good if not recall(self.ledger, self.setting, f.key)]
            if len(good) < 2 or not todo:
                return  # a look at one input is part of its search
            for family, step in zip(good, first_look(good, self.setting, self.oracle), strict=False):
                if family in todo:
                    self.ledger.add_step(self.setting.run, family.key, step)

    def _families(self, items: Sequence[Item]) -> list[Family]:
        """Of items of the same networks and data."""
        networks = [n.computed_by(self.oracle.compute) for n in items[0].networks]
        named = {item.index: "_".join(map(str, item.place)) for item in items}
        return make_families(self.setting, networks, items[0].data, named)

    def _one(self, item: Item) -> Row:
        try:
            self._look(item)
            return self._measure(item)
        except SoundnessAlarm:
            raise
        except VerifolioError as error:
            label = int(item.data.labels[item.index])
            row = Row(*item.place, label, -1, None, None, SearchStatus.ERROR, reason=str(error))
            self.ledger.finish(self.setting.run, self._entry(item), row)
            return row

    def _measure(self, item: Item) -> Row:
        (family,) = self._families([item])
        label, predicted = int(item.data.labels[item.index]), family.predicted
        blank = Row(*item.place, label, predicted, None, None, SearchStatus.MISCLASSIFIED)
        if predicted != family.label:
            self.ledger.finish(self.setting.run, self._entry(item, family.key), blank)
            return blank
        return self.finish(item, family, self.search(family))

    def finish(self, item: Item, family: Family, found: Critical) -> Row:
        """Keep what a search found; gives its row."""
        label, predicted = int(item.data.labels[item.index]), family.predicted
        row = Row(
            *item.place,
            label,
            predicted,
            found.lower,
            found.upper,
            found.status,
            seconds=found.seconds,
            queries=found.queries,
            cancelled=found.cancelled,
            flags=tuple(sorted(f.value for f in found.flags)),
            reason=found.reason,
            rounded=survives_rounding(family, found, item.data.scale, self.oracle),
            reused=found.reused,
            terminated=found.terminated,
        )
        seen = sight(family, found, item.data)
        self.ledger.finish(self.setting.run, self._entry(item, family.key), row, found, seen)
        return row

    def _entry(self, item: Item, question: str = "") -> Entry:
        return Entry(item.key, question, item.position, item.network_key, item.data.sha256)

    def search(self, family: Family) -> Critical:
        """The critical radius of one input, from what is known already."""
        return self.setting.estimator.run(self._question(family), self.oracle)

    def _replayed(self, family: Family) -> list[SearchStep]:
        """The closest witness of an earlier soundness revision that is one still, for searches that continue."""
        if not self.setting.estimator.continues:
            return []
        top = min(self.setting.largest or math.inf, family.largest)
        for x in self.ledger.old_witnesses(family.key):
            found = self.oracle.judge(family.candidate_query(x), x)
            if found is not None and family.distance(found.x) <= top:
                answer = Answer(Verdict.SAT, "store", "a stored witness, replayed", found)
                return [make_step(family, top, Finding(PropertyStatus.REFUTED, answer), 0.0, 0.0, KNOWN)]
        return []

    def _question(self, family: Family) -> RadiusQuestion:
        run, setting = self.setting.run, self.setting

        def log(step: SearchStep) -> None:
            self.ledger.add_step(run, family.key, step)

        return RadiusQuestion(
            family,
            setting.radii,
            setting.largest,
            setting.tolerance,
            setting.timeout,
            setting.budget,
            (*self._replayed(family), *recall(self.ledger, setting, family.key)),
            log,
            self.keep,
        )


def sight(family: Family, found: Critical, data: Dataset) -> Sight | None:
    """What a report shows of an input that has a counterexample."""
    if found.witness is None:
        return None
    becomes = family.class_of(found.witness)
    return Sight(np.asarray(family.x, np.float32), "x".join(map(str, data.shape)), becomes)


def first_look(families: Sequence[Family], setting: Setting, oracle: OracleLike) -> list[SearchStep]:
    """Attacks and bounds on all inputs in one job."""
    options, top = BracketOptions(), setting.largest or math.inf
    starts = [RadiusStart(f.around, 0.0, min(top, f.largest), seed_of(oracle, ())) for f in families]
    seconds = min(options.quick, setting.budget / 5) * len(starts)
    return [step for step, _ in look(starts, oracle, setting.tolerance, seconds, options.radii)]


def recall(ledger: DistributionLedger, setting: Setting, question: str) -> list[SearchStep]:
    """What is known about a question: all of this run, and the decided part of others for searches that continue.

    Time that another run spent does not count against this one's budget, and is not asked for again.
    """
    own = ledger.steps(question, setting.run)
    if not setting.estimator.continues:
        return own
    others = ledger.steps(question, setting.run, others=True)
    known = [s for s in others if s.proved is not None or s.distance is not None]
    picked = [max(known, key=lambda s: s.proved or 0.0)] if known else []
    picked += sorted((s for s in known if s.distance is not None), key=lambda s: s.distance or 0.0)[:1]
    return [*(replace(s, kind=KNOWN, elapsed=0.0, seconds=0.0, reused=True) for s in picked), *own]


def survives_rounding(family: Family, found: Critical, scale: float, oracle: OracleLike) -> bool | None:
    """Whether the counterexample still is one after rounding to the data's own levels."""
    if found.witness is None:
        return None
    levels = scale if scale > 1 else PIXELS
    rounded = np.clip(np.round(family.to_data(found.witness) * levels) / levels, family.low, family.high)
    point = family.ground.to_network(np.asarray(rounded), 0.0)
    return oracle.judge(family.candidate_query(point), point) is not None


def make_items(
    networks: Sequence[Network],
    sets: Sequence[tuple[Dataset, Sequence[int]]],
    together: int = 1,
    called: Sequence[str] = (),
) -> list[Item]:
    """Network by network (or `together` at a time); `called` or file names tell them apart, or whole paths."""
    groups = [tuple(networks[i : i + together]) for i in range(0, len(networks), together)]
    if len(networks) % together:
        raise InputError("networks", f"a multiple of {together} for this property", str(len(networks)))
    single = called or [n.path.name for n in networks]
    names = ["+".join(single[i : i + together]) for i in range(0, len(networks), together)]
    if len(set(names)) < len(names):
        names = ["+".join(str(n.path) for n in group) for group in groups]
    splits = split_names([data for data, _ in sets])
    items: list[Item] = []
    for group, name in zip(groups, names, strict=True):
        for (data, indices), split in zip(sets, splits, strict=True):
            for index in indices:
                items.append(Item(len(items), group, name, data, split, index))
    return items


def split_names(sets: Sequence[Dataset]) -> list[str]:
    """A name for each data set: its split, with the file's name, or a part of its hash, where that is shared."""
    names = [data.split or data.name for data in sets]
    if len(set(names)) < len(names):
        names = [f"{data.name}:{name}" for data, name in zip(sets, names, strict=True)]
    return distinct(names, [data.sha256 for data in sets])
