"""`verifolio doctor`: does this machine have what it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from verifolio.cli.bundles import Json
from verifolio.cli.codes import DONE, UNDECIDED
from verifolio.cli.expand import add_command

if TYPE_CHECKING:
    from verifolio.run import Link


def add_commands(app: typer.Typer) -> None:
    """Register the command."""
    add_command(app, "doctor", doctor)


def doctor(written: Json) -> None:
    """Check versions, threads, worker processes and every plugin.

    A plugin is `ready`, `not installed` (with what to do about it) or `not applicable`. Anything that is wrong
    exits with 3.

    Example:
        verifolio doctor
    """
    from verifolio.cli.output import say_json, table

    checks = [*_versions(), *_machine(), _guard("workers", _workers), *_plugins()]
    if written.json:
        records = [{"check": n, "ok": s != PROBLEM, "state": s, "detail": d} for n, s, d in checks]
        say_json({"checks": records})
    else:
        table(("check", "state", "detail"), checks)
    raise typer.Exit(UNDECIDED if PROBLEM in [s for _, s, _ in checks] else DONE)


OK, PROBLEM = "ok", "PROBLEM"
Check = tuple[str, str, str]  # what, its state, and what there is to say about it


def _guard(name: str, check: Callable[[], str]) -> Check:
    try:
        return name, OK, check()
    except Exception as error:  # a check that fails in any way is a finding
        return name, PROBLEM, f"{type(error).__name__}: {error}"


def _versions() -> list[Check]:
    from verifolio.storage.versions import versions

    return [(name, OK, version) for name, version in versions().items()]


def _machine() -> list[Check]:
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory()
    return [
        ("cores", OK, f"{usable} usable of {os.cpu_count()}"),
        ("memory", OK, f"{memory.available / 2**30:.1f} GB free of {memory.total / 2**30:.1f} GB"),
        ("OMP_NUM_THREADS", OK, os.environ.get("OMP_NUM_THREADS", "not set")),
    ]


def _workers() -> str:
    """A worker process answers, and knows its thread limit."""
    from verifolio.plugin.manager import current_plugins
    from verifolio.run import Job, Limits

    started = time.monotonic()
    with current_plugins().executors.get("process")(1) as place:
        result = place.submit(Job(probe, limits=Limits(seconds=60.0))).result(60.0)
    if result is None or result.end != "done":
        detail = "no answer in 60 s" if result is None else f"{result.end}: {result.detail}"
        raise RuntimeError(detail)
    return f"{result.value}; first answer after {time.monotonic() - started:.2f} s"


def probe(payload: object, link: Link) -> str:
    """Runs in the worker."""
    import onnxruntime
    import torch

    return f"torch with {torch.get_num_threads()} thread(s), onnxruntime {onnxruntime.__version__}"


def _plugins() -> list[Check]:
    from verifolio.cli.plugins import inventory, state
    from verifolio.plugin.manager import current_plugins

    plugins = current_plugins()
    plugins.fill()
    broken, sources = plugins.broken, {p.name: p.distribution for p in plugins.entries}
    names: list[Check] = [
        (f"plugin {name}", PROBLEM if name in broken else OK, broken.get(name, f"from {source}"))
        for name, source in sources.items()
    ]
    names += [(f"plugin {n}", PROBLEM, why) for n, why in broken.items() if n not in sources]
    return [*names, *((f"{p['kind']} {p['name']}", *state(p)) for p in inventory())]
