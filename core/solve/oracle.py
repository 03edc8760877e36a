"""The oracle: the only way estimators reach backends. Caches, infers, runs in parallel, can be cancelled."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from concurrent.futures import wait as wait_futures
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Answer, Closest, Flag, Verdict, Witness
from verifolio.model.batch import Batch, Sighting
from verifolio.model.binding import check_sizes
from verifolio.model.emptiness import emptiness
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.model.radius import RadiusBounds, RadiusStart
from verifolio.plugin.equipped import equip
from verifolio.plugin.evidence import Bounds, Evidence
from verifolio.plugin.executor import Executor, Handle
from verifolio.plugin.manager import Plugins, current_plugins
from verifolio.portfolio.chooser import Chooser, find_chooser
from verifolio.portfolio.tree import Portfolio, provers
from verifolio.run import Job, Result
from verifolio.run.settings import Settings
from verifolio.solve.asking import Asking, serves
from verifolio.solve.batches import Batches, Starts
from verifolio.solve.closest import find_closest, minimiser
from verifolio.solve.judgement import still_a_witness
from verifolio.solve.messages import Note
from verifolio.solve.walk import CONFIRM_SECONDS, Walk
from verifolio.solve.working import MANY, names_in, working
from verifolio.trust.conflict import raise_alarm
from verifolio.trust.knowledge import Knowledge

if TYPE_CHECKING:
    from verifolio.storage.store import Store

T = TypeVar("T")
P = ParamSpec("P")


class Oracle:
    """Decides queries with one portfolio on one executor; without a portfolio a chooser picks one for each query.

    `timeout` is per query in seconds, `memory` in bytes per member, `cores` per member; or `total` cores per
    query, which members that run side by side share. With a `store`,
    answers are looked up there first and written there at once. `infer` allows monotone inference. An
    executor that is not given is made (and closed) here; `workers` says how many queries run at a time (by
    default as many as the executor has room for). `plugins` are those that are installed, unless others are given:
    every name is looked up among them, here and in the workers, and they are told what happens.
    """

    def __init__(
        self,
        portfolio: Portfolio | Chooser | None = None,
        executor: Executor | str | None = None,
        store: Store | None = None,
        *,
        timeout: float = math.inf,
        memory: int | None = None,
        cores: int = 1,
        total: int = 0,
        seed: int = 0,
        device: str = "cpu",
        workers: int | None = None,
        infer: bool = True,
        alarm: bool = True,
        plugins: Plugins | None = None,
    ) -> None:
        self.plugins = current_plugins() if plugins is None else plugins
        self.portfolio = portfolio if isinstance(portfolio, Portfolio) else None
        self._chooser = portfolio if isinstance(portfolio, Chooser) else None
        self.store = store
        self._settings = Settings(timeout, memory, cores, seed, device, total=total)
        self.infer, self.alarm = infer, alarm
        self.start_counts = False  # whether a query's time runs while the first worker starts
        self._knowledge = Knowledge()
        width = total or (self.portfolio or self.chooser).width
        if isinstance(executor, Executor):
            self._executor, self._owned = equip(executor, self.plugins), False
        else:
            made = self.plugins.make_executor(executor or "process", (workers or 1) * width, device)
            self._executor, self._owned = equip(made, self.plugins), True
        self.concurrency = workers or max(1, self._executor.workers // width)
        self._threads = ThreadPoolExecutor(self.concurrency, "oracle")
        self._cache: dict[str, tuple[Answer, float, bool]] = {}
        self._lock = threading.Lock()
        self._open: set[Asking] = set()
        self._handles: set[Handle] = set()  # of batches
        self.counts: dict[str, int] = {}

    @cached_property
    def chooser(self) -> Chooser:
        """Who picks the portfolio of a query where there is no `portfolio` for all of them."""
        return self._chooser or find_chooser(plugins=self.plugins)

    @property
    def batch_portfolio(self) -> Portfolio:
        """Whose attack and bounder work on batches."""
        return self.portfolio or self.chooser.for_batches

    @property
    def portfolio_key(self) -> str:
        """A hash of what decides queries here; runs that can be continued go by it."""
        return self.portfolio.identity if self.portfolio is not None else self.chooser.key

    def ask(self, query: Query, timeout: float | None = None, attacked: bool = False) -> Answer:
        """Decide one query. If it was `attacked` already, members that only falsify are passed over."""
        asking = self.submit(query, timeout, attacked=attacked)
        try:
            return asking.answer()
        except BaseException:
            asking.cancel()
            raise

    def ask_many(
        self, queries: Iterable[Query], timeout: float | None = None, attacked: bool = False
    ) -> Iterator[tuple[int, Answer]]:
        """Decide many; gives (position, answer) as they finish. Leaving the loop early cancels the rest."""
        total = len(queries) if isinstance(queries, Sequence) else 0
        waiting, running, done = enumerate(queries), set[Asking](), 0
        try:
            while True:
                while len(running) < 2 * self.concurrency:
                    index, query = next(waiting, (-1, None))
                    if query is None:
                        break
                    running.add(self.submit(query, timeout, index, attacked))
                if not running:
                    return
                for asking in self.wait(list(running)):
                    running.remove(asking)
                    done += 1
                    self._hook.progress(done=done, total=total, message=asking.query.name)
                    yield asking.index, asking.answer()
        finally:
            for asking in running:
                asking.cancel()

    def submit(
        self, query: Query, timeout: float | None = None, index: int = 0, attacked: bool = False
    ) -> Asking:
        """Start to decide a query; an answer that is known already is there at once."""
        asking = Asking(query, index, attacked)
        settings = self._settings if timeout is None else replace(self._settings, timeout=timeout)
        known = self._known(asking, settings)
        if known is not None:
            asking._settle(lambda: self._finish(query, known))
            return asking
        with self._lock:
            self._open.add(asking)
        self._threads.submit(self._work, asking, settings)
        return asking

    def wait(self, askings: Sequence[Asking], timeout: float | None = None) -> list[Asking]:
        """Those that are done; blocks until one is, or until `timeout` seconds have passed."""
        if not any(a.done() for a in askings):
            wait_futures([a._future for a in askings], timeout, FIRST_COMPLETED)
        return [a for a in askings if a.done()]

    def closest(self, query: Query, ball: Ball, timeout: float | None = None) -> Closest:
        """The closest counterexample to the ball's centre, by the portfolio's first member that minimises."""
        settings = self._settings if timeout is None else replace(self._settings, timeout=timeout)
        chosen = minimiser(self.portfolio or self.chooser.choose(query), self.plugins)
        found = find_closest(query, ball, chosen, self._run, settings)
        if found.witness is not None:
            self._share(query, found.witness, found.verifier)
        return found

    def attack(self, batch: Batch, seconds: float = math.inf, starts: Starts | None = None) -> list[Answer]:
        """Attack many questions at once, for so many seconds in all, from known points by question."""
        return self._batches.attack(batch, seconds, starts or {})

    def bound(self, batch: Batch, seconds: float = math.inf) -> list[Answer]:
        """Bound many questions at once; UNSAT is a proof by bounds alone, `bound` what they say otherwise."""
        return self._batches.bound(batch, seconds)

    def neuron_bounds(self, query: Query, seconds: float = math.inf) -> Bounds | None:
        """The tightest bounds of the neurons of a query with one input region, if somebody here has any."""
        return self._batches.neurons(query, seconds)

    def replay(
        self, batch: Batch, points: Sequence[tuple[int, NDArray[np.floating]]], seconds: float = math.inf
    ) -> list[Sighting]:
        """Judge points, each of a domain of the batch: which of the atoms there are satisfied at it."""
        return self._batches.replay(batch, points, seconds)

    def judge(self, query: Query, x: NDArray[np.floating], timeout: float | None = None) -> Witness | None:
        """The witness near a point, judged in a worker, or None; later queries start from it.

        A judgement that does not come about is an error: it must not pass for a point that is none.
        """
        witness = self._batches.judge(query, x, CONFIRM_SECONDS if timeout is None else timeout)
        if witness is not None:
            self._share(query, witness, "replay")
        return witness

    def compute(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function gives, called in a worker, which has to be able to import it; for values of networks."""
        return self._batches.compute(function, *args, **kwargs)

    def radius_bounds(
        self,
        starts: Sequence[RadiusStart],
        tolerance: float,
        seconds: float,
        radii: int = 12,
        again: bool = False,
    ) -> list[RadiusBounds]:
        """Both sides of the critical radii of inputs of one network, by batched bounds and attacks alone.

        `seconds` are for all inputs together; `radii` of each are bounded at once (0: none). Later queries start
        from the closest points that were found.
        """
        found = self._batches.radii(starts, tolerance, seconds, radii, again)
        for start, one in zip(starts, found, strict=True):
            if one.witness is not None:
                self._share(start.around.refutation(start.around.largest), one.witness, one.finder)
        return found

    def warm(self, wait: bool = False) -> None:
        """Begin to start the workers, and perhaps wait for them."""
        self._executor.warm(wait)

    @property
    def timeout(self) -> float:
        """Seconds per query."""
        return self._settings.timeout

    @property
    def seed(self) -> int:
        return self._settings.seed

    @property
    def memory(self) -> int | None:
        return self._settings.memory

    @property
    def device(self) -> str:
        return self._settings.device

    def close(self) -> None:
        """Cancel what runs and stop the workers."""
        with self._lock:
            unfinished: list[Asking | Handle] = [*self._open, *self._handles]
        for asking in unfinished:
            asking.cancel()
        self._threads.shutdown(wait=True)
        if self._owned:
            self._executor.close()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _known(self, asking: Asking, settings: Settings) -> Answer | None:
        """From this session, from what it implies, or from the store; or there is nothing to ask."""
        query = asking.query
        reason = emptiness(query)
        if reason:
            return Answer(Verdict.UNSAT, "specification", reason, flags=frozenset({Flag.EMPTY}))
        with self._lock:
            cached = self._cache.get(query.sha256)
        if cached is not None and serves(*cached, settings.timeout, asking.attacked):
            self._count("cached")
            return replace(cached[0], reused=True)
        inferred = self._knowledge.infer(query) if self.infer else None
        if inferred is not None:
            self._count("inferred")
            return inferred
        stored = None
        if self.store is not None:
            stored = self.store.find(query, self._portfolio(asking).key, settings)
        if stored is not None:
            self._count("stored")
            return replace(self._remember(asking, stored, settings), reused=True)
        return None

    def _work(self, asking: Asking, settings: Settings) -> None:
        with self.plugins.in_use():
            asking._settle(lambda: self._decide(asking, settings))
        with self._lock:
            self._open.discard(asking)

    def _decide(self, asking: Asking, settings: Settings) -> Answer:
        query = asking.query
        if asking._cancelled:
            return Answer(Verdict.CANCELLED, reason="cancelled before it started")
        known = self._known(asking, settings)  # a neighbour may have been decided meanwhile
        if known is not None:
            return self._finish(query, known)
        self._hook.query_started(query=query)
        portfolio = self._portfolio(asking)
        walk = Walk(
            query,
            portfolio,
            self._executor,
            settings,
            self._evidence(asking),
            partial(self._pass_on, query),
            partial(working, self._hook),
        )
        if not self.start_counts:
            self._executor.warm(wait=True)
            self.start_counts = True  # the others find workers, or wait for a place as for anything else
        if not asking._begin(walk):
            return Answer(Verdict.CANCELLED, reason="cancelled before it started")
        self._count("run")
        answer = self._remember(asking, self._replayed(query, settings) or walk.run(), settings)
        if self.store is not None and answer.verdict is not Verdict.CANCELLED:
            self.store.save(query, answer, portfolio, settings)
        return self._finish(query, answer)

    def _replayed(self, query: Query, settings: Settings) -> Answer | None:
        """A witness that an earlier soundness revision stored, if it is one still."""
        x = None if self.store is None else self.store.old_witness(query)
        seconds = min(settings.timeout, CONFIRM_SECONDS)
        return None if x is None else still_a_witness(self.judge, query, x, seconds)

    @property
    def _batches(self) -> Batches:
        return Batches(self.batch_portfolio, self._settings, self._run, self.plugins)

    def _run(self, job: Job) -> Result | None:
        """The result of a job that is no query's; it ends when the oracle is closed."""
        if not self.start_counts:
            self._executor.warm(wait=True)
            self.start_counts = True
        handle = self._executor.submit(job)
        with self._lock:
            self._handles.add(handle)
        try:
            with working(self._hook, names_in(job.payload), MANY):
                return handle.result()
        finally:
            with self._lock:
                self._handles.discard(handle)

    def _share(self, query: Query, witness: Witness, finder: str) -> None:
        """Later queries start from a point that batches found; one that meets a proof is an alarm."""
        if self.infer:
            found = Answer(Verdict.SAT, finder, witness=witness, flags=witness.flags)
            answer = self._knowledge.learn(query, found)
            if self.alarm:
                raise_alarm(answer)

    def _evidence(self, asking: Asking) -> Evidence:
        """Points to start from, and whether the asker has attacked already."""
        hints = self._knowledge.hints(asking.query) if self.infer else []
        return Evidence(candidates=[w.x.astype("float64") for w in hints], attacked=asking.attacked)

    def _remember(self, asking: Asking, answer: Answer, settings: Settings) -> Answer:
        if answer.verdict is Verdict.CANCELLED:
            return answer
        answer = self._knowledge.learn(asking.query, answer)
        with self._lock:
            self._cache[asking.query.sha256] = (answer, settings.timeout, asking.attacked)
        return answer

    def _pass_on(self, query: Query, member: str, note: Note) -> None:
        """What a member reported goes to whoever listens."""
        self._hook.query_reported(query=query, verifier=member, text=note.text, warning=note.warning)

    def _finish(self, query: Query, answer: Answer) -> Answer:
        """Tell who wants to know, and raise the alarm if there is one."""
        if Flag.EMPTY in answer.flags:
            check_sizes(query)  # no member has looked at the networks
        self._hook.query_answered(query=query, answer=answer)
        if self.alarm and Flag.ALARM in answer.flags:
            raise_alarm(answer)
        return answer

    def _portfolio(self, asking: Asking) -> Portfolio:
        chosen = self.portfolio or self.chooser.choose(asking.query)
        return provers(chosen, self.plugins) if asking.attacked else chosen

    @property
    def _hook(self) -> Any:
        """The hooks of all plugins, to tell them what happens."""
        return self.plugins.manager.hook

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + 1
