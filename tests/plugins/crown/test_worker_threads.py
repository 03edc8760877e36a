"""Worker threads: everything is done once, the end is reached, errors come out."""

from __future__ import annotations

import threading

import pytest
import torch

from verifolio.plugins.crown.worker_threads import WorkerThreads


class Halving:
    """Numbers that are cut in two until they are 1; the ones are counted."""

    def __init__(self, size: int, first: int, stop_at: int = 0) -> None:
        self.waiting, self.ones, self.stop_at = [first], 0, stop_at
        self.threads: set[str] = set()
        self.workers = WorkerThreads(size, self.take, self.work)

    def take(self) -> int | None:
        return self.waiting.pop() if self.waiting else None

    def work(self, number: int) -> bool:
        self.threads.add(threading.current_thread().name)
        torch.ones(200, 200) @ torch.ones(200, 200)
        with self.workers.lock:
            if number == 1:
                self.ones += 1
            else:
                self.waiting += [number // 2, number - number // 2]
        if number < 0:
            raise ValueError("negative")
        return number == self.stop_at


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nothing_is_lost_and_nothing_done_twice(size: int) -> None:
    before = torch.get_num_threads()
    work = Halving(size, 500)
    work.workers.run()
    assert work.ones == 500
    assert not work.waiting
    assert len(work.threads) <= size
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("size", [1, 3])
def test_whoever_finds_it_ends_it(size: int) -> None:
    work = Halving(size, 1 << 20, stop_at=1 << 10)
    work.workers.run()
    assert work.ones < 1 << 20


def test_an_error_in_any_thread_comes_out() -> None:
    with pytest.raises(ValueError, match="negative"):
        Halving(3, -5).workers.run()
