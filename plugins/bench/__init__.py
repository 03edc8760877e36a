"""Benchmark runs: `verifolio bench` decides a list of instances, survives interruptions, scores and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.hookspecs import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(app: typer.Typer) -> None:
    from .command import bench

    app.command("bench")(bench)
