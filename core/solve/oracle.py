"""The oracle: the only way estimators reach backends. Caches, infers, runs in parallel, can be cancelled."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_futures
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.model.binding import check_sizes
from verifolio.model.emptiness import emptiness
from verifolio.model.problem import Ball
from verifolio.model.query import Query
from verifolio.plugin.choice import Choice
from verifolio.plugin.equipped import equip
from verifolio.plugin.evidence import Evidence
from verifolio.plugin.executor import Executor
from verifolio.plugin.manager import Plugins, current_plugins
from verifolio.plugin.verifier import Verifier
from verifolio.portfolio.chooser import Chooser, find_chooser
from verifolio.portfolio.tree import Portfolio, provers
from verifolio.run import Job, Limits
from verifolio.run.settings import Settings
from verifolio.solve.attempt import JudgeTask, Note, run_judge, strip
from verifolio.solve.closest import Closest, find_closest, minimiser
from verifolio.solve.walk import CONFIRM_SECONDS, Walk
from verifolio.trust.conflict import raise_alarm
from verifolio.trust.knowledge import Knowledge

if TYPE_CHECKING:
    from verifolio.storage.store import Store


class Asking:
    """A query that was submitted; `index` is whatever the asker wants to remember it by."""

    def __init__(self, query: Query, index: int = 0, attacked: bool = False) -> None:
        self.query = query
        self.index = index
        self.attacked = attacked
        self.submitted = time.monotonic()
        self._future: Future[Answer] = Future()
        self._walk: Walk | None = None
        self._lock = threading.Lock()
        self._cancelled = False

    def done(self) -> bool:
        return self._future.done()

    def answer(self, timeout: float | None = None) -> Answer:
        """The answer, waiting for it; raises what went wrong, or TimeoutError."""
        return self._future.result(timeout)

    def cancel(self) -> None:
        """Stop working on it: the answer becomes CANCELLED unless there is one already."""
        with self._lock:
            self._cancelled = True
            walk = self._walk
        if walk is not None:
            walk.cancel()

    def _begin(self, walk: Walk) -> bool:
        with self._lock:
            self._walk = walk
            return not self._cancelled

    def _settle(self, decide: Callable[[], Answer]) -> None:
        try:
            self._future.set_result(decide())
        except BaseException as error:  # handed to whoever asks for the answer
            self._future.set_exception(error)


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
        self.settings = Settings(timeout, memory, cores, seed, device, total=total)
        self.infer, self.alarm = infer, alarm
        self.start_counts = False  # whether a query's time runs while the first worker starts
        self.knowledge = Knowledge()
        width = total or (self.portfolio or self.chooser).width
        if isinstance(executor, Executor):
            self.executor, self._owned = equip(executor, self.plugins), False
        else:
            made = self.plugins.make_executor(executor or "process", (workers or 1) * width, device)
            self.executor, self._owned = equip(made, self.plugins), True
        self.concurrency = workers or max(1, self.executor.workers // width)
        self._threads = ThreadPoolExecutor(self.concurrency, "oracle")
        self._cache: dict[str, tuple[Answer, float, bool]] = {}
        self._lock = threading.Lock()
        self._open: set[Asking] = set()
        self.counts: dict[str, int] = {}

    @cached_property
    def chooser(self) -> Chooser:
        """Who picks the portfolio of a query where there is no `portfolio` for all of them."""
        return self._chooser or find_chooser(plugins=self.plugins)

    @property
    def portfolio_key(self) -> str:
        """A hash of what decides queries here; runs that can be continued go by it."""
        return (self.portfolio or self.chooser).key

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
        settings = self.settings if timeout is None else replace(self.settings, timeout=timeout)
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

    def closest(
        self,
        query: Query,
        ball: Ball,
        verifier: Choice | Verifier | None = None,
        timeout: float | None = None,
    ) -> Closest:
        """The closest counterexample to the ball's centre, by a verifier that minimises."""
        settings = self.settings if timeout is None else replace(self.settings, timeout=timeout)
        chosen = verifier or minimiser(self.plugins)
        return find_closest(query, ball, chosen, self.executor, settings)

    def close(self) -> None:
        """Cancel what runs and stop the workers."""
        with self._lock:
            unfinished = list(self._open)
        for asking in unfinished:
            asking.cancel()
        self._threads.shutdown(wait=True)
        if self._owned:
            self.executor.close()

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
        if cached is not None and _serves(*cached, settings.timeout, asking.attacked):
            self._count("cached")
            return replace(cached[0], reused=True)
        inferred = self.knowledge.infer(query) if self.infer else None
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
            query, portfolio, self.executor, settings, self._evidence(asking), partial(self._pass_on, query)
        )
        if not self.start_counts:
            self.executor.warm(wait=True)
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
        if x is None:
            return None
        seconds = min(settings.timeout, CONFIRM_SECONDS)
        limits = Limits(seconds, settings.memory, settings.cores, settings.grace)
        affinity = "".join(n.sha256 for n in query.networks)
        result = self.executor.submit(Job(run_judge, JudgeTask(strip(query), x), limits, affinity)).result()
        if result is None or not isinstance(result.value, Witness):
            return None
        witness, reason = result.value, "a stored witness, replayed"
        return Answer(Verdict.SAT, "store", reason, witness, witness.flags, result.seconds)

    def _evidence(self, asking: Asking) -> Evidence:
        """Points to start from, and whether the asker has attacked already."""
        hints = self.knowledge.hints(asking.query) if self.infer else []
        return Evidence(candidates=[w.x.astype("float64") for w in hints], attacked=asking.attacked)

    def _remember(self, asking: Asking, answer: Answer, settings: Settings) -> Answer:
        if answer.verdict is Verdict.CANCELLED:
            return answer
        answer = self.knowledge.learn(asking.query, answer)
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


def _serves(answer: Answer, had: float, provers_only: bool, timeout: float, attacked: bool) -> bool:
    """Whether a remembered answer serves: decided, or undecided by as many members with as much time."""
    return answer.verdict.decided or (had >= timeout and (attacked or not provers_only))
