"""Torch's own threads, and why the work here does without them.

They meet at the end of every operation. Bounds and attacks are many small operations: two threads were as fast as
one on an idle machine, and up to twenty times slower on a busy one, where one of them always waits for a core. Work
that can be divided is divided into large pieces, one per thread, which never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Operations of the calling thread run on it alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
