"""Gurobi without a licence, with an expired one, or with a small one: HiGHS does the work, and the notes say why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPIRED = """TYPE=ACADEMIC
VERSION=11
HOSTNAME=nowhere
HOSTID=12345678
USERNAME=nobody
EXPIRATION=2020-01-01
KEY=NONE
CKEY=NONE
"""
PROGRAM = """
import json
import numpy as np
from verifolio.run.budget import Budget
from verifolio.plugins.milp.options import MilpOptions
from verifolio.plugins.milp.verifier import Milp
from verifolio.testing.generate import Shape, generate
from verifolio.plugin.verifier import Context
made = generate(np.random.default_rng(1), Shape(width=4), -1e-3)
found = []
for solver in ("gurobi", "auto"):
    options = MilpOptions(search="solver", solver=solver, tighten=0.0)
    outcome = Milp(options).run(made.problem, Context(Budget(60.0)))
    found.append([outcome.verdict.value, dict(outcome.stats)])
print(json.dumps(found))
"""


@pytest.mark.parametrize(("text", "reason"), [(None, "licen"), (EXPIRED, "expired")])
def test_a_missing_or_expired_licence_is_a_note(tmp_path: Path, text: str | None, reason: str) -> None:
    pytest.importorskip("gurobipy", reason="gurobipy is an extra")
    licence = tmp_path / "gurobi.lic"
    if text is not None:
        licence.write_text(text)
    # the licence is read once per process
    ran = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        env=os.environ | {"GRB_LICENSE_FILE": str(licence)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for verdict, stats in json.loads(ran.stdout):
        assert verdict == "unsat"
        assert stats["solver"] == "highs"
        assert reason in stats["note"].lower()
