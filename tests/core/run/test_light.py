"""Light jobs: they run before the other modules are imported, and nothing is left of an import that nobody needs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psutil
import pytest

from verifolio.run import End, Job, Pool, template
from verifolio.testing import hostile

NAMES = ("colorsys", "this")


def below() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def result(pool: Pool, job: Job) -> object:
    found = pool.submit(job).wait(60)
    assert found is not None
    assert found.end is End.DONE, found.detail
    return found.value


def test_a_light_job_runs_where_less_is_imported_and_others_where_all_is() -> None:
    with Pool(1, ("this",), light=("colorsys",)) as pool:
        assert result(pool, Job(hostile.loaded_modules, NAMES, light=True)) == ["colorsys"]
        assert result(pool, Job(hostile.loaded_modules, NAMES)) == ["colorsys", "this"]
        assert result(pool, Job(hostile.loaded_modules, NAMES, light=True)) == [
            "colorsys",
            "this",
        ]  # full workers do it now


def test_a_light_worker_is_kept_for_further_light_jobs_and_leaves_when_others_are_there() -> None:
    with Pool(1, (), light=("colorsys",)) as pool:
        first = result(pool, Job(hostile.count_calls, light=True))
        assert isinstance(first, tuple)
        assert result(pool, Job(hostile.count_calls, light=True)) == (first[0], first[1] + 1)
        assert result(pool, Job(hostile.echo, 1)) == 1
        until = time.monotonic() + 20
        while psutil.pid_exists(first[0]) and time.monotonic() < until:
            time.sleep(0.02)
        assert not psutil.pid_exists(first[0])


@pytest.mark.parametrize("again", range(4))
def test_a_job_is_not_left_to_a_light_worker_that_knows_its_networks(again: int) -> None:
    with Pool(1, (), light=("colorsys",)) as pool:
        assert result(pool, Job(hostile.echo, again, affinity="a network", light=True)) == again
        assert result(pool, Job(hostile.echo, again, affinity="a network")) == again


def test_without_light_modules_all_workers_are_the_same() -> None:
    with Pool(1, ("colorsys",)) as pool:
        assert result(pool, Job(hostile.loaded_modules, NAMES, light=True)) == ["colorsys"]


def slow_module(folder: Path, seconds: float) -> str:
    """A module whose import leaves a file when it begins, and another one when it ends."""
    begun, ended = (str(folder / name) for name in ("begun", "ended"))
    text = f"import pathlib, time\npathlib.Path({begun!r}).touch()\ntime.sleep({seconds})\n"
    (folder / "slow_to_import.py").write_text(text + f"pathlib.Path({ended!r}).touch()\n")
    return "slow_to_import"


def test_nothing_is_imported_that_nobody_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    with Pool(1, (slow_module(tmp_path, 0),), light=("colorsys",)) as pool:
        assert result(pool, Job(hostile.echo, 3, light=True)) == 3
        assert not (tmp_path / "begun").exists()
        assert result(pool, Job(hostile.echo, 4)) == 4
        assert (tmp_path / "ended").exists()


def test_an_import_that_goes_on_is_killed_with_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full workers' modules take a minute to import; the pool is closed as soon as a light job is done."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    already = {p.pid for p in below()}
    with Pool(1, (slow_module(tmp_path, 60),), light=("colorsys",)) as pool:
        waiting = pool.submit(Job(hostile.echo, 1))
        assert result(pool, Job(hostile.echo, 2, light=True)) == 2
        until = time.monotonic() + 30
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert (tmp_path / "begun").exists()
        mine = [p for p in below() if p.pid not in already]
        assert len(mine) >= 2
    assert waiting.result is not None
    assert waiting.result.end is not End.DONE
    assert not psutil.wait_procs(mine, timeout=10)[1]
    assert not (tmp_path / "ended").exists()
    assert not list((tmp_path / "temporary").iterdir())


def test_a_full_template_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import ends the process the first time; light jobs go on, and the next full job finds another template."""
    once = tmp_path / "once"
    text = f"import os, pathlib\nonce = pathlib.Path({str(once)!r})\nif not once.exists():\n"
    (tmp_path / "dies_once.py").write_text(text + "    once.touch()\n    os._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Pool(1, ("dies_once",), light=("colorsys",)) as pool:
        lost = pool.submit(Job(hostile.echo, 1)).wait(60)
        assert lost is not None
        assert lost.end is End.CRASH
        until = time.monotonic() + 30
        while pool._template is not None and pool._template.alive() and time.monotonic() < until:
            time.sleep(0.05)
        assert result(pool, Job(hostile.echo, 2)) == 2


def test_what_light_workers_import_has_no_torch() -> None:
    assert "torch" in template.PRELOAD
    with Pool(1, ("this",), light=template.LIGHT) as pool:
        found = result(
            pool, Job(hostile.loaded_modules, ("torch", "onnxruntime", "verifolio.solve.attempt"), light=True)
        )
    assert found == ["onnxruntime", "verifolio.solve.attempt"]
