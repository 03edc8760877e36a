"""Well-behaved jobs: values, messages, reuse, affinity, speed."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from verifolio.run import End, Job, JobError, Limits, Link, Pool, PoolError, Result, Ticket, template
from verifolio.testing import hostile


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as made:
        yield made


def run(pool: Pool, job: Job) -> Result:
    result = pool.submit(job).wait(60)
    assert result is not None, "no result"
    return result


def test_value_comes_back(pool: Pool) -> None:
    result = run(pool, Job(hostile.echo, {"a": (1, 2.5)}))
    assert result.end is End.DONE
    assert result.value == {"a": (1, 2.5)}
    assert result.peak_memory > 1_000_000


def test_creating_a_pool_starts_nothing() -> None:
    begin = time.perf_counter()
    with Pool(4):
        pass
    assert time.perf_counter() - begin < 0.05


def test_worker_is_reused_and_its_caches_stay_warm(pool: Pool) -> None:
    first = run(pool, Job(hostile.count_calls)).value
    second = run(pool, Job(hostile.count_calls)).value
    assert isinstance(first, tuple)
    assert second == (first[0], first[1] + 1)


def test_modules_are_there_and_main_is_not_imported(pool: Pool) -> None:
    found = run(pool, Job(hostile.describe_process)).value
    assert isinstance(found, dict)
    assert found["torch"]
    assert found["onnxruntime"]
    assert found["main"] is None


def test_each_job_has_its_own_session_folder_and_environment(pool: Pool) -> None:
    first = run(pool, Job(hostile.describe_process)).value
    assert run(pool, Job(hostile.spoil_environment)).end is End.DONE
    second = run(pool, Job(hostile.describe_process)).value
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["pid"] == second["pid"] == first["session"] != os.getsid(0)
    assert first["folder"] != second["folder"]
    assert first["folder"] == first["temporary"]
    assert not Path(first["folder"]).exists()
    assert not Path(second["folder"]).exists()
    assert "VERIFOLIO_SPOILED" not in second["environment"]


def test_threads_follow_cores(pool: Pool) -> None:
    for cores in (2, 1, 3):
        found = run(pool, Job(hostile.describe_process, limits=Limits(cores=cores))).value
        assert isinstance(found, dict)
        assert found["torch_threads"] == cores
        assert found["environment"]["OMP_NUM_THREADS"] == str(cores)


def test_numpy_keeps_to_one_thread(pool: Pool) -> None:
    """A second one would spend more time waiting for work than working, on a core that others need."""
    pytest.importorskip("threadpoolctl", reason="the package threadpoolctl is not installed")
    for cores in (2, 1):
        found = run(pool, Job(hostile.count_blas_threads, limits=Limits(cores=cores))).value
        assert isinstance(found, list)
        assert set(found) <= {1}


def test_torch_and_onnxruntime_work_after_the_fork(pool: Pool) -> None:
    matrix = np.random.default_rng(0).normal(size=(300, 200))
    for cores in (1, 2):
        result = run(pool, Job(hostile.square, matrix, Limits(cores=cores)))
        assert result.end is End.DONE, result.detail
        np.testing.assert_allclose(np.asarray(result.value), matrix @ matrix.T)
    for _ in range(3):
        result = run(pool, Job(hostile.rectify, np.array([[-1.0, 2.0]], dtype=np.float32)))
        assert result.end is End.DONE, result.detail
        np.testing.assert_array_equal(np.asarray(result.value), [[0.0, 2.0]])


def test_big_payloads_cross_both_ways(pool: Pool) -> None:
    payload = np.arange(25_000_000, dtype=np.float64)  # 200 MB
    result = run(pool, Job(hostile.echo, payload))
    assert result.end is End.DONE, result.detail
    assert np.array_equal(payload, np.asarray(result.value))


def test_exception_is_an_error_with_its_traceback(pool: Pool) -> None:
    result = run(pool, Job(hostile.fail, "really"))
    assert result.end is End.ERROR
    assert result.detail.splitlines()[0] == "ValueError: no good: really"
    assert "in fail" in result.detail


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_trivial_jobs_cost_little(pool: Pool) -> None:
    run(pool, Job(hostile.echo))
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        run(pool, Job(hostile.echo))
        times.append(time.perf_counter() - begin)
    times.sort()
    print(f"a trivial job costs {1000 * times[20]:.2f} ms, the median one {1000 * times[100]:.2f} ms")
    assert times[20] <= 0.002  # not the median: other work on the machine is not our cost


def test_messages_arrive_in_order_and_early() -> None:
    seen: list[tuple[Ticket, object, bool]] = []
    arrived = threading.Event()

    def note(ticket: Ticket, message: object) -> None:
        seen.append((ticket, message, ticket.done()))
        arrived.set()
        raise RuntimeError("a careless callback must not hurt the pool")

    with Pool(1, preload=(), on_message=note) as pool:
        ticket = pool.submit(Job(hostile.cooperate))
        assert arrived.wait(20)
        assert seen == [(ticket, "working", False)]
        ticket.cancel()
        result = ticket.wait(5)
    assert result is not None
    assert (result.end, result.value, result.messages) == (End.CANCELLED, "partial", ("working",))


def test_many_jobs_over_two_workers_with_affinity() -> None:
    with Pool(2, preload=()) as pool:
        tickets = [pool.submit(Job(hostile.count_calls, 0.01, affinity="ab"[i % 2])) for i in range(50)]
        pending = list(tickets)
        while pending:
            done = pool.wait(pending, 20)
            assert done
            pending = [ticket for ticket in pending if not ticket.done()]
        results = [ticket.result for ticket in tickets]
    where: dict[str, list[int]] = {"a": [], "b": []}
    for ticket, result in zip(tickets, results, strict=True):
        assert result is not None
        assert isinstance(result.value, tuple)
        where[ticket.job.affinity].append(result.value[0])
    usual = {affinity: max(set(pids), key=pids.count) for affinity, pids in where.items()}
    assert usual["a"] != usual["b"]
    strays = sum(pid != usual[affinity] for affinity, pids in where.items() for pid in pids)
    assert strays <= 6


def test_wait_returns_what_is_done(pool: Pool) -> None:
    slow = pool.submit(Job(hostile.count_calls, 0.3))
    assert pool.wait([slow], 0.01) == []
    assert slow.wait(0.01) is None
    assert pool.wait([], 1) == []
    assert pool.wait([slow], 20) == [slow]


def test_a_job_that_could_never_run_is_refused_at_once() -> None:
    with pytest.raises(JobError, match="can import"):
        Job(lambda payload, link: None)
    with pytest.raises(JobError, match="cores"):
        Limits(cores=0)


def test_payload_that_cannot_be_pickled_is_an_error(pool: Pool) -> None:
    result = run(pool, Job(hostile.echo, threading.Lock()))
    assert result.end is End.ERROR
    assert "cannot be pickled" in result.detail
    result = run(pool, Job(hostile.echo, hostile.Sneaky()))
    assert result.end is End.ERROR
    assert "cannot be unpickled" in result.detail


def test_partial_functions_run(pool: Pool) -> None:
    def call(function: object) -> Result:
        return run(pool, Job(function))  # type: ignore[arg-type]

    assert call(functools.partial(hostile.echo)).end is End.DONE


def test_closed_pool_refuses_and_cancels() -> None:
    pool = Pool(1, preload=())
    running, waiting = pool.submit(Job(hostile.run_busy)), pool.submit(Job(hostile.run_busy))
    time.sleep(0.3)
    begin = time.perf_counter()
    pool.close()
    assert time.perf_counter() - begin < 1.5
    for ticket in (running, waiting):
        assert ticket.result is not None
        assert ticket.result.end is End.CANCELLED
    with pytest.raises(PoolError):
        pool.submit(Job(hostile.echo))
    pool.close()


def test_pool_can_be_closed_while_it_starts() -> None:
    begin = time.perf_counter()
    with Pool(2) as pool:
        ticket = pool.submit(Job(hostile.echo))
    assert time.perf_counter() - begin < 1.0
    assert ticket.result is not None
    assert ticket.result.end is End.CANCELLED


def test_missing_preload_is_no_obstacle() -> None:
    with Pool(1, preload=("no_such_module_anywhere",)) as pool:
        assert run(pool, Job(hostile.echo, 1)).value == 1


def test_dead_supervisor_costs_one_job_only() -> None:
    with Pool(1, preload=()) as pool:
        run(pool, Job(hostile.echo))
        result = run(pool, Job(hostile.kill_parent))
        assert result.end is End.CRASH
        assert run(pool, Job(hostile.echo, 2)).value == 2
    assert isinstance(result.messages[0], int)
    assert not psutil.pid_exists(result.messages[0])


def test_link_works_without_a_process() -> None:
    heard: list[object] = []
    link = Link(time.monotonic() - 1, lambda: False, heard.append)
    assert hostile.cooperate(None, link) == "partial"
    assert link.remaining() == 0
    assert heard == ["working"]


SCRIPT = """
from verifolio.run import Job, Pool
from verifolio.testing import hostile
print("main runs")
with Pool(1, preload=()) as pool:
    print(pool.submit(Job(hostile.echo, 7)).wait(20).value)
