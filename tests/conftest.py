"""Fixtures for all tests."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

STORE = 80 * 2**20  # bytes of shared memory per node; Ray takes a third of the machine by default
QUICK = {  # a node that is gone is noticed in three seconds, not in twenty
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by default, which on a busy machine means never
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(autouse=True)
def outlive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that a test calls, and that a busy machine makes late, fails that test and does not end pytest."""
    monkeypatch.setattr("verifolio.cli.clock.end_process", lambda code, words: None)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what it runs in the background deaf to interrupts, and so are the processes below it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A real Ray cluster on this machine, one for each module of tests: head and one more node, a core each.

    The second node also claims to have a GPU.
    """
    pytest.importorskip("ray", reason="the package ray is not installed: pip install 'verifolio[ray]'")
    before = {k: os.environ.get(k) for k in SETTINGS}
    os.environ.update(SETTINGS)
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": STORE, "include_log_monitor": False}
    head = {**node, "include_dashboard": False, "no_monitor": True, "_system_config": QUICK}
    made = Cluster(initialize_head=True, head_node_args=head)
    started = {p.pid for p in psutil.Process().children(recursive=True)}
    try:
        made.add_node(**node, num_gpus=1)
        made.wait_for_nodes()
        yield made
        started |= {p.pid for p in psutil.Process().children(recursive=True)}
    finally:
        ray.shutdown()
        made.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)  # a test that set it, too, may have removed it
            os.environ.update({} if value is None else {name: value})
    assert gone(started, 10.0) == set(), "processes of the cluster are left"


def gone(pids: set[int], within: float) -> set[int]:
    """Wait for processes to end; gives those that did not."""
    limit = time.monotonic() + within
    while (left := {p for p in pids if alive(p)}) and time.monotonic() < limit:
        time.sleep(0.02)
    return left


def alive(pid: int) -> bool:
    """A process that is not yet collected by its parent does no work any more."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
