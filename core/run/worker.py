"""The worker: receives one job after another on its channel, runs it, and answers."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, cast

from verifolio.run.job import End, Link, SendError
from verifolio.run.wire import (
    CANCEL,
    DEADLINE,
    FINISHED,
    NUMBER,
    SECONDS,
    STARTED,
    Final,
    Message,
    Task,
    describe,
    pack,
    unpack,
)

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_LIBC = ctypes.CDLL(None)
NOTHING = pack(None, "nothing")


class Worker:
    """One worker process, from its fork to its end."""

    def __init__(self, channel: Connection, page: memoryview[float], root: Path) -> None:
        self.channel = channel
        self.page = page
        self.root = root
        self.pid = os.getpid()
        self.cores = 1  # what the template was started with
        self.lock = threading.Lock()
        self.output = os.fstat(1).st_ino
        self.streams = (_stream(1), _stream(2))
        self.environment = dict(os.environ)

    def serve(self) -> NoReturn:
        """Run jobs until the driver is gone.

        The way out is always `os._exit`: native libraries loaded before the fork may not be torn down after
        it (ONNX Runtime aborts, for one, because its background thread stayed in the parent).
        """
        code = 1
        with contextlib.suppress(EOFError, OSError):
            while True:
                frames = [self.channel.recv_bytes()]
                self.page[STARTED] = now = time.monotonic()
                self.page[DEADLINE] = now + self.page[SECONDS]
                try:
                    self._answer(frames)
                except SystemExit as leaving:
                    code = _exit_code(leaving)
                    break
        _flush()
        os._exit(code)

    def _answer(self, frames: list[bytes]) -> None:
        """Run one job, whose frame is taken off the list to be freed early, and send what came of it."""
        self._enter()
        threads = threading.active_count()
        ended = threading.Event()
        end, detail, body = self._run(frames, ended)
        ended.set()
        if os.getpid() != self.pid:
            os._exit(1)  # the job forked, and this is the child, which returned too
        self.page[FINISHED] = now = time.monotonic()
        if self.page[CANCEL]:
            end = End.CANCELLED
        elif now > self.page[DEADLINE]:
            end = End.TIMEOUT
        tidy = self._leave() and threading.active_count() <= threads
        self._send(Final(end, detail, now - self.page[STARTED], tidy), body)

    def _run(self, frames: list[bytes], ended: threading.Event) -> tuple[End, str, bytes]:
        """Call the function; everything but an exit becomes an end with a detail."""

        def deliver(message: object) -> None:
            if ended.is_set():
                raise SendError("a message was sent after its job had ended")
            self._send(Message(), pack(message, "message"))

        try:
            cores, function, payload = cast(Task, unpack(frames.pop(), "job"))
            self._limit_threads(cores)
            link = Link(self.page[DEADLINE], lambda: bool(self.page[CANCEL]), deliver)
            return End.DONE, "", pack(function(payload, link), "return value")
        except SystemExit:
            raise
        except SendError as error:
            return End.ERROR, str(error), NOTHING
        except MemoryError as error:
            return End.MEMOUT, _detail(error), NOTHING
        except BaseException as error:
            return End.ERROR, _detail(error), NOTHING

    def _send(self, head: Message | Final, body: bytes) -> None:
        with self.lock:
            self.channel.send_bytes(pack(head, "head"))
            self.channel.send_bytes(body)

    def _enter(self) -> None:
        """Give the job a folder, streams and signals of its own."""
        folder = self.root / str(int(self.page[NUMBER]))
        folder.mkdir()
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        sys.stdout, sys.stderr = self.streams
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _leave(self) -> bool:
        """Undo `_enter`; False if the job has damaged the worker."""
        try:
            _flush()
            os.chdir(self.root)
            for name in os.environ.keys() - self.environment.keys():
                del os.environ[name]
            os.environ.update(self.environment)
            return all(os.fstat(number).st_ino == self.output for number in (1, 2))
        except (OSError, ValueError):
            return False

    def _limit_threads(self, cores: int) -> None:
        """Tell thread pools, loaded or not yet, how many cores the job has.

        NumPy's own stays at one thread: products of our size are done before a second thread has begun, which then
        waits in a loop that takes the core from others.
        """
        if cores == self.cores:
            return
        self.cores = cores
        for name in THREAD_VARIABLES:
            os.environ[name] = self.environment[name] = str(cores)
        if "torch" in sys.modules:
            importlib.import_module("torch").set_num_threads(cores)


def start(channel: Connection, page: memoryview[float], root: Path, output: int) -> NoReturn:
    """Turn this fresh fork into a worker whose output goes to the descriptor `output`."""
    os.setsid()
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.chdir(root)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # if the machine runs out of memory, a worker goes before the driver
        Path("/proc/self/oom_score_adj").write_text("500")
    faulthandler.enable(2)
    Worker(channel, page, root).serve()


def _stream(number: int) -> Any:
    return open(number, "w", buffering=1, errors="replace", closefd=False)


def _flush() -> None:
    """Empty the buffers of Python and of C, so that the supervisor sees all output."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _LIBC.fflush(None)


def _detail(error: BaseException) -> str:
    return describe(error) + "\n" + "".join(traceback.format_exception(error))


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    return leaving.code & 0xFF if isinstance(leaving.code, int) else 1