"""


@pytest.mark.parametrize("how", ["file", "standard input"])
def test_script_without_guard(how: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = [sys.executable, str(path)] if how == "file" else [sys.executable, "-"]
    done = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "main runs\n7\n"
    assert done.stderr == ""


def test_local_module_of_a_script_is_importable(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def double(payload, link):\n    return 2 * payload\n")
    script = SCRIPT.replace("from verifolio.testing import hostile", "import mine")
    (tmp_path / "script.py").write_text(script.replace("hostile.echo", "mine.double"))
    command = [sys.executable, str(tmp_path / "script.py")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, env=environment)
    assert done.stdout == "main runs\n14\n"


def test_a_template_that_was_begun_early_is_used_once() -> None:
    preload = ("json",)
    template.begin(preload, ())
    begun = template._waiting[preload, ()]
    with Pool(1, preload) as pool:
        assert run(pool, Job(hostile.echo, 5)).value == 5
        assert pool._template is begun
        assert not template._waiting
    assert not begun.alive()
    with Pool(1, preload) as pool:
        assert run(pool, Job(hostile.echo, 6)).value == 6
        assert pool._template is not begun


def test_a_template_that_nobody_takes_ends_with_the_driver() -> None:
    code = (
        "from verifolio.run import template; template.begin(('time',), ('json',));"
        "print(template._waiting[('time',), ('json',)]._process.pid)"
    )
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert not psutil.pid_exists(int(said.stdout))
