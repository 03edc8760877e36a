"""The `ray` executor on a real cluster of two nodes: limits, cancelling, lost nodes, whole commands."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.model.batch import plain_batch
from verifolio.model.problem import Domain
from verifolio.onnx_import.network import Network
from verifolio.plugin.executor import Executor, Handle
from verifolio.plugins.ray.executor import RayExecutor, RayOptions
from verifolio.portfolio.tree import single_verifier
from verifolio.run import End, Job, Limits
from verifolio.solve.oracle import Oracle
from verifolio.testing import hostile
from verifolio.testing.samples import reaches, write_sum
from verifolio.vnnlib import make_rows

from ...conftest import STORE, gone

MEGABYTE = 1 << 20
PATIENT = 120.0  # seconds, for what takes one or two on a machine that has nothing else to do
ROOT = Path(__file__).resolve().parents[3]
NETWORKS = ROOT / "examples" / "networks"
pytestmark = pytest.mark.timeout(900)  # a cluster on a busy machine takes minutes to start
COMMAND = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()"]


@pytest.fixture(scope="module")
def place(cluster: Any) -> Iterator[Executor]:
    with RayExecutor(8, RayOptions(cluster.address, preload=())) as executor:
        executor.share(2)
        executor.warm(wait=True)
        yield executor


def start(place: Executor, function: Callable[..., Any], payload: object = None, **limits: Any) -> Handle:
    return place.submit(Job(function, payload, Limits(**limits)))


def until(condition: Callable[[], bool], within: float = PATIENT) -> bool:
    limit = time.monotonic() + within
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return condition()


def worker_of(handle: Handle) -> int:
    """The process that a job named in its first message."""
    assert until(lambda: bool(handle.messages())), "no message"
    return int(str(handle.messages()[0]))


def test_jobs_run_on_both_nodes(place: Executor) -> None:
    handles = [start(place, hostile.count_calls, 0.3) for _ in range(4)]
    results = [h.result(PATIENT) for h in handles]
    assert all(r is not None and r.end is End.DONE for r in results)
    workers = {r.value[0] for r in results if r is not None and isinstance(r.value, tuple)}
    assert len(workers) == 2  # one in each place


@pytest.mark.parametrize(
    ("function", "payload", "limits", "end"),
    [
        (hostile.echo, [1, "a"], {}, End.DONE),
        (hostile.fail, "x", {}, End.ERROR),
        (hostile.leave_at_once, 3, {}, End.CRASH),
        (hostile.block_termination, None, {"seconds": 0.3, "grace": 0.4}, End.TIMEOUT),
        (hostile.allocate, None, {"memory": 400 * MEGABYTE}, End.MEMOUT),
        (hostile.return_sneaky, None, {}, End.ERROR),
        (hostile.return_unpicklable, None, {}, End.ERROR),
    ],
)
def test_a_job_ends_as_it_would_here(
    place: Executor, function: Any, payload: object, limits: dict[str, Any], end: End
) -> None:
    result = start(place, function, payload, **limits).result(PATIENT)
    assert result is not None
    assert result.end is end
    assert result.value == (payload if end is End.DONE else None)
    assert end is End.DONE or result.detail


def test_messages_survive_their_job(place: Executor) -> None:
    result = start(place, hostile.send_many, 5).result(PATIENT)
    assert result is not None
    assert (result.end, result.messages) == (End.CRASH, tuple(range(5)))


def test_a_job_that_cannot_travel_is_an_error(place: Executor) -> None:
    result = start(place, hostile.echo, lambda: 1).result(PATIENT)
    assert result is not None
    assert result.end is End.ERROR
    assert "cannot be pickled" in result.detail


def test_no_more_jobs_run_than_there_are_cores(place: Executor) -> None:
    handles = [start(place, hostile.cooperate) for _ in range(4)]
    try:
        assert until(lambda: sum(bool(h.messages()) for h in handles) >= 2)
        time.sleep(0.5)
        assert [bool(h.messages()) for h in handles] == [True, True, False, False]
        handles[0].cancel()
        assert until(lambda: bool(handles[2].messages()))
        assert not handles[3].messages()
    finally:
        for handle in reversed(handles):
            handle.cancel()
    assert all(h.result(PATIENT) is not None for h in handles)


def test_more_cores_than_a_node_has_are_refused(place: Executor) -> None:
    with pytest.raises(InputError, match="at most the 1 cores of the largest node"):
        start(place, hostile.echo, cores=2)
    with pytest.raises(InputError, match="largest node"):
        place.share(1, 2)


def test_a_cancelled_job_is_gone_within_two_seconds(place: Executor, tmp_path: Path) -> None:
    """The worker, which ignores every request, and the daemon that it left."""
    note = tmp_path / "daemon"
    deaf, daemon = start(place, hostile.announce_and_ignore), start(place, hostile.daemonise_and_run, note)
    assert until(note.exists)
    assert until(lambda: bool(note.read_text()))
    pids = {worker_of(deaf), int(note.read_text())}
    waiting = start(place, hostile.echo)
    begin = time.monotonic()
    for handle in (waiting, deaf, daemon):
        handle.cancel()
    assert gone(pids, 2.0) == set()
    assert time.monotonic() - begin < 2.0
    ends = [r.end for h in (waiting, deaf, daemon) if (r := h.result(5.0)) is not None]
    assert ends == [End.CANCELLED] * 3


def test_a_cancelled_query_is_gone_within_two_seconds(place: Executor, tmp_path: Path) -> None:
    from verifolio.testing.hostile_verifiers import Stubborn

    network = write_sum(tmp_path)
    with Oracle(single_verifier(Stubborn()), place) as oracle:
        asking = oracle.submit(reaches(network, 2.5))
        time.sleep(1.0)
        begin = time.monotonic()
        asking.cancel()
        assert asking.answer(5.0).verdict is Verdict.CANCELLED
        assert time.monotonic() - begin < 2.0


def test_a_node_without_the_file_is_sent_it(place: Executor, tmp_path: Path) -> None:
    """A path below /proc/self leads elsewhere in every other process, as a path does on another machine."""
    network = write_sum(tmp_path)
    with network.path.open("rb") as stream:
        mine = Network(Path(f"/proc/self/fd/{stream.fileno()}"), network.sha256)
        with Oracle(single_verifier("pgd"), place, timeout=PATIENT) as oracle:
            answer = oracle.ask(reaches(mine, 1.5))
    assert answer.verdict is Verdict.SAT, answer.reason


def test_batches_are_attacked_bounded_and_replayed_there(place: Executor, tmp_path: Path) -> None:
    """y_0 = x_0 + x_1 reaches 1.5 in the larger box only."""
    network, rows = write_sum(tmp_path), (make_rows([({2: -1.0}, -1.5)]),)
    boxes = [Domain(np.zeros(2), np.full(2, high)) for high in (0.5, 1.0)]
    batch = plain_batch(network, boxes, rows)
    with Oracle(None, place, timeout=PATIENT) as oracle:
        assert [a.verdict.value for a in oracle.attack(batch, PATIENT)] == ["unknown", "sat"]
        assert [a.verdict.value for a in oracle.bound(batch, PATIENT)] == ["unsat", "unknown"]
        assert [set(s.witnesses) for s in oracle.replay(batch, [(1, np.ones(2))])] == [{1}]


@pytest.mark.slow
def test_idle_places_make_room(cluster: Any, place: Executor) -> None:
    """Two executors, as of a command that opens two oracles, do not wait for each other."""
    place.close()
    quick = RayOptions(cluster.address, preload=(), idle=0.5)
    with RayExecutor(8, quick) as first, RayExecutor(8, quick) as second:
        for executor in (first, second, first):
            executor.share(2)
            results = [start(executor, hostile.echo, k) for k in range(3)]
            assert [r.value for h in results if (r := h.result(PATIENT)) is not None] == [0, 1, 2]


def test_a_gpu_is_held_while_its_place_lives(cluster: Any, place: Executor) -> None:
    import ray

    place.close()  # not to wait until its places are given back
    options = RayOptions(cluster.address, device="cuda", preload=())
    with RayExecutor(2, options) as executor:
        result = start(executor, hostile.describe_process).result(PATIENT)
        assert result is not None
        assert isinstance(result.value, dict)
        assert result.value["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
        assert until(lambda: ray.available_resources().get("GPU", 0) == 0)
    assert until(lambda: ray.available_resources().get("GPU", 0) == 1)


def test_a_lost_node_costs_no_answer(cluster: Any, tmp_path: Path) -> None:
    """Its jobs run again elsewhere, once; nothing of it stays in the process table."""
    extra = cluster.add_node(num_cpus=1, object_store_memory=STORE, include_log_monitor=False)
    options = RayOptions(cluster.address, preload=())
    with RayExecutor(8, options) as executor:
        executor.share(3)
        executor.warm(wait=True)
        long = [start(executor, hostile.announce_and_wait, tmp_path / "go") for _ in range(3)]
        queued = [start(executor, hostile.echo, k) for k in range(6)]
        workers = {worker_of(h): h for h in long}
        raylet = raylet_of(extra)
        ours = hosted(raylet)
        (lost,) = [h for pid, h in workers.items() if pid in ours]
        os.kill(raylet, signal.SIGKILL)
        assert gone(ours, 2.0) == set()
        (tmp_path / "go").touch()
        results = [h.result(PATIENT) for h in (*long, *queued)]
        assert [r is not None and r.end for r in results] == [End.DONE] * 9
        assert [r.value for r in results[3:] if r is not None] == list(range(6))
        assert len(lost.messages()) == 2  # it was begun twice, and answered once
    cluster.remove_node(extra)


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing(cluster: Any) -> None:
    code = (
        "import sys, time\n"
        "from verifolio.plugin.manager import current_plugins\n"
        "from verifolio.run import Job\n"
        "from verifolio.testing import hostile\n"
        "place = current_plugins().make_executor('ray@' + sys.argv[1], 1)\n"
        "handle = place.submit(Job(hostile.announce_and_ignore))\n"
        "while not handle.messages(): time.sleep(0.05)\n"
        "print(handle.messages()[0], flush=True)\n"
        "time.sleep(100)\n"
    )
    command = [sys.executable, "-P", "-c", code, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            worker = int(driver.stdout.readline())
        finally:
            driver.kill()
    assert gone({worker}, 20.0) == set()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def table(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines()))


def test_a_distribution_over_two_nodes_is_the_local_one(cluster: Any, tmp_path: Path) -> None:
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    asked = ["distribution", NETWORKS / "digits_dense.onnx", "--data", "digits:test", "--indices", "1,4,5"]
    asked += ["--epsilon", "0.01:0.2:0.01", "--jobs", 2, "--csv"]
    run(*asked, here)
    run(*asked, there, "--executor", "ray", "--address", cluster.address)
    facts = [[(r["image_id"], r["lower"], r["upper"], r["status"]) for r in rows(p)] for p in (here, there)]
    assert facts[0] == facts[1]
    assert len(facts[0]) == 3


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_bench_run_survives_a_lost_node(cluster: Any, tmp_path: Path) -> None:
    """The second node goes while instances are decided; each is answered, once, and as expected."""
    out = tmp_path / "results.csv"
    command = [
        "bench",
        NETWORKS / "instances.csv",
        "--jobs",
        2,
        "--cores",
        1,
        "--output",
        out,
        "--no-pictures",
    ]
    place = ["--executor", "ray", "--address", cluster.address]
    raylet = raylet_of(next(iter(cluster.worker_nodes)))
    running = subprocess.Popen(
        [*COMMAND, *map(str, [*command, *place])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert until(lambda: out.exists() and len(table(out)) >= 2)
    ours = hosted(raylet)
    os.kill(raylet, signal.SIGKILL)
    assert gone(ours, 2.0) == set()
    printed, said = running.communicate(timeout=600)
    assert running.returncode == 0, printed + said
    expected = [
        (r["vnnlib"].removesuffix(".vnnlib"), r["expected"]) for r in rows(NETWORKS / "instances.csv")
    ]
    answered = [(line[2].removesuffix(".vnnlib"), line[4]) for line in table(out)]
    assert [v for _, v in answered] == [v for _, v in expected], printed + said
    assert "Raylet" not in printed  # Ray's news of the cluster are not mixed into the output


def raylet_of(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def hosted(raylet: int) -> set[int]:
    """The processes of ours below a raylet: hosts, and everything below them; not Ray's own agents."""
    children = psutil.Process(raylet).children()
    hosts = [p for p in children if p.name().startswith("ray::Host")]
    found = {p.pid for host in hosts for p in (host, *host.children(recursive=True))}
    assert len(found) >= 3, [p.name() for p in children]  # host, template, supervisor
    return found
