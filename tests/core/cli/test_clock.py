"""Limits hold from the start of the process, however long workers take to start or files to read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from verifolio.cli.clock import begin, elapsed, guard, process_start
from verifolio.model.answer import Verdict
from verifolio.onnx_import.network import Network
from verifolio.plugin.executor import Executor
from verifolio.plugin.manager import current_plugins
from verifolio.plugins.local.process import ProcessExecutor, ProcessOptions
from verifolio.portfolio.tree import Member, Portfolio, Race
from verifolio.run.settings import Settings
from verifolio.solve.walk import Walk
from verifolio.testing.hostile_verifiers import Corners
from verifolio.testing.samples import reaches, write_sum
from verifolio.vnnlib import write

LATE = 0.5  # what a limit may be overrun by
BUSY = 1.5  # and how much more a machine with other work may take, which these tests do not measure
SLOW = "import time\ntime.sleep(60)\n"


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return write_sum(tmp_path)


@pytest.fixture
def slow_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """Workers that import something for a minute before they are there."""
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert current_plugins().executors.get("process") is ProcessExecutor
    with ProcessExecutor(2, ProcessOptions(("slow_to_import",))) as executor:
        yield executor


@pytest.mark.parametrize("race", [False, True])
def test_a_worker_that_starts_too_slowly(slow_start: Executor, network: Network, race: bool) -> None:
    members = (Member(Corners()), Member(Corners()))
    root = Race(members) if race else members[0]
    walk = Walk(reaches(network, 1.5), Portfolio(root), slow_start, Settings(timeout=1.0))
    started = time.monotonic()
    answer = walk.run()
    assert time.monotonic() - started < 1.0 + LATE + BUSY
    assert answer.verdict is Verdict.TIMEOUT
    assert "ready in time" in answer.reason or "no time left" in answer.reason


def test_the_age_of_a_process() -> None:
    code = "import time; time.sleep(0.7); from verifolio.cli.clock import *; begin(process_start()); print(elapsed())"
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert 0.69 < float(said.stdout) < 30.0
    begin(process_start())
    assert elapsed() > 0.1
    begin()
    assert elapsed() < 0.1


def install(folder: Path, plugin: str) -> dict[str, str]:
    """The environment in which a plugin of this text is installed."""
    (folder / "slow_plugin.py").write_text(plugin)
    info = folder / "slow_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verifolio]\nslow_plugin = slow_plugin\n")
    return os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def start(folder: Path, network: Network, plugin: str, *options: str) -> subprocess.Popen[str]:
    """`verify` where a plugin of this text is installed."""
    prop = folder / "p.vnnlib"
    prop.write_text(write(reaches(network, 2.5).specification))
    command = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", "verify"]
    return subprocess.Popen(
        [*command, str(network.path), str(prop), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=install(folder, plugin),
    )


def run_command(folder: Path, network: Network, plugin: str, *options: str) -> tuple[int, str, float]:
    """`verify` with a limit of 4 seconds, where a plugin of this text is installed."""
    started = time.monotonic()
    process = start(folder, network, plugin, "--timeout", "4", *options)
    below: list[psutil.Process] = []
    try:
        process.wait(3.0)
    except subprocess.TimeoutExpired:
        below = psutil.Process(process.pid).children(recursive=True)
        process.wait()  # without a limit: with one it would poll, and be late itself
    seconds = time.monotonic() - started
    out = process.communicate()[0]
    assert not psutil.wait_procs(below, timeout=5)[1], "something was left behind"
    return process.returncode, out, seconds


@pytest.mark.parametrize(
    "where",
    ["'verifolio.cli.main' not in sys.modules", "True"],
    ids=["in the workers", "everywhere"],
)
def test_a_plugin_that_takes_for_ever_to_import(tmp_path: Path, network: Network, where: str) -> None:
    plugin = f"import sys, time\nif {where}:\n    time.sleep(60)\n"
    code, out, seconds = run_command(tmp_path, network, plugin)
    assert code == 3
    assert out.splitlines()[0] == "timeout"
    assert seconds < 4.0 + LATE + BUSY
    assert "workers" in out and "start" in out


@pytest.mark.parametrize("keeper", ["keep()", "None"])
def test_the_last_words_are_those_that_are_true(keeper: str) -> None:
    code = (
        "import time; from verifolio.cli.keeper import keep; from verifolio.cli.clock import begin, guard\n"
        f"{keeper}; begin()\nwith guard(0.5, 3, 'first') as otherwise:\n    otherwise('second'); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "second")


@pytest.mark.slow
def test_a_query_that_is_not_decided_is_not_blamed_on_the_start(tmp_path: Path, network: Network) -> None:
    """As with large networks, whose memory takes long to be given back: the files were read long ago."""
    plugin = (
        "import sys, time\nif 'verifolio.cli.main' in sys.modules:\n    from verifolio import Oracle\n"
        "    Oracle.ask = lambda *given: time.sleep(60)\n"
    )
    out, _ = start(tmp_path, network, plugin, "--timeout", "15").communicate()
    assert "out of time after the files were read" in out and "reading the files" not in out


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_driver_whose_threads_cannot_run(
    tmp_path: Path, network: Network, options: tuple[str, ...]
) -> None:
    """A match that backtracks for minutes and lets no other thread have the interpreter meanwhile."""
    plugin = (
        "import re, sys\nif 'verifolio.cli.main' in sys.modules:\n    re.match('(a+)+$', 'a' * 40 + 'b')\n"
    )
    code, out, seconds = run_command(tmp_path, network, plugin, *options)
    assert code == 3
    assert json.loads(out)["verdict"] == "timeout" if options else out.splitlines()[0] == "timeout"
    assert seconds < 4.0 + LATE + BUSY


@pytest.mark.usefixtures("interruptible")
def test_signals_reach_the_command_and_its_end_is_the_same(tmp_path: Path, network: Network) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        folder = tmp_path / str(int(number))
        folder.mkdir()
        begun = folder / "begun"
        plugin = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(60)\n"
        process = start(folder, network, plugin, "--timeout", "50")
        while not begun.exists():
            time.sleep(0.02)
        below = _children(process)
        process.send_signal(number)
        assert process.wait(20) == code
        assert not psutil.wait_procs(below, timeout=5)[1]
        process.communicate()


def test_a_command_ends_with_its_keeper(tmp_path: Path, network: Network) -> None:
    process = start(tmp_path, network, "import time\ntime.sleep(60)\n", "--timeout", "50")
    below = _children(process)
    process.kill()
    assert not psutil.wait_procs(below, timeout=5)[1]
    process.communicate()


def _children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes below a command, once there are some."""
    found: list[psutil.Process] = []
    while not found:
        found = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.01)
    return found


def test_a_late_command_does_not_end_all_tests() -> None:
    """Without a keeper the process that asked is ended: pytest was, with exit code 3 and not a word."""
    begin()
    with guard(0.1, 3, "timeout"):
        time.sleep(0.6)
