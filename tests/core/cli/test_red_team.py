"""Malformed inputs thrown at the commands: each is told in a line, none costs more than its share of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("red_team.py")
MOST = 1500  # megabytes that a case may add to the peak: a network may have a gigabyte


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_input_ends_in_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(told) >= 100
    wrong = [t for t in told if t["code"] != 2 or "Traceback" in t["said"] or not t["said"].strip()]
    assert not wrong
    assert not [t for t in told if t["megabytes"] > MOST]
