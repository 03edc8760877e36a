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
from pathlib import Path

import numpy as np

from verifolio.answer import Answer, Verdict, Witness
from verifolio.data import Dataset
from verifolio.errors import InputError, SoundnessAlarm, VerifolioError
from verifolio.estimator import Estimator
from verifolio.network import Network
from verifolio.oracle import Oracle
from verifolio.property import Reference
from verifolio.referee import judge
from verifolio.registry import installed
from verifolio.vnnlib import Rows

from .bracket import BracketOptions
from .family import Family, per_input
from .ledger import Ledger
from .look import look, seed_of
from .search import KNOWN, Critical, Question, Status, Step, make_step
from .squeeze import Start
from .table import Row

BRACKET = "bracket"
LOOK = 8  # inputs of one quick look
PIXELS = 255.0  # levels of an image whose data set does not say how many it has


@dataclass(frozen=True)
class Setting:
    """What is asked about every input; part of the run's identity."""

    search: str = "bracket"
    k: int = 2
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
    portfolio: str = ""

    @property
    def run(self) -> str:
        """The run's name: the same settings continue the same run."""
        text = json.dumps(self.__dict__, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def estimator(self) -> Estimator:
        cls = installed().estimators.get(self.search)
        return cls(cls.Options(k=self.k)) if self.search == "k-binary" else cls()


@dataclass(frozen=True, eq=False)
class Item:
    """One input on one network."""

    position: int
    network: Network
    name: str
    data: Dataset
    index: int

    @property
    def split(self) -> str:
        return self.data.split or self.data.name

    @property
    def place(self) -> tuple[str, str, int]:
        return self.name, self.split, self.index


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
    oracle: Oracle
    ledger: Ledger
    jobs: int = 1
    keep: Path | None = None
    listen: Listener = lambda _row, _done, _total: None
    _looks: dict[tuple[str, str, int], Look] = field(default_factory=dict, init=False, repr=False)

    def run(self) -> list[Row]:
        """All rows, those of an earlier run included; a soundness alarm ends everything."""
        self.ledger.begin(self.setting.run, self.setting.__dict__)
        self._looks = self._plan_looks()
        finished = {(r.network, r.split, r.image_id) for r in self.rows() if r.status is not Status.ERROR}
        done = len(finished)
        for row in self._work([i for i in self.items if i.place not in finished]):
            done += 1
            self.listen(row, done, len(self.items))
        return self.rows()

    def rows(self) -> list[Row]:
        """What is finished so far, in the order of the items."""
        found = {(r.network, r.split, r.image_id): r for r in self.ledger.rows(self.setting.run)}
        return [found[i.place] for i in self.items if i.place in found]

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

    def _plan_looks(self) -> dict[tuple[str, str, int], Look]:
        """Groups of neighbours that are looked at together; the same ones in every session of a run."""
        if self.setting.search != BRACKET:
            return {}
        found: dict[tuple[str, str, int], Look] = {}
        for _, part in itertools.groupby(self.items, key=lambda i: (i.name, i.split)):
            mine = list(part)
            for start in range(0, len(mine), LOOK):
                group = Look(tuple(mine[start : start + LOOK]))
                found |= {item.place: group for item in group.items}
        return found

    def _look(self, item: Item) -> None:
        """The quick look at this input and its neighbours, unless there was one."""
        group = self._looks.get(item.place)
        if group is None:
            return
        with group.lock:
            if group.done:
                return
            group.done = True
            families = [self._family(i) for i in group.items]
            good = [f for f in families if f.predict()[0] == f.label]
            todo = [f for f in good if not recall(self.ledger, self.setting, f.key)]
            if len(good) < 2 or not todo:
                return  # a look at one input is part of its search
            for family, step in zip(good, first_look(good, self.setting, self.oracle), strict=False):
                if family in todo:
                    self.ledger.add_step(self.setting.run, family.key, step)

    def _family(self, item: Item) -> Family:
        name = "_".join(map(str, item.place))
        return make_family(self.setting, item.network, item.data, item.index, name)

    def _one(self, item: Item) -> Row:
        try:
            self._look(item)
            return self._measure(item)
        except SoundnessAlarm:
            raise
        except VerifolioError as error:
            label = int(item.data.labels[item.index])
            row = Row(*item.place, label, -1, None, None, Status.ERROR, reason=str(error))
            self.ledger.finish(self.setting.run, "", item.position, row, None)
            return row

    def _measure(self, item: Item) -> Row:
        family = self._family(item)
        label, predicted = int(item.data.labels[item.index]), family.predict()[0]
        blank = Row(*item.place, label, predicted, None, None, Status.MISCLASSIFIED)
        if predicted != family.label:
            self.ledger.finish(self.setting.run, family.key, item.position, blank, None)
            return blank
        found = self.search(family)
        row = replace(
            blank,
            lower=found.lower,
            upper=found.upper,
            status=found.status,
            seconds=found.seconds,
            queries=found.queries,
            cancelled=found.cancelled,
            flags=tuple(sorted(f.value for f in found.flags)),
            reason=found.reason,
            rounded=survives_rounding(family, found, item.data.scale),
        )
        self.ledger.finish(self.setting.run, family.key, item.position, row, found)
        return row

    def search(self, family: Family) -> Critical:
        """The critical radius of one input, from what is known already."""
        found: Critical = self.setting.estimator().run(self._question(family), self.oracle)
        return found

    def _replayed(self, family: Family) -> list[Step]:
        """The closest witness of an earlier soundness revision that is one still, for `bracket`."""
        if self.setting.search != BRACKET:
            return []
        top = min(self.setting.largest or math.inf, family.largest)
        for x in self.ledger.old_witnesses(family.key):
            found = judge(family.query(top), x)
            if isinstance(found, Witness):
                answer = Answer(Verdict.SAT, "store", "a stored witness, replayed", found)
                return [make_step(family, top, answer, 0.0, 0.0, KNOWN)]
        return []

    def _question(self, family: Family) -> Question:
        run, setting = self.setting.run, self.setting

        def log(step: Step) -> None:
            self.ledger.add_step(run, family.key, step)

        return Question(
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


def first_look(families: Sequence[Family], setting: Setting, oracle: Oracle) -> list[Step]:
    """Attacks and bounds on all inputs in one job."""
    options, top = BracketOptions(), setting.largest or math.inf
    starts = [Start(f, 0.0, min(top, f.largest), seed_of(oracle, ())) for f in families]
    seconds = min(options.quick, setting.budget / 5) * len(starts)
    return [step for step, _ in look(starts, oracle, setting.tolerance, seconds, options.radii)]


def recall(ledger: Ledger, setting: Setting, question: str) -> list[Step]:
    """What is known about a question: all of this run, and the decided part of others for `bracket`.

    Time that another run spent does not count against this one's budget, and is not asked for again.
    """
    own = ledger.steps(question, setting.run)
    if setting.search != BRACKET:
        return own
    others = ledger.steps(question, setting.run, others=True)
    known = [s for s in others if s.proved is not None or s.distance is not None]
    picked = [max(known, key=lambda s: s.proved or 0.0)] if known else []
    picked += sorted((s for s in known if s.distance is not None), key=lambda s: s.distance or 0.0)[:1]
    return [*(replace(s, kind=KNOWN, elapsed=0.0, seconds=0.0) for s in picked), *own]


def make_family(setting: Setting, network: Network, data: Dataset, index: int, name: str) -> Family:
    """The family of an input; its label is the data's, or what the network says."""
    shape = data.shape if len(data.shape) == 3 else (1, *data.shape)
    mean, std = per_input(setting.mean, shape, "mean"), per_input(setting.std, shape, "std")
    x, label = data.image(index), int(data.labels[index])
    family = Family(network, x, label, setting.norm, setting.low, setting.high, mean, std, name=name)
    if setting.reference == "predicted":
        family = replace(family, label=family.predict()[0])
    return replace(family, condition=condition_of(setting.about, family))


def condition_of(name: str, family: Family) -> tuple[Rows, ...] | None:
    """The output condition of a registered property at this input."""
    properties = installed().properties
    if name == "classification" and name not in properties:
        return None
    lower, upper = family.box(0.0)
    reference = Reference((lower + upper) / 2, family.label, 0.0, family.norm, lower, upper)
    cases = properties.get(name)().query([family.network], reference).specification.cases
    if len(cases) != 1:
        raise InputError(f"property {name}", "one input region", str(len(cases)), "choose another property")
    return cases[0].disjuncts


def survives_rounding(family: Family, found: Critical, scale: float) -> bool | None:
    """Whether the counterexample still is one after rounding to the data's own levels."""
    if found.witness is None:
        return None
    levels = scale if scale > 1 else PIXELS
    rounded = np.clip(np.round(family.to_data(found.witness) * levels) / levels, family.low, family.high)
    outputs = family.predict(np.asarray(rounded))[1]
    others = np.delete(outputs, family.label)
    return bool(others.max(initial=-math.inf) >= outputs[family.label])


def make_items(networks: Sequence[Network], sets: Sequence[tuple[Dataset, Sequence[int]]]) -> list[Item]:
    """Network by network; file names tell networks apart, whole paths where they do not."""
    names = [n.path.name for n in networks]
    unique = len(set(names)) == len(names)
    items: list[Item] = []
    for network, name in zip(networks, names, strict=True):
        for data, indices in sets:
            for index in indices:
                items.append(Item(len(items), network, name if unique else str(network.path), data, index))
    return items
