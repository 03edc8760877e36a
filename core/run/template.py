"""The template: a process that has imported the heavy modules, run nothing, and forks supervisors."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path

from verifolio.run import supervisor, tree
from verifolio.run.worker import THREAD_VARIABLES

# The path is the driver's, so that workers can import what it can. The main module is not imported again.
_BOOT = (
    "import json, sys; order = json.loads(sys.argv[1]); sys.path[:] = order['path']; "
    "from verifolio.run.template import main; main(**order)"
)


# What workers that decide queries start with; importing these takes most of the time from start to verdict.
PRELOAD = ("torch", "onnxruntime", "verifolio.solve.preload")
GLANCE = (
    0.2  # seconds between looks at the driver while modules are imported: nobody notices a template that long
)


class Template:
    """The driver's handle of a template process."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._line, theirs = Pipe()
        order = {
            "path": [str(entry) or str(Path.cwd()) for entry in sys.path],
            "line": theirs.fileno(),
            "driver": os.getpid(),
            "preload": list(preload),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=[theirs.fileno()],
            env=dict(os.environ) | dict.fromkeys(THREAD_VARIABLES, "1"),
            start_new_session=True,
        )
        theirs.close()

    def alive(self) -> bool:
        """Whether supervisors can still be had."""
        return self._process.poll() is None

    def supervise(self) -> Connection:
        """Ask for a supervisor; gives the control connection, which speaks as soon as imports are through."""
        ours, theirs = Pipe()
        with contextlib.suppress(OSError):  # then `ours` is at its end, which the caller notices
            reduction.send_handle(self._line, theirs.fileno(), self._process.pid)
        theirs.close()
        return ours

    def complaint(self) -> str:
        """The last words of a template that died."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}"

    def kill(self) -> None:
        """End it at once, as it has nothing to lose."""
        self._process.kill()

    def close(self) -> None:
        """Let it go after its supervisors; kill it if it does not."""
        self._line.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


_waiting: dict[tuple[str, ...], Template] = {}


def begin(preload: Sequence[str] = PRELOAD) -> None:
    """Start a template before it is known who needs it; the first pool that wants such a one takes it."""
    _waiting[tuple(preload)] = Template(preload)
    atexit.register(_give_up)


def take(preload: Sequence[str]) -> Template:
    """A template, perhaps one that was begun already."""
    begun = _waiting.pop(tuple(preload), None)
    return begun if begun is not None and begun.alive() else Template(preload)


def _give_up() -> None:
    while _waiting:
        template = _waiting.popitem()[1]
        template.kill()
        template.close()


def main(path: list[str], line: int, driver: int, preload: list[str]) -> None:
    """Import, then fork a supervisor for every handle that arrives, until the driver is gone."""
    del path
    gc.disable()  # imports make no garbage worth collecting
    watch = _watch_process(driver)
    with _leaving_with(watch):
        for name in preload:
            try:
                importlib.import_module(name)
            except Exception:  # a job that needs the module will say so better
                traceback.print_exc()
    tree.become_subreaper()
    gc.collect()
    gc.enable()
    gc.freeze()  # otherwise collections in the forks touch, and so copy, every page
    folder = Path(tempfile.mkdtemp(prefix="verifolio-"))
    try:
        _serve(Connection(line), watch, folder)
    except BaseException:
        traceback.print_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


@contextlib.contextmanager
def _leaving_with(watch: int | None) -> Iterator[None]:
    """End this process if the driver ends meanwhile; the thread that looks is gone before anything is forked."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(GLANCE):
            if watch is not None and select.select([watch], [], [], 0.0)[0]:
                os._exit(0)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield
    done.set()
    thread.join()


def _watch_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the driver dies, even if forks of it keep our pipes open."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _serve(line: Connection, watch: int | None, folder: Path) -> None:
    supervisors: set[int] = set()
    sources: list[Connection | int] = [line] if watch is None else [line, watch]
    while True:
        ready = wait(sources, 1.0)
        for dead in tree.reap().keys() & supervisors:
            supervisors.remove(dead)
            shutil.rmtree(folder / str(dead), ignore_errors=True)
        # A supervisor that was itself killed leaves its orphans to us.
        tree.signal_all(set(tree.children(os.getpid())) - supervisors, signal.SIGKILL)
        if watch in ready:
            break
        if line in ready:
            try:
                handle = reduction.recv_handle(line)
            except (EOFError, OSError, RuntimeError):
                break
            supervisors.add(_fork(line, handle, watch, folder))
    while supervisors & set(tree.children(os.getpid())):
        tree.reap()
        time.sleep(0.005)
    tree.kill_below()


def _fork(line: Connection, handle: int, watch: int | None, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        line.close()
        supervisor.run(Connection(handle), watch, folder / str(os.getpid()))
    os.close(handle)
    return pid
