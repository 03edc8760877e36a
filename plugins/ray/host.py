"""The actor: a pool of workers on one node, which keeps clock, memory and kills as on any machine."""

from __future__ import annotations

import contextlib
import os
import platform
import select
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

import verifolio
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.plugins.ray.parcel import Delivery, run_delivery
from verifolio.run import Job, Limits, Link, Pool, Result, Ticket


@dataclass(frozen=True)
class Hello:
    """Who a host is; `identity` is Ray's for the node."""

    identity: str
    node: str
    process: int
    version: str


class Host:
    """Runs jobs of up to `cores` cores together; the driver counts, and Ray keeps the cores for it.

    Everything below it watches this process and dies with it; it dies with its raylet, because work that no
    raylet knows of would never be stopped.
    """

    def __init__(self, cores: int, preload: Sequence[str]) -> None:
        _die_with(os.getppid())
        self._folder: Path | None = None  # most nodes have the driver's files, and need none
        self._paths: dict[str, str] = {}
        self._lock = threading.Lock()
        self._inboxes: dict[Ticket, SimpleQueue[bytes | None]] = {}
        self._running: dict[int, Ticket] = {}
        self._unwanted: set[int] = set()
        self._pool = Pool(cores, preload, self._deliver)

    def hello(self) -> Hello:
        """Answers when a worker has: imports are over then."""
        self._pool.submit(Job(_nothing)).wait()
        import ray

        identity = ray.get_runtime_context().get_node_id()
        return Hello(identity, platform.node(), os.getpid(), verifolio.__version__)

    def lacks(self, networks: Sequence[Network]) -> list[str]:
        """The hashes of the networks that are not on this node under the driver's path."""
        for network in networks:
            if network.sha256 not in self._paths and _holds(network):
                self._paths[network.sha256] = str(network.path)
        return [n.sha256 for n in networks if n.sha256 not in self._paths]

    def keep(self, network: Network, content: bytes) -> None:
        """Write a network that this node lacks into a folder of its own."""
        with self._lock:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="verifolio-ray-"))
        target = self._folder / network.sha256 / network.path.name
        target.parent.mkdir(exist_ok=True)
        partial = target.with_name(f"{target.name}.{threading.get_ident()}")
        partial.write_bytes(content)
        partial.replace(target)
        self._paths[network.sha256] = str(target)

    def perform(self, number: int, body: bytes, limits: Limits, affinity: str) -> Iterator[bytes | Result]:
        """Run a job; gives its messages as they come, then its result, all of them packed."""
        inbox: SimpleQueue[bytes | None] = SimpleQueue()
        job = Job(run_delivery, Delivery(body, dict(self._paths)), limits, affinity)
        with self._lock:
            ticket = self._pool.submit(job)
            self._running[number], self._inboxes[ticket] = ticket, inbox
            unwanted = number in self._unwanted
        if unwanted:
            ticket.cancel()
        threading.Thread(target=_announce_end, args=(ticket, inbox), daemon=True).start()
        while (message := inbox.get()) is not None:
            yield message
        with self._lock:
            del self._running[number], self._inboxes[ticket]
        if ticket.result is not None:
            yield replace(ticket.result, messages=())

    def cancel(self, number: int) -> None:
        """Stop a job, even one that has yet to arrive: calls may overtake each other."""
        with self._lock:
            self._unwanted.add(number)
            ticket = self._running.get(number)
        if ticket is not None:
            ticket.cancel()

    def close(self) -> None:
        """Kill everything; returns when nothing of it is left."""
        self._pool.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _deliver(self, ticket: Ticket, message: object) -> None:
        with self._lock:  # a job is only known once `perform` lets go of it
            inbox = self._inboxes.get(ticket)
        if inbox is not None and isinstance(message, bytes):
            inbox.put(message)


def _announce_end(ticket: Ticket, inbox: SimpleQueue[bytes | None]) -> None:
    """All messages of a job have been delivered before its result is there."""
    ticket.wait()
    inbox.put(None)


def _holds(network: Network) -> bool:
    """Whether the driver's path leads to the same content here."""
    try:
        network.content()
    except InputError:
        return False
    return True


def _die_with(raylet: int) -> None:
    """Leave at once when the raylet is gone: Ray itself takes seconds, or waits for running calls."""

    def watch(descriptor: int) -> None:
        select.select([descriptor], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    with contextlib.suppress(AttributeError, OSError):  # not on Linux: Ray's own way has to do
        descriptor = os.pidfd_open(raylet)
        threading.Thread(target=watch, args=(descriptor,), name="verifolio-raylet", daemon=True).start()


def _nothing(payload: object, link: Link) -> None:
    """The job that only makes the pool start."""
