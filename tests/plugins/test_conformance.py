"""Every verifier, bounder and property that is installed here passes the kit that strangers use."""

from __future__ import annotations

import pytest

from verifolio.registry import installed
from verifolio.testing import BounderConformance, VerifierConformance

# who decides every problem that it does not refuse, given time
COMPLETE = {"crown", "milp", "smt"}


def _tests(kind: str, base: type, names: list[str]) -> dict[str, type]:
    """One test class per plugin, so that a failure names it; what is unavailable is skipped with its reason."""
    registry = getattr(installed(), kind)
    found = {}
    for name in names:
        cls = next(c for c in registry if c.name == name)
        title = "Test" + "".join(word.capitalize() for word in name.split("-")) + base.__name__[:-11]
        found[title] = type(
            title, (base,), {"make": cls, "complete": name in COMPLETE, "__module__": __name__}
        )
    return found


globals().update(_tests("verifiers", VerifierConformance, [c.name for c in installed().verifiers]))
globals().update(_tests("bounders", BounderConformance, [c.name for c in installed().bounders]))


@pytest.mark.parametrize("kind", ["verifiers", "bounders"])
def test_something_is_installed(kind: str) -> None:
    assert [c.name for c in getattr(installed(), kind)]
