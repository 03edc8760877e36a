"""Every verifier, bounder and property that is installed here passes the kit that strangers use."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.plugin.manager import current_plugins
from verifolio.plugin.options import build_options
from verifolio.plugin.property import Property, Reference
from verifolio.plugins.distribution.bracket import Bracket
from verifolio.plugins.distribution.family import Family
from verifolio.plugins.distribution.grid_search import Binary, KBinary
from verifolio.plugins.distribution.radius_search import Critical, RadiusQuestion
from verifolio.plugins.measure.satisfaction import Satisfaction, SatisfactionRequest, Satisfied
from verifolio.properties.file import choose_property
from verifolio.testing import (
    BounderConformance,
    Classifier,
    EstimatorConformance,
    PropertyConformance,
    VerifierConformance,
)

# who decides every problem that it does not refuse, given time
COMPLETE = {"crown", "milp", "smt"}
# where the default options ask for nothing, or for too much to be violated by the kit's networks
OPTIONS: dict[str, dict[str, object]] = {
    "standard": {"delta": 0.2},
    "lipschitz": {"constant": 0.75},
    "equivalence": {"delta": 0.03},
    "output-range": {"lower": 0.1, "upper": 0.9},
}
STRETCHED = {"lipschitz"}  # violations near the reference count where their ray meets a larger radius
ELSEWHERE = {"vnnlib"}  # needs a file; its class below writes one


def _tests(registry: Any, base: type) -> dict[str, type]:
    """One test class per plugin, so that a failure names it; what is unavailable is skipped."""
    found = {}
    for cls in registry:
        if cls.name in ELSEWHERE:
            continue
        options = build_options(cls.Options, OPTIONS[cls.name], cls.name) if cls.name in OPTIONS else None
        make = cls if options is None else partial(cls, options)
        title = "Test" + "".join(word.capitalize() for word in cls.name.split("-")) + base.__name__[:-11]
        body: dict[str, object] = {"make": make, "complete": cls.name in COMPLETE, "__module__": __name__}
        body["pointwise"] = cls.name not in STRETCHED
        found[title] = type(title, (base,), body)
    return found


globals().update(_tests(current_plugins().verifiers, VerifierConformance))
globals().update(_tests(current_plugins().bounders, BounderConformance))
globals().update(_tests(current_plugins().properties, PropertyConformance))


class TestVnnlibProperty(PropertyConformance):
    """A file's own box and condition: some score other than the last is highest in the upper right quarter."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Property:
        names = [*(f"X_{k}" for k in range(2)), *(f"Y_{k}" for k in range(3))]
        lines = [f"(declare-const {name} Real)" for name in names]
        lines += [f"(assert (>= X_{k} 0.25))\n(assert (<= X_{k} 1.0))" for k in range(2)]
        lines += ["(assert (or (and (>= Y_0 Y_2) (>= Y_0 Y_1)) (and (>= Y_1 Y_2) (>= Y_1 Y_0))))"]
        path = tmp_path / "condition.vnnlib"
        path.write_text("\n".join(lines))
        cls = current_plugins().properties.get("vnnlib")
        return cls(build_options(cls.Options, {"path": str(path)}, "vnnlib"))


class RadiusKit(EstimatorConformance):
    """The critical radius of (1/4, 1/4) is where 1/4 + r = 1 - (2 r - 1/2), in the kit's classifier."""

    truth = 1.25 / 3

    def request(self, folder: Path) -> RadiusQuestion:
        family = Family(Classifier(folder).network(), np.array([0.25, 0.25]), 2)
        return RadiusQuestion(family, radii=tuple(k / 20 for k in range(1, 20)), tolerance=1e-2, budget=20.0)

    def check(self, result: Critical) -> None:
        assert result.upper is not None
        assert result.lower <= self.truth <= result.upper

    def facts(self, result: Critical) -> object:
        return result.lower, result.upper, result.status

    def essence(self, result: Critical) -> object:
        return (
            result.lower,
            result.upper,
            result.status,
        )  # how many queries it took depends on who answers first


class TestBracketEstimator(RadiusKit):
    make = Bracket


class TestBinaryEstimator(RadiusKit):
    make = Binary


class TestKBinaryEstimator(RadiusKit):
    make = KBinary


class TestSatisfactionEstimator(EstimatorConformance):
    """Proved below the critical radius of the kit's classifier, refuted above it."""

    make = Satisfaction

    def request(self, folder: Path) -> SatisfactionRequest:
        references = tuple(Reference(np.array([0.25, 0.25]), 2, radius) for radius in (0.4, 0.43))
        network = Classifier(folder).network()
        return SatisfactionRequest(choose_property("classification"), (network,), references)

    def check(self, result: Satisfied) -> None:
        assert [item.csat for item in result.items] == ["proved", "refuted"]

    def essence(self, result: Satisfied) -> object:
        return [(item.index, item.csat) for item in result.items]


@pytest.mark.parametrize("kind", ["verifiers", "bounders", "properties"])
def test_something_is_installed(kind: str) -> None:
    assert [c.name for c in getattr(current_plugins(), kind)]
