"""The `ray` executor: places on a cluster, each an actor with a pool; jobs of a lost node run elsewhere."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verifolio.plugin.executor import Executor, Handle
from verifolio.plugin.options import described
from verifolio.run import End, Job, PoolError, Result, SendError

if TYPE_CHECKING:
    from verifolio.plugins.ray.cluster import Room
    from verifolio.plugins.ray.parcel import Parcel
    from verifolio.plugins.ray.place import Place

PATIENCE = 10.0  # for hosts to end what they run
WARMING = 60.0  # for further places, once the first is there
BETWEEN = 1.0  # seconds from a place that failed to the next
UNANSWERED = 30.0  # between complaints that there is no room

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayOptions:
    """Options of `ray`."""

    address: str = described(
        "", "HOST:PORT of the cluster's head; RAY_ADDRESS, or this machine's cluster, by default."
    )
    device: str = described("cpu", "With `cuda`, every place also holds a GPU.")
    retries: int = described(3, "How often a job is begun again because its node was lost.")
    idle: float = described(
        15.0, "Seconds after which a place without work is given back; others may wait for it."
    )
    preload: tuple[str, ...] = described(
        ("torch", "onnxruntime", "verifolio.solve.preload"), "Modules that every worker starts with."
    )


class RayHandle(Handle):
    """A job, where it runs, and in time its result."""

    def __init__(self, job: Job, number: int, parcel: Parcel, executor: RayExecutor) -> None:
        self.job, self.number, self.parcel = job, number, parcel
        self.inbox: list[object] = []
        self.done: Result | None = None
        self.place: Place | None = None
        self.unwanted = False
        self.losses = 0
        self._executor = executor

    def cancel(self) -> None:
        self._executor._cancel(self)

    def result(self, timeout: float | None = None) -> Result | None:
        self._executor.wait([self], timeout)
        return self.done

    def messages(self) -> tuple[object, ...]:
        return tuple(self.inbox)


class RayExecutor(Executor):
    """Jobs wait in line here until a place has the cores; Ray decides on which node a place is.

    A place holds as many cores as `share` gave each query, and has room for that many one-core jobs; it is
    asked for when jobs wait, and given back when none have come for a while. A job whose place is lost goes
    back to the head of the line; its messages are kept, because what a job has sent is true whatever becomes
    of it.
    """

    name = "ray"
    Options = RayOptions

    def __init__(self, workers: int = 1, options: Any = None) -> None:
        super().__init__(workers, options)
        self._gpu = self.options.device.startswith("cuda")
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._queue: deque[RayHandle] = deque()
        self._running: set[RayHandle] = set()
        self._places: list[Place] = []
        self._threads: list[threading.Thread] = []
        self._wanted, self._size = 1, 1
        self._failed = -BETWEEN
        self._tidying = False
        self._ray: Any = None
        self._closed = False

    @classmethod
    def available(cls) -> str | None:
        if importlib.util.find_spec("ray") is None:
            return "the package ray is not installed; pip install 'verifolio[ray]'"
        return None

    def share(self, queries: int, cores: int = 0) -> int:
        """An equal part of the cluster, on one node; places have that size, or with GPUs all of a GPU's cores."""
        from verifolio.plugin.executor import MANY_CORES
        from verifolio.plugins.ray.cluster import check

        room = self._measure()
        part = cores or max(1, min(room.cores // queries, room.largest, MANY_CORES))
        check(part, room, self._gpu)
        places = min(queries, room.devices)
        if queries * part > room.cores:
            _log.warning(
                "%d queries at a time of %d cores each, but the Ray cluster has %d: some will wait, and "
                "waiting counts as their time",
                *(queries, part, room.cores),
            )
        self._size = part if places == queries else max(part, min(room.largest, room.cores // places))
        self._wanted = max(1, min(places, room.fit(self._size)))
        return part

    def submit(self, job: Job) -> Handle:
        from verifolio.plugins.ray.cluster import check
        from verifolio.plugins.ray.parcel import Parcel, pack_job

        if job.limits.cores > self._size:
            check(job.limits.cores, self._measure(), self._gpu)
        self._connect()
        try:
            handle = RayHandle(job, next(self._numbers), pack_job(job), self)
        except SendError as error:
            handle = RayHandle(job, 0, Parcel(b"", ()), self)
            handle.done = Result(End.ERROR, detail=str(error))
            return handle
        with self._changed:
            if self._closed:
                raise PoolError("expected an open executor, got a closed one; make a new one")
            self._queue.append(handle)
            self._dispatch()
        return handle

    def wait(self, handles: Sequence[Handle], timeout: float | None = None) -> list[Handle]:
        def finished() -> list[Handle]:
            return [h for h in handles if isinstance(h, RayHandle) and h.done is not None]

        if not handles:
            return []
        with self._changed:
            return self._changed.wait_for(finished, timeout)

    def warm(self, wait: bool = False) -> None:
        """Ask for as many places as queries run at a time; waiting ends early where some do not come."""
        self._connect()
        with self._changed:
            for _ in range(self._wanted - len(self._places)):
                self._open(self._size)
        if wait:
            self._await_places(1, None)
            self._await_places(self._wanted, WARMING)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for handle in self._queue:
                handle.done = Result(End.CANCELLED, detail="the executor was closed")
            self._queue.clear()
            places, self._places = self._places, []
            self._changed.notify_all()
        self._end(places)
        for thread in list(self._threads):
            thread.join(PATIENCE)

    def _connect(self) -> Any:
        from verifolio.plugins.ray.cluster import connect

        if self._ray is None:
            self._ray = connect(self.options.address)
        return self._ray

    def _measure(self) -> Room:
        from verifolio.plugins.ray.cluster import measure

        return measure(self._connect(), self._gpu)

    def _await_places(self, count: int, patience: float | None) -> None:
        """Until so many places are ready, fewer are coming, or patience ends."""
        begin = time.monotonic()

        def enough() -> bool:
            ready = sum(p.ready for p in self._places)
            return self._closed or ready >= min(count, len(self._places))

        with self._changed:
            while not self._changed.wait_for(enough, UNANSWERED if patience is None else patience):
                if patience is not None:
                    return
                _log.warning(
                    "no worker on the Ray cluster is ready after %.0f s: it has no room, or starts slowly",
                    time.monotonic() - begin,
                )

    # The line. These run with the condition held.

    def _dispatch(self) -> None:
        """Give the first jobs in line to places, and ask for more places if that leaves some waiting."""
        while self._queue and len(self._running) < self.workers:
            handle = self._queue[0]
            place = self._choose(handle)
            if place is None:
                self._grow()
                return
            self._queue.popleft()
            self._running.add(handle)
            handle.place = place
            place.take(handle.job)
            self._spawn(self._run, handle, place)
        if not self._queue:  # what was asked for, and has not come, is not needed
            coming = [p for p in self._places if not p.ready]
            self._retire(coming[: max(0, len(self._places) - self._wanted)])

    def _choose(self, handle: RayHandle) -> Place | None:
        """A place with enough cores: one that knows the job's networks, else the emptiest."""
        cores, affinity = handle.job.limits.cores, handle.job.affinity
        fitting = [p for p in self._places if p.ready and not p.retired and p.free >= cores]
        return max(fitting, key=lambda p: (affinity in p.affinities, p.free), default=None)

    def _grow(self) -> None:
        cores = [h.job.limits.cores for h in itertools.islice(self._queue, self.workers)]
        size = max(self._size, cores[0])
        if all(p.size < cores[0] for p in self._places):
            self._retire(self._places)  # nothing here will ever do, and may be in the way
        coming = sum(p.size for p in self._places if not p.ready and p.size >= cores[0])
        if coming >= sum(cores):
            return
        # what has no room now would wait at some node, and be lost with it; one that waits is enough
        room = max(self._measure().fit(size) - len(self._places), 0 if coming else 1)
        for _ in range(min(room, -(-(sum(cores) - coming) // size))):
            self._open(size)

    def _retire(self, places: Sequence[Place]) -> None:
        """Give places nothing more to do, and end them when they are idle."""
        for place in places:
            place.retired = True
        idle = [p for p in places if p.free == p.size]
        self._places = [p for p in self._places if p not in idle]
        if idle:
            self._spawn(self._end, idle)

    def _open(self, size: int) -> None:
        from verifolio.plugins.ray.place import Place

        if not self._tidying:
            self._tidying = True
            self._spawn(self._tidy)
        place = Place(self._ray, size, self._gpu, self.options.preload)
        self._places.append(place)
        self._spawn(self._welcome, place)

    def _spawn(self, target: Any, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="verifolio-ray", daemon=True)
        self._threads = [t for t in self._threads if t.is_alive() or t.ident is None]
        self._threads.append(thread)
        thread.start()

    def _again(self, handle: RayHandle, reason: str) -> None:
        """Back to the head of the line, unless nobody wants the job or it was lost too often."""
        handle.place = None
        handle.losses += 1
        if handle.unwanted or self._closed:
            handle.done = Result(End.CANCELLED, detail="cancelled", messages=tuple(handle.inbox))
        elif handle.losses > self.options.retries:
            detail = f"lost {handle.losses} times; the last time: {reason}"
            handle.done = Result(End.CRASH, detail=detail, messages=tuple(handle.inbox))
        elif handle not in self._queue:
            self._queue.appendleft(handle)

    def _blame(self, reason: str) -> None:
        """Places that do not start cost the first job in line a try, or it would wait for ever.

        Those that fail together, as on a node that is lost, count once.
        """
        now = time.monotonic()
        if self._queue and now >= self._failed + BETWEEN:
            self._again(self._queue[0], reason)
            self._queue = deque(h for h in self._queue if h.done is None)
        self._failed = now

    # Threads: one for every place that is coming, one for every job that runs, one that tidies up.

    def _tidy(self) -> None:
        """Give back what has been idle for long: two executors could otherwise wait for each other for ever."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._closed, self.options.idle / 4):
                limit = time.monotonic() - self.options.idle
                self._retire([p for p in self._places if p.ready and p.idle_since < limit])

    def _welcome(self, place: Place) -> None:
        """Wait until a place is there, or will never be."""
        complaint = place.meet()
        if complaint:
            time.sleep(BETWEEN)  # not the next attempt at once: it would fail, too
        with self._changed:
            if not complaint:
                place.ready, place.idle_since = True, time.monotonic()
            elif place in self._places:
                self._places.remove(place)
                _log.warning("a place on the Ray cluster did not start: %s", complaint)
                self._blame(f"no worker could be started: {complaint}")
            unwelcome = self._closed
            self._dispatch()
            self._changed.notify_all()
        if complaint or unwelcome:
            place.kill()

    def _run(self, handle: RayHandle, place: Place) -> None:
        from verifolio.plugins.ray.place import Lost

        try:
            result = place.perform(handle.number, handle.parcel, handle.job, handle.inbox)
        except Lost as lost:
            place.kill()  # if it lives on somewhere, it must not work on what is given to another
            with self._changed:
                if place in self._places:
                    self._places.remove(place)
                    _log.warning("%s was lost: %s; its jobs are begun again elsewhere", place.name, lost)
                    # its neighbours may be gone as well, and would cost the job its tries one by one
                    self._retire([p for p in self._places if p.node and p.node == place.node])
                self._running.discard(handle)
                self._again(handle, str(lost))
                self._dispatch()
                self._changed.notify_all()
            return
        with self._changed:
            handle.done = result
            self._running.discard(handle)
            place.give_back(handle.job)
            if place.retired and place in self._places:
                self._retire([place])
            self._dispatch()
            self._changed.notify_all()

    def _cancel(self, handle: RayHandle) -> None:
        with self._changed:
            handle.unwanted = True
            if handle in self._queue:
                self._queue.remove(handle)
                handle.done = Result(
                    End.CANCELLED, detail="cancelled before it started", messages=tuple(handle.inbox)
                )
                self._dispatch()
                self._changed.notify_all()
            place = handle.place if handle.done is None else None
        if place is not None:
            place.cancel(handle.number)

    def _end(self, places: Sequence[Place]) -> None:
        """Have places end what they run, then end them."""
        if not places:
            return
        ending = [ref for place in places if place.ready and (ref := place.close()) is not None]
        if ending:
            self._ray.wait(ending, num_returns=len(ending), timeout=PATIENCE)
        for place in places:
            place.kill()
