"""Finding and measuring what descends from a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from verifolio.run import tree

CODE = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(30)'])"


@pytest.mark.parametrize("portably", [False, True])
def test_descendants(portably: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if portably:
        monkeypatch.setattr(tree, "_LISTS_CHILDREN", False)
        monkeypatch.setattr(tree, "_HAS_STATM", False)
    child = subprocess.Popen([sys.executable, "-c", CODE])
    limit = time.monotonic() + 10
    while len(below := tree.descendants(child.pid)) < 1 and time.monotonic() < limit:
        time.sleep(0.01)
    assert len(below) == 1
    assert child.pid in tree.children(os.getpid())
    assert tree.resident([child.pid, *below]) > tree.resident([child.pid]) > 1_000_000
    for pid in (*below, child.pid):
        tree.signal_all([pid], signal.SIGKILL)
    child.wait()
    assert tree.descendants(child.pid) == []
    assert tree.resident([child.pid]) == 0
    tree.signal_all([child.pid], signal.SIGKILL)
