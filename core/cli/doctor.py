"""`verifolio doctor`: does this machine have what it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from verifolio.run import Link


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check versions, threads, worker processes and every plugin; exit code 3 if something is wrong."""
    from verifolio.cli.main import DONE, UNDECIDED
    from verifolio.cli.output import say_json, table

    checks = [*_versions(), *_machine(), _guard("workers", _workers), *_plugins()]
    if as_json:
        say_json({"checks": [{"check": n, "ok": ok, "detail": d} for n, ok, d in checks]})
    else:
        table(("check", "state", "detail"), [(n, "ok" if ok else "PROBLEM", d) for n, ok, d in checks])
    raise typer.Exit(DONE if all(ok for _, ok, _ in checks) else UNDECIDED)


Check = tuple[str, bool, str]


def _guard(name: str, check: Callable[[], str]) -> Check:
    try:
        return name, True, check()
    except Exception as error:  # a check that fails in any way is a finding
        return name, False, f"{type(error).__name__}: {error}"


def _versions() -> list[Check]:
    from verifolio.storage.versions import versions

    return [(name, True, version) for name, version in versions().items()]


def _machine() -> list[Check]:
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory()
    return [
        ("cores", True, f"{usable} usable of {os.cpu_count()}"),
        ("memory", True, f"{memory.available / 2**30:.1f} GB free of {memory.total / 2**30:.1f} GB"),
        ("OMP_NUM_THREADS", True, os.environ.get("OMP_NUM_THREADS", "not set")),
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
    from verifolio.plugin.manager import current_plugins

    plugins = current_plugins()
    plugins.fill()
    broken, sources = plugins.broken, {p.name: p.distribution for p in plugins.entries}
    names: list[Check] = [
        (f"plugin {name}", name not in broken, broken.get(name, f"from {source}"))
        for name, source in sources.items()
    ]
    names += [(f"plugin {n}", False, why) for n, why in broken.items() if n not in sources]
    states = [
        (
            f"{p['kind']} {p['name']}",
            True,
            state(p),
        )
        for p in _inventory()
    ]
    return [*names, *states]


def state(plugin: dict[str, object]) -> str:
    """ready; not installed, and what to do; or not applicable: a kind of file, which is not installed."""
    why = plugin["unavailable"]
    if not why:
        return "ready"
    return f"not applicable: {why}" if "is a kind of file" in str(why) else f"not installed: {why}"


def _inventory() -> list[dict[str, object]]:
    from verifolio.cli.plugins import inventory

    return inventory()
