"""A job in bytes: networks travel as hashes, so that nodes without the driver's files can be given them."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifolio.onnx_import.network import Network
from verifolio.run import Job, Link, SendError
from verifolio.run.wire import describe, pack


@dataclass(frozen=True)
class Parcel:
    """A job's function and payload, and the networks they speak of."""

    body: bytes
    networks: tuple[Network, ...]


@dataclass(frozen=True)
class Delivery:
    """A parcel's body on the node where it is opened, with the node's own path of every network."""

    body: bytes
    paths: Mapping[str, str]


class _Packer(pickle.Pickler):
    """Notes every network and leaves its hash in its place."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.networks: dict[str, Network] = {}

    def persistent_id(self, obj: Any) -> tuple[str, tuple[str, ...]] | None:
        if type(obj) is not Network:
            return None
        self.networks[obj.sha256] = obj
        return obj.sha256, obj.exposed


class _Opener(pickle.Unpickler):
    """Puts the node's own files where the hashes are."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(io.BytesIO(delivery.body))
        self._paths = delivery.paths

    def persistent_load(self, pid: tuple[str, tuple[str, ...]]) -> Network:
        sha256, exposed = pid
        return Network(Path(self._paths[sha256]), sha256, exposed)


def pack_job(job: Job) -> Parcel:
    """What crosses to a node; raises SendError where that is impossible."""
    stream = io.BytesIO()
    packer = _Packer(stream)
    try:
        packer.dump((job.function, job.payload))
    except Exception as error:  # any `__reduce__` may raise anything
        raise SendError(f"the job cannot be pickled: {describe(error)}") from error
    return Parcel(stream.getvalue(), tuple(packer.networks.values()))


def run_delivery(delivery: Delivery, link: Link) -> bytes:
    """The function a worker calls: opens the job, runs it, and packs what it sends and gives.

    So the process between worker and driver carries bytes and imports nothing of what is in them.
    """
    try:
        function, payload = _Opener(delivery).load()
    except Exception as error:  # a module that this node does not have, for one
        raise SendError(f"the job cannot be unpickled: {describe(error)}") from error
    inner = Link(time.monotonic() + link.remaining(), link.cancelled, lambda m: link.send(pack(m, "message")))
    return pack(function(payload, inner), "return value")
