"""Jobs that misbehave: each ends as it should, in time, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from verifolio.run import End, Job, Limits, Pool, Result
from verifolio.testing import hostile

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as made:
        assert run(made, hostile.echo).end is End.DONE
        yield made


@pytest.fixture(autouse=True)
def _works_afterwards(pool: Pool) -> Iterator[None]:
    """After whatever a test did, the next job gets a good worker quickly, with torch in it."""
    yield
    begin = time.perf_counter()
    found = run(pool, hostile.describe_process).value
    assert isinstance(found, dict)
    assert found["torch"]
    assert time.perf_counter() - begin < 0.5  # importing torch takes over a second, a fork 0.02
    assert len(processes_below(os.getpid())) == 3  # template, supervisor, worker


def run(pool: Pool, function: Any, payload: object = None, **limits: Any) -> Result:
    result = pool.submit(Job(function, payload, Limits(**limits))).wait(30)
    assert result is not None, "no result"
    return result


def processes_below(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def gone(pid: int, within: float = 3.0) -> bool:
    limit = time.monotonic() + within
    while psutil.pid_exists(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("function", "payload", "message"),
    [
        (hostile.run_busy, None, "busy"),
        (hostile.sleep_in_c, None, "asleep"),
        (hostile.multiply_matrices, 2500, "multiplying"),
        (hostile.block_termination, None, "deaf"),
    ],
)
def test_deadline_holds_against(pool: Pool, function: Any, payload: object, message: str) -> None:
    begin = time.perf_counter()
    result = run(pool, function, payload, seconds=0.4)
    assert result.end is End.TIMEOUT
    assert time.perf_counter() - begin < 0.4 + 1.5
    assert result.messages == (message,)
    assert "0.4 seconds" in result.detail


@pytest.mark.parametrize(
    "function", [hostile.run_busy, hostile.sleep_in_c, hostile.block_termination, hostile.print_without_end]
)
def test_cancelled_job_is_gone_in_time(pool: Pool, function: Any) -> None:
    ticket = pool.submit(Job(function))
    time.sleep(0.2)
    before = processes_below(os.getpid())
    begin = time.perf_counter()
    ticket.cancel()
    result = ticket.wait(5)
    assert time.perf_counter() - begin < 1.5
    assert result is not None
    assert result.end is End.CANCELLED
    assert len(processes_below(os.getpid())) == len(before) - 1


def test_cooperative_job_keeps_its_worker(pool: Pool) -> None:
    before = run(pool, hostile.count_calls).value
    late = run(pool, hostile.cooperate, seconds=0.1)
    assert (late.end, late.value) == (End.TIMEOUT, "partial")
    assert 0.1 <= late.seconds < 0.4
    after = run(pool, hostile.count_calls).value
    assert isinstance(before, tuple)
    assert after == (before[0], before[1] + 1)


def test_waiting_job_is_cancelled_at_once(pool: Pool) -> None:
    first, second = pool.submit(Job(hostile.cooperate)), pool.submit(Job(hostile.echo))
    second.cancel()
    assert second.result is not None
    assert second.result.end is End.CANCELLED
    first.cancel()
    assert first.wait(5) is not None


def test_answer_before_the_deadline_counts(pool: Pool) -> None:
    for _ in range(20):
        assert run(pool, hostile.count_calls, 0.01, seconds=0.5).end is End.DONE


def test_pickling_counts_as_working(pool: Pool) -> None:
    assert run(pool, hostile.return_endless, seconds=0.3).end is End.TIMEOUT


@pytest.mark.parametrize("function", [hostile.allocate, hostile.allocate_in_child])
def test_memory_without_end(pool: Pool, function: Any) -> None:
    result = run(pool, function, seconds=20, memory=600 * MEGABYTE)
    assert result.end is End.MEMOUT
    assert 600 * MEGABYTE < result.peak_memory < 3000 * MEGABYTE
    assert "limit" in result.detail


def test_death_near_the_limit_is_memout(pool: Pool) -> None:
    result = run(pool, hostile.kill_self_when_fat, 500 * MEGABYTE, memory=700 * MEGABYTE)
    assert result.end is End.MEMOUT
    assert run(pool, hostile.kill_self_when_fat, MEGABYTE, memory=2000 * MEGABYTE).end is End.CRASH


def test_memory_of_earlier_jobs_is_not_held_against_a_job(pool: Pool) -> None:
    fat = run(pool, hostile.hoard, 500 * MEGABYTE).value
    assert run(pool, hostile.hoard, 1).value == fat
    thin = run(pool, hostile.hoard, 400 * MEGABYTE, memory=1000 * MEGABYTE)
    assert thin.end is End.DONE
    assert thin.value != fat


def test_memory_error_is_memout(pool: Pool) -> None:
    assert run(pool, hostile.exhaust).end is End.MEMOUT


@pytest.mark.parametrize(
    ("function", "payload", "detail"),
    [
        (hostile.abort, None, "SIGABRT"),
        (hostile.segfault, None, "SIGSEGV"),
        (hostile.leave, 3, "code 3"),
        (hostile.leave, 0, "code 0"),
        (hostile.leave_at_once, 5, "code 5"),
        (hostile.close_descriptors, None, "channel"),
        (hostile.write_to_descriptors, None, "channel"),
    ],
)
def test_crash(pool: Pool, function: Any, payload: object, detail: str) -> None:
    result = run(pool, function, payload)
    assert result.end is End.CRASH
    assert detail in result.detail


def test_crash_keeps_messages_and_log(pool: Pool) -> None:
    result = run(pool, hostile.segfault)
    assert result.messages == ("last words",)
    assert "Segmentation fault" in result.log
    assert run(pool, hostile.send_many, 5000).messages == tuple(range(5000))


@pytest.mark.parametrize(
    ("function", "detail"),
    [
        (hostile.return_unpicklable, "return value of type function cannot be pickled"),
        (hostile.return_sneaky, "return value cannot be unpickled"),
        (hostile.send_unpicklable, "message of type lock cannot be pickled"),
        (hostile.send_sneaky, "message cannot be unpickled"),
    ],
)
def test_what_cannot_cross_is_an_error(pool: Pool, function: Any, detail: str) -> None:
    result = run(pool, function)
    assert result.end is End.ERROR
    assert detail in result.detail.splitlines()[0]


def test_output_is_captured(pool: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    result = run(pool, hostile.print_garbage)
    assert (result.end, result.value) == (End.DONE, "printed")
    for text in ("to stdout", "to stderr", "garbage to descriptor 1", "from a child", "from C"):
        assert text in result.log
    assert run(pool, hostile.echo).log == ""
    assert capfd.readouterr() == ("", "")


def test_endless_output_is_bounded(pool: Pool) -> None:
    result = run(pool, hostile.print_without_end, seconds=0.3)
    assert result.end is End.TIMEOUT
    assert 1000 < len(result.log) <= 64 * 1024


def test_daemon_dies_after_its_job(pool: Pool, tmp_path: Path) -> None:
    result = run(pool, hostile.daemonise, tmp_path / "pid")
    assert result.end is End.DONE
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_daemon_dies_with_its_job(pool: Pool, tmp_path: Path) -> None:
    result = run(pool, hostile.daemonise_and_run, tmp_path / "pid", seconds=0.5)
    assert result.end is End.TIMEOUT
    assert result.messages[0] == "left a daemon"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_children_and_threads_left_behind_cost_the_worker(pool: Pool) -> None:
    child = run(pool, hostile.leave_child).value
    assert isinstance(child, int)
    assert not psutil.pid_exists(child)
    worker = run(pool, hostile.leave_thread).value
    assert isinstance(worker, int)
    assert not psutil.pid_exists(worker)


def test_only_one_of_two_forks_answers(pool: Pool) -> None:
    assert run(pool, hostile.return_twice).value == "parent"


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_replacing_a_worker_is_quick(pool: Pool) -> None:
    times = []
    for _ in range(5):
        run(pool, hostile.leave_at_once, 1)
        begin = time.perf_counter()
        run(pool, hostile.echo)
        times.append(time.perf_counter() - begin)
    print(f"a job on a new worker costs {1000 * sorted(times)[2]:.0f} ms")
    assert sorted(times)[2] < 0.2


DRIVER = """
import os, sys, time
from verifolio.run import Job, Pool
from verifolio.testing import hostile
pool = Pool(2, preload=())
busy = pool.submit(Job(hostile.block_termination))
daemon = pool.submit(Job(hostile.daemonise_and_run, sys.argv[1]))
time.sleep(60)
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_survives_the_driver(number: signal.Signals, tmp_path: Path) -> None:
    mark, temporary = tmp_path / "pid", tmp_path / "temporary"
    temporary.mkdir()
    environment = dict(os.environ) | {"TMPDIR": str(temporary)}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(mark)], env=environment, stderr=subprocess.DEVNULL
    )
    limit = time.monotonic() + 20
    while not (mark.exists() and mark.read_text() and len(processes_below(driver.pid)) >= 5):
        assert time.monotonic() < limit, "the driver did not start its jobs"
        time.sleep(0.02)
    below = [*processes_below(driver.pid), int(mark.read_text())]
    driver.send_signal(number)
    driver.wait(5)
    assert all(gone(pid) for pid in below)
    assert list(temporary.iterdir()) == []


