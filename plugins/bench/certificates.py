"""Certificates of a benchmark's unsat answers, one file per instance."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verifolio.errors import VerifolioError
from verifolio.files.names import safe_name
from verifolio.model.answer import Verdict
from verifolio.solve.certifying import Certifying
from verifolio.solve.oracle import Oracle

from .instances import Instance
from .results import InstanceResult
from .runner import load


def certify_all(
    pairs: Sequence[tuple[Instance, InstanceResult]], folder: Path, oracle: Oracle, jobs: int
) -> list[str]:
    """A certificate per unsat, within the instance's own limit; says how many, and why the others have none."""
    proved = [instance for instance, result in pairs if result.verdict is Verdict.UNSAT]

    def one(instance: Instance) -> str:
        target = folder / safe_name(instance.category) / f"{instance.name}.gz"
        if target.exists():
            return str(target)
        try:
            query = load(instance)
            made = Certifying(oracle).make(query, instance.timeout, instance.specification.read_bytes())
        except (OSError, VerifolioError) as error:
            return f"not written: {error}"
        return made.save(target)

    with ThreadPoolExecutor(jobs, "certificates") as threads:
        said = dict(zip([i.label for i in proved], threads.map(one, proved), strict=True))
    missing = [
        f"{label}: certificate {text}" for label, text in said.items() if text.startswith("not written")
    ]
    return [f"certificates: {len(proved) - len(missing)} of {len(proved)} unsat in {folder}", *missing]
