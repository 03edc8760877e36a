"""The testing kit: what a plugin author needs to check a plugin, and what checks the framework itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifolio.testing.bounders import BounderConformance
    from verifolio.testing.corpus import EXAMPLES, Example
    from verifolio.testing.estimators import EstimatorConformance
    from verifolio.testing.networks import Classifier
    from verifolio.testing.properties import PropertyConformance
    from verifolio.testing.trial import Trial, attempt
    from verifolio.testing.verifiers import VerifierConformance

# The kits need pytest, the rest of this package does not: each is imported when its name is first used.
_HOME_OF = {
    "EXAMPLES": "corpus",
    "BounderConformance": "bounders",
    "Classifier": "networks",
    "EstimatorConformance": "estimators",
    "Example": "corpus",
    "PropertyConformance": "properties",
    "Trial": "trial",
    "VerifierConformance": "verifiers",
    "attempt": "trial",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


__all__ = [
    "EXAMPLES",
    "BounderConformance",
    "Classifier",
    "EstimatorConformance",
    "Example",
    "PropertyConformance",
    "Trial",
    "VerifierConformance",
    "attempt",
]
