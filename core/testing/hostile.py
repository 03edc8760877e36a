"""Jobs that misbehave in every way a job can, to try a runner with."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from verifolio.run import Link

_calls = 0  # how often this process ran a job
_hoard: list[bytearray] = []


class Sneaky:
    """Pickles in the worker, but cannot be unpickled anywhere."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


class Endless:
    """Takes for ever to pickle."""

    def __reduce__(self) -> NoReturn:
        while True:
            time.sleep(0.01)


def echo(payload: object, link: Link) -> object:
    """Well-behaved: give the payload back."""
    return payload


def count_calls(payload: object, link: Link) -> tuple[int, int]:
    """Well-behaved: the process and how many calls its module-level cache has seen."""
    global _calls
    _calls += 1
    time.sleep(float(str(payload or 0)))
    return os.getpid(), _calls


def loaded_modules(names: tuple[str, ...], link: Link) -> list[str]:
    """Which of these modules the worker has imported."""
    return [name for name in names if name in sys.modules]


def count_blas_threads(payload: object, link: Link) -> list[int]:
    """Well-behaved: the threads of every OpenBLAS that is loaded."""
    found = importlib.import_module("threadpoolctl").threadpool_info()
    return [pool["num_threads"] for pool in found if pool["internal_api"] == "openblas"]


def describe_process(payload: object, link: Link) -> dict[str, Any]:
    """Well-behaved: what the job finds around it."""
    torch = sys.modules.get("torch")
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "folder": str(Path.cwd()),
        "temporary": tempfile.gettempdir(),
        "environment": dict(os.environ),
        "torch": torch is not None,
        "torch_threads": torch.get_num_threads() if torch else 0,
        "onnxruntime": "onnxruntime" in sys.modules,
        "main": getattr(sys.modules["__main__"], "__file__", None),
    }


def cooperate(payload: object, link: Link) -> str:
    """Well-behaved: report, then stop when asked to."""
    link.send("working")
    while not link.cancelled():
        time.sleep(0.005)
    return "partial"


def fail(payload: object, link: Link) -> NoReturn:
    """Raise."""
    message = f"no good: {payload}"
    raise ValueError(message)


def run_busy(payload: object, link: Link) -> NoReturn:
    """Loop in Python, past every deadline."""
    link.send("busy")
    while True:
        pass


def sleep_in_c(payload: object, link: Link) -> None:
    """Sleep in native code without releasing the interpreter lock."""
    link.send("asleep")
    ctypes.PyDLL(None).sleep(3600)


def multiply_matrices(payload: object, link: Link) -> None:
    """Compute in native code for a long time."""
    import torch

    size = int(str(payload))
    matrix = torch.ones(size, size)
    link.send("multiplying")
    while True:
        matrix = matrix @ matrix


def block_termination(payload: object, link: Link) -> NoReturn:
    """Block SIGTERM, and ignore it too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    link.send("deaf")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.1)


def announce_and_ignore(payload: object, link: Link) -> NoReturn:
    """Say which process this is, and run on whatever happens."""
    link.send(os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.01)


def announce_and_wait(payload: object, link: Link) -> int:
    """Well-behaved: say which process this is, and wait until the file `payload` exists."""
    link.send(os.getpid())
    while not Path(str(payload)).exists():
        time.sleep(0.01)
    return os.getpid()


def allocate(payload: object, link: Link) -> NoReturn:
    """Allocate and touch memory without end."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1)) * (16 << 20))
        time.sleep(0.002)


def allocate_in_child(payload: object, link: Link) -> None:
    """Allocate without end in a process of one's own."""
    code = "import time; a = []\nwhile True: a.append(bytearray(b'x') * (16 << 20)); time.sleep(0.002)"
    subprocess.run([sys.executable, "-c", code], check=False)


def kill_self_when_fat(payload: object, link: Link) -> None:
    """Hold so many bytes, wait to be seen, then die as if killed from outside."""
    kept = bytearray(b"x") * int(str(payload))
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
    del kept


def hoard(payload: object, link: Link) -> int:
    """Keep so many bytes in a module-level cache."""
    _hoard.append(bytearray(b"x") * int(str(payload)))
    return os.getpid()


