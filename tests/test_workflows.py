"""Workflow files cannot run here: they are read as the service reads them, and their scripts by bash."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted([*(ROOT / ".github/workflows").glob("*.yml"), *(ROOT / "examples/workflows").glob("*.yml")])
TOP = {"name", "on", "permissions", "concurrency", "jobs", "env", "defaults"}
JOB = {"name", "runs-on", "timeout-minutes", "strategy", "steps", "env", "needs", "if", "permissions"}
STEP = {"name", "uses", "with", "run", "env", "if", "id", "shell", "working-directory"}
EVENTS = {"push", "pull_request", "workflow_dispatch", "schedule", "release"}
# Whoever opens a pull request writes these: in a script they would be run.
UNTRUSTED = re.compile(r"\$\{\{\s*github\.(event|head_ref|actor)")
CONTEXTS = {"github", "matrix", "env", "runner", "secrets", "steps", "needs"}


def load(path: Path) -> dict[str, Any]:
    """YAML reads the key `on` as a truth value."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {("on" if key is True else key): value for key, value in found.items()}


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def test_there_are_workflows() -> None:
    assert {p.name for p in FILES} >= {"test.yml", "wheels.yml", "verify-model.yml"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_the_keys_exist(path: Path) -> None:
    found = load(path)
    assert found.keys() <= TOP and {"on", "jobs", "permissions"} <= found.keys()
    events = found["on"]
    assert set(events if isinstance(events, dict | list) else [events]) <= EVENTS
    for name, job in found["jobs"].items():
        assert re.fullmatch(r"[a-z_][a-z0-9_-]*", name)
        assert job.keys() <= JOB and {"runs-on", "steps", "timeout-minutes"} <= job.keys(), name
        for step in job["steps"]:
            assert step.keys() <= STEP and ("uses" in step) != ("run" in step), step


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_nothing_may_write_and_actions_have_versions(path: Path) -> None:
    assert load(path)["permissions"] == {"contents": "read"}
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+(\.\d+)*", step["uses"]), step["uses"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_scripts_are_scripts(path: Path) -> None:
    for step in steps(path):
        if "run" in step:
            assert not UNTRUSTED.search(step["run"]), step["run"]
            done = subprocess.run(
                ["bash", "-n"], input=step["run"], text=True, capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_expressions_are_about_things_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = {key for job in load(path)["jobs"].values() for key in job.get("strategy", {}).get("matrix", {})}
    for expression in re.findall(r"\$\{\{\s*(.+?)\s*\}\}", text):
        for context, field in re.findall(r"\b([a-z]+)\.([\w.]+)", expression):
            assert context in CONTEXTS, expression
            assert context != "matrix" or field in names, expression


def test_the_example_uses_commands_that_exist() -> None:
    """The options of the workflow for models are those of this version."""
    scripts = "\n".join(step.get("run", "") for step in steps(ROOT / "examples/workflows/verify-model.yml"))
    assert "verifolio report verified.db --output report" in scripts and "--verifolio-store" in scripts
    assert "## report" in (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert "--verifolio-store" in (ROOT / "core/pytest_plugin.py").read_text(encoding="utf-8")


def test_wheels_must_have_the_kernel() -> None:
    scripts = "\n".join(step.get("run", "") for step in steps(ROOT / ".github/workflows/wheels.yml"))
    assert "cibuildwheel" in scripts and "kernel/_boxes" in scripts
