"""The template: a process that has imported the heavy modules, run nothing, and forks supervisors.

Where some jobs need few modules, there are two of them: one that has imported those, and its child, which goes on to
import the rest as soon as somebody asks for a full worker. Workers for light jobs are forked from the first, and may
have decided everything before the second is needed or ready; it is killed then.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import mmap
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
from typing import NoReturn

from verifolio.run import supervisor, tree
from verifolio.run.worker import THREAD_VARIABLES

# The path is the driver's, so that workers can import what it can. The main module is not imported again.
_BOOT = (
    "import json, sys; order = json.loads(sys.argv[1]); sys.path[:] = order['path']; "
    "from verifolio.run.template import main; main(**order)"
)


# What workers that decide queries start with; importing these takes most of the time from start to verdict.
PRELOAD = ("torch", "onnxruntime", "verifolio.solve.preload")
LIGHT = ("onnxruntime", "verifolio.solve.light")  # and those for light jobs: a third of it
GLANCE = (
    0.2  # seconds between looks at the driver while modules are imported: nobody notices a template that long
)


class Template:
    """The driver's handle of a template process."""

    def __init__(self, preload: Sequence[str], light: Sequence[str] = ()) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._line, theirs = Pipe()
        self._light_line, light_theirs = Pipe()
        self._folder = tempfile.mkdtemp(prefix="verifolio-")  # which the template removes if we cannot
        lines = [light_theirs.fileno(), theirs.fileno()]
        order = {
            "path": [str(entry) or str(Path.cwd()) for entry in sys.path],
            "folder": self._folder,
            "lines": lines,
            "driver": os.getpid(),
            "light": list(light),
            "preload": list(preload),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=lines,
            env=dict(os.environ) | dict.fromkeys(THREAD_VARIABLES, "1"),
            start_new_session=True,
        )
        theirs.close()
        light_theirs.close()

    def alive(self) -> bool:
        """Whether supervisors can still be had."""
        return self._process.poll() is None

    def supervise(self, light: bool = False) -> Connection:
        """Ask for a supervisor; gives the control connection, which speaks as soon as imports are through."""
        ours, theirs = Pipe()
        with contextlib.suppress(OSError):  # then `ours` is at its end, which the caller notices
            line = self._light_line if light else self._line
            reduction.send_handle(line, theirs.fileno(), self._process.pid)
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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it go after its supervisors; kill it if it does not."""
        self._light_line.close()
        self._line.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)


_waiting: dict[tuple[tuple[str, ...], tuple[str, ...]], Template] = {}


def begin(preload: Sequence[str] = PRELOAD, light: Sequence[str] = LIGHT) -> None:
    """Start a template before it is known who needs it; the first pool that wants such a one takes it."""
    _waiting[tuple(preload), tuple(light)] = Template(preload, light)
    atexit.register(_give_up)


def take(preload: Sequence[str], light: Sequence[str] = ()) -> Template:
    """A template, perhaps one that was begun already."""
    begun = _waiting.pop((tuple(preload), tuple(light)), None)
    return begun if begun is not None and begun.alive() else Template(preload, light)


def _give_up() -> None:
    while _waiting:
        template = _waiting.popitem()[1]
        template.kill()
        template.close()


def main(
    path: list[str], folder: str, lines: list[int], driver: int, light: list[str], preload: list[str]
) -> None:
    """Import, then fork a supervisor for every handle that arrives, until the driver is gone."""
    del path
    light_line, line = Connection(lines[0]), Connection(lines[1])
    root = Path(folder)
    try:
        watch = _watch_process(driver)
    except ProcessLookupError:  # the driver died while this process started: nobody is left to work for
        _leave(root)
    tree.become_subreaper()
    _import(light or preload, watch, root)
    full = _Full(preload, watch, root, line, light_line) if light else None
    try:
        _serve(light_line if full else line, watch, root, full)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(root)


def _leave(folder: Path) -> NoReturn:
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _import(names: Sequence[str], watch: int | None, folder: Path) -> None:
    gc.disable()  # imports make no garbage worth collecting
    with _leaving_with(watch, folder):
        for name in names:
            try:
                importlib.import_module(name)
            except Exception:  # a job that needs the module will say so better
                traceback.print_exc()
    gc.collect()
    gc.enable()
    gc.freeze()  # otherwise collections in the forks touch, and so copy, every page


class _Full:
    """The template for all other jobs, as a child of the one for light jobs."""

    def __init__(
        self, preload: list[str], watch: int | None, root: Path, line: Connection, light_line: Connection
    ) -> None:
        self.serving = mmap.mmap(-1, 1)  # until it is, there is nothing below it that needs time to end
        self.pid = os.fork()
        if self.pid:
            line.close()  # so that the driver notices the end of this child
            return
        try:
            light_line.close()
            tree.become_subreaper()
            wait([line] if watch is None else [line, watch])
            _import(preload, watch, root)
            self.serving[0] = 1
            _serve(line, watch, root)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def leave(self) -> None:
        """It leaves by itself when the driver is gone; unless it still imports."""
        if not self.serving[0]:
            tree.signal_all([self.pid], signal.SIGKILL)


@contextlib.contextmanager
def _leaving_with(watch: int | None, folder: Path) -> Iterator[None]:
    """End this process if the driver ends meanwhile; the thread that looks is gone before anything is forked."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(GLANCE):
            if watch is not None and select.select([watch], [], [], 0.0)[0]:
                _leave(folder)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield
    done.set()
    thread.join()


def _watch_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the driver dies, even if forks of it keep our pipes open.

    Raises ProcessLookupError where it is dead already.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def _serve(line: Connection, watch: int | None, folder: Path, full: _Full | None = None) -> None:
    own = set() if full is None else {full.pid}
    supervisors: set[int] = set()
    watched = (watch, None if full is None else _watch_process(full.pid))
    sources: list[Connection | int] = [line, *(w for w in watched if w is not None)]
    while True:
        ready = wait(sources, 1.0)
        dead = tree.reap().keys()
        for one in dead & supervisors:
            supervisors.remove(one)
            shutil.rmtree(folder / str(one), ignore_errors=True)
        # A supervisor that was itself killed leaves its orphans to us.
        tree.signal_all(set(tree.children(os.getpid())) - supervisors - own, signal.SIGKILL)
        if watch in ready or dead & own:
            break
        if line in ready:
            try:
                handle = reduction.recv_handle(line)
            except (EOFError, OSError, RuntimeError):
                break
            supervisors.add(_fork(line, handle, watch, folder))
    if full is not None:
        full.leave()
    while (supervisors | own) & set(tree.children(os.getpid())):
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