def test_nothing_survives_a_driver_whose_fork_lives_on(tmp_path: Path) -> None:
    script = DRIVER.replace(
        "time.sleep(60)", "child = os.fork()\nif child: print(child, flush=True)\ntime.sleep(60)"
    )
    mark = tmp_path / "pid"
    driver = subprocess.Popen([sys.executable, "-c", script, str(mark)], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    fork = int(driver.stdout.readline())
    limit = time.monotonic() + 20
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < limit, "the driver did not start its jobs"
        time.sleep(0.02)
    below = [*processes_below(driver.pid), int(mark.read_text())]
    below.remove(fork)
    driver.kill()
    driver.wait(5)
    driver.stdout.close()
    try:
        assert all(gone(pid) for pid in below)
    finally:
        os.kill(fork, signal.SIGKILL)


INTERRUPTED = """
import os, signal, threading, time
from verifolio.run import Job, Pool
from verifolio.testing import hostile
try:
    with Pool(1, preload=()) as pool:
        ticket = pool.submit(Job(hostile.run_busy))
        threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()
        pool.wait([ticket])
except KeyboardInterrupt:
    import psutil
    print(ticket.result.end, len(psutil.Process().children(recursive=True)))
"""


@pytest.mark.usefixtures("interruptible")
def test_interrupt_closes_the_pool() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "cancelled 0\n"
    assert done.stderr == ""
