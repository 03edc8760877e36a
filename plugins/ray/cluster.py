"""The driver's connection to a Ray cluster, and what the cluster has."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from dataclasses import dataclass
from typing import Any

from verifolio.errors import InputError

ADDRESS_VARIABLE = "RAY_ADDRESS"
HERE = "auto"  # Ray's word for the cluster that this machine belongs to
KNOCK = 5.0  # seconds for an answer of a port: a machine that is there answers at once
_START = "start one with `ray start --head`, and further nodes with `ray start --address=HOST:PORT`"

_connecting = threading.Lock()


@dataclass(frozen=True)
class Room:
    """The nodes that are alive; of those that can take a job, all cores, those of the largest, and all GPUs.

    Where jobs want no GPU, `devices` is just no limit.
    """

    nodes: int
    cores: int
    largest: int
    devices: int

    def fit(self, size: int) -> int:
        """How many places of so many cores there can be."""
        return min(self.cores // size, self.devices)


def connect(address: str) -> Any:
    """The module `ray`, connected; a connection that this process has already is used."""
    import ray

    wanted = address or os.environ.get(ADDRESS_VARIABLE, "") or HERE
    if wanted.startswith("ray://"):
        raise InputError(
            "--address",
            "HOST:PORT of the cluster's head",
            wanted,
            "run this on a machine of the cluster; `ray start --num-cpus=0 --address=...` makes it one",
        )
    with _connecting:
        if not ray.is_initialized():
            _knock(wanted)
            try:
                ray.init(
                    address=wanted, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR
                )
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                got = " ".join(str(error).split())[:300]
                raise InputError(f"Ray at {wanted}", "a running cluster", got, _START) from None
            _keep_output_clean()
    return ray


def _knock(address: str) -> None:
    """Find out at once whether somebody listens; Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
    except OSError as error:
        raise InputError(f"Ray at {address}", "a running cluster", str(error), _START) from None


def _keep_output_clean() -> None:
    """Ray prints news of the cluster to standard output, amid what a command prints; no option says not to."""
    with contextlib.suppress(ImportError):
        from ray._private import worker

        if hasattr(worker, "_worker_logs_enabled"):
            worker._worker_logs_enabled = False


def measure(ray: Any, gpu: bool) -> Room:
    """The room of the nodes that are alive (and have a GPU, if jobs want one); there may be none."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    able = [r for r in alive if not gpu or r.get("GPU", 0) >= 1]
    cores = [int(r.get("CPU", 0)) for r in able]
    devices = sum(int(r["GPU"]) for r in able) if gpu else sum(cores)
    return Room(len(alive), sum(cores), max(cores, default=0), devices)


def check(cores: int, room: Room, gpu: bool) -> None:
    """Complain where no node could ever take a job of so many cores."""
    if room.cores == 0:
        what = "a node with cores and a GPU" if gpu else "a node with cores"
        remedy = "start nodes with `ray start --num-cpus=N --num-gpus=M --address=HOST:PORT`"
        raise InputError("Ray cluster", what, f"{room.nodes} node(s) without", remedy)
    if cores > room.largest:
        expected = f"at most the {room.largest} cores of the largest node of the Ray cluster"
        raise InputError("--cores", expected, str(cores), "a verifier runs on one node")