def exhaust(payload: object, link: Link) -> bytearray:
    """Ask for more memory than an address can name."""
    return bytearray(1 << 62)


def abort(payload: object, link: Link) -> NoReturn:
    """Abort, as failed assertions in native code do."""
    os.abort()


def segfault(payload: object, link: Link) -> None:
    """Read from address zero."""
    link.send("last words")
    ctypes.string_at(0)


def leave(payload: object, link: Link) -> NoReturn:
    """Call sys.exit."""
    sys.exit(int(str(payload)))


def leave_at_once(payload: object, link: Link) -> NoReturn:
    """Call os._exit."""
    os._exit(int(str(payload)))


def daemonise(payload: object, link: Link) -> str:
    """Leave a daemon behind, forked twice and in its own session; `payload` is a file for its process id."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(str(payload)).write_text(str(os.getpid()))
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()
    while not Path(str(payload)).exists() or not Path(str(payload)).read_text():
        time.sleep(0.005)
    return "left a daemon"


def daemonise_and_run(payload: object, link: Link) -> NoReturn:
    """Leave a daemon behind and run on."""
    link.send(daemonise(payload, link))
    run_busy(payload, link)


def leave_child(payload: object, link: Link) -> int:
    """Leave a plain child running."""
    return subprocess.Popen(["sleep", "3600"]).pid


def leave_thread(payload: object, link: Link) -> int:
    """Leave a thread running."""
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    return os.getpid()


def return_twice(payload: object, link: Link) -> str:
    """Fork, and return in both processes."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return "parent" if child else "child"


def spoil_environment(payload: object, link: Link) -> int:
    """Change the environment, and lose the streams and the folder."""
    os.environ["VERIFOLIO_SPOILED"] = "1"
    sys.stdout = sys.stderr = None
    os.chdir("/")
    return os.getpid()


def print_garbage(payload: object, link: Link) -> str:
    """Write to every output there is."""
    print("to stdout")  # noqa: T201
    print("to stderr", file=sys.stderr)  # noqa: T201
    os.write(1, b"\x80\x00\xff garbage to descriptor 1\n")
    os.system("echo from a child")
    ctypes.CDLL(None).puts(b"from C")
    return "printed"


def print_without_end(payload: object, link: Link) -> NoReturn:
    """Write as fast as possible, for ever."""
    while True:
        os.write(1, b"noise " * 2000)


def close_descriptors(payload: object, link: Link) -> NoReturn:
    """Close everything, and run on."""
    os.closerange(0, 4096)
    while True:
        time.sleep(1)


def write_to_descriptors(payload: object, link: Link) -> None:
    """Write nonsense to every descriptor there is."""
    for number in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(number, b"\x00\x00\x00\x05nonsense" * 10)


def return_unpicklable(payload: object, link: Link) -> object:
    """Return what cannot be pickled."""
    return lambda: None


def return_sneaky(payload: object, link: Link) -> Sneaky:
    """Return what can be pickled and not unpickled."""
    return Sneaky()


def return_endless(payload: object, link: Link) -> Endless:
    """Return what never stops pickling."""
    return Endless()


def send_unpicklable(payload: object, link: Link) -> None:
    """Send what cannot be pickled."""
    link.send(threading.Lock())


def send_sneaky(payload: object, link: Link) -> str:
    """Send what cannot be unpickled, and go on."""
    link.send(Sneaky())
    return "went on"


def send_many(payload: object, link: Link) -> None:
    """Send numbers, then die."""
    for number in range(int(str(payload))):
        link.send(number)
    os.abort()


def square(payload: object, link: Link) -> Any:
    """Well-behaved: use numpy, torch and threads in a fork."""
    import torch

    values = torch.as_tensor(payload, dtype=torch.float64)
    return (values @ values.T).numpy()


def rectify(payload: Any, link: Link) -> Any:
    """Well-behaved: run a tiny network in ONNX Runtime."""
    import onnx
    import onnxruntime
    from onnx import helper

    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", floats, list(payload.shape))],
        [helper.make_tensor_value_info("y", floats, list(payload.shape))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": payload})[0]


def kill_parent(payload: object, link: Link) -> None:
    """Kill the parent process, leaving a child."""
    link.send(subprocess.Popen(["sleep", "3600"]).pid)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)
