"""A place: the driver's view of one host, its free cores, and the calls that cross to it."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import verifolio
from verifolio.plugins.ray.host import Hello, Host
from verifolio.plugins.ray.parcel import Parcel
from verifolio.run import End, Job, Result, SendError
from verifolio.run.wire import unpack

SPARE = 8  # calls that a host answers beside its jobs


class Lost(Exception):
    """The host is gone, or cannot be reached any more."""


class Place:
    """`size` cores of one node, held by an actor from the moment Ray finds them."""

    def __init__(self, ray: Any, size: int, gpu: bool, preload: Sequence[str]) -> None:
        self.size = self.free = size
        self.ready = self.retired = False
        self.node = ""
        self.idle_since = math.inf
        self.name = "a place on the Ray cluster"
        self.affinities: set[str] = set()
        self._ray = ray
        self._supplied: set[str] = set()
        self._supplying = threading.Lock()
        remote = ray.remote(Host).options(
            num_cpus=size,
            num_gpus=1 if gpu else 0,
            max_concurrency=2 * size + SPARE,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        self._actor = remote.remote(size, tuple(preload))

    def take(self, job: Job) -> None:
        self.free -= job.limits.cores
        self.idle_since = math.inf
        if job.affinity:
            self.affinities.add(job.affinity)

    def give_back(self, job: Job) -> None:
        self.free += job.limits.cores
        self.idle_since = time.monotonic() if self.free == self.size else math.inf

    def meet(self) -> str:
        """Wait until the host has workers; why it never will, or nothing."""
        try:
            hello: Hello = self._ray.get(self._actor.hello.remote())
        except self._ray.exceptions.RayError as error:
            return _brief(error)
        ours = verifolio.__version__
        if hello.version != ours:
            return f"expected verifolio {ours} on node {hello.node}, got {hello.version}; install the same"
        self.node = hello.identity
        self.name = f"node {hello.node}, process {hello.process}"
        return ""

    def perform(self, number: int, parcel: Parcel, job: Job, inbox: list[object]) -> Result:
        """Run a job there, its messages going to `inbox`; raises Lost if the host is."""
        errors = self._ray.exceptions
        try:
            self._supply(parcel)
            return self._follow(number, parcel, job, inbox)
        except OSError as error:
            return Result(End.ERROR, detail=f"a network could not be sent: {error}", messages=tuple(inbox))
        except errors.RayTaskError as error:
            return Result(End.CRASH, detail=f"the host failed: {_brief(error)}", messages=tuple(inbox))
        except errors.RayError as error:
            raise Lost(_brief(error)) from None

    def _follow(self, number: int, parcel: Parcel, job: Job, inbox: list[object]) -> Result:
        """Start the job and take what comes back; the last item is its result."""
        spoiled = ""
        stream = self._actor.perform.options(num_returns="streaming").remote(
            number, parcel.body, job.limits, job.affinity
        )
        for reference in stream:
            item = self._ray.get(reference)
            if isinstance(item, Result):
                return _opened(item, tuple(inbox), spoiled)
            try:
                inbox.append(unpack(item, "message"))
            except SendError as error:
                spoiled = spoiled or str(error)
        raise Lost("the host ended without a result")

    def cancel(self, number: int) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._actor.cancel.remote(number)

    def close(self) -> Any:
        """Have the host end what it runs; gives a reference to wait for, if it can still be asked."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            return self._actor.close.remote()
        return None

    def kill(self) -> None:
        """End the actor; everything below it notices and ends, too."""
        with contextlib.suppress(Exception):  # Ray says in many ways that it was gone already
            self._ray.kill(self._actor)

    def _supply(self, parcel: Parcel) -> None:
        """See to it that the node has the networks, once for each."""
        with self._supplying:
            fresh = [n for n in parcel.networks if n.sha256 not in self._supplied]
            if not fresh:
                return
            lacking = set(self._ray.get(self._actor.lacks.remote(fresh)))
            for network in fresh:
                if network.sha256 in lacking:
                    self._ray.get(self._actor.keep.remote(network, network.content()))
                self._supplied.add(network.sha256)


def _opened(result: Result, messages: tuple[object, ...], spoiled: str) -> Result:
    """A result with its value unpacked; what cannot be unpacked makes it an error."""
    value = None
    if isinstance(result.value, bytes):
        try:
            value = unpack(result.value, "return value")
        except SendError as error:
            spoiled = spoiled or str(error)
    if result.end is End.DONE and spoiled:
        result, value = replace(result, end=End.ERROR, detail=spoiled), None
    return replace(result, value=value, messages=messages)


def _brief(error: BaseException) -> str:
    """Ray's errors are pages long; the line that says most is the last one with words in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
