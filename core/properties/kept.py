"""What a property came to around an input, as the store keeps it for reports."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifolio.model.outputs import outputs_to_bytes
from verifolio.onnx_import.network import Network
from verifolio.plugin.estimator import OracleLike
from verifolio.plugin.property import Property, Reference

if TYPE_CHECKING:
    from verifolio.properties.verdict import Finding

NORMS = {1.0: "l1", 2.0: "l2", math.inf: "linf"}


def keep(
    oracle: OracleLike, prop: Property, networks: Sequence[Network], reference: Reference, finding: Finding
) -> None:
    """Write a finding into the oracle's store, if it has one; inputs are kept where there is a counterexample."""
    store = getattr(oracle, "store", None)
    if store is not None:
        store.add_finding(_row(prop, networks, reference, finding))


def misclassified(
    prop: Property, networks: Sequence[Network], reference: Reference, y: NDArray[np.floating]
) -> bool:
    """Whether an input with the outputs `y` has another class than its label, and violates the property by that."""
    if len(networks) != 1 or reference.label not in range(len(y)) or int(np.argmax(y)) == reference.label:
        return False
    known = reference.with_outputs(networks) if prop.needs_outputs else reference
    return not prop.holds(np.asarray(y, np.float64), known, reference.x)


def keep_misclassified(
    oracle: OracleLike, prop: Property, networks: Sequence[Network], reference: Reference
) -> None:
    """The same for an input that violates the property by itself, so that nothing has to be asked."""
    store = getattr(oracle, "store", None)
    if store is not None:
        store.add_finding(_row(prop, networks, reference, None) | {"status": "misclassified"})


def _row(
    prop: Property, networks: Sequence[Network], reference: Reference, finding: Finding | None
) -> dict[str, object]:
    """A row of the table; without a finding nobody was asked."""
    x = np.asarray(reference.x, np.float64).ravel()
    witness = None if finding is None else finding.witness
    named = [{"name": n.path.name, "sha256": n.sha256} for n in networks]
    text = json.dumps([named, prop.key, reference.label, reference.epsilon, reference.norm])
    # the legal range and radii of single features are in the box, and nowhere else
    lower, upper = reference.box
    return {
        "key": hashlib.sha256(text.encode() + x.tobytes() + lower.tobytes() + upper.tobytes()).hexdigest(),
        "networks": json.dumps(named),
        "property": prop.name,
        "epsilon": reference.epsilon,
        "norm": NORMS[reference.norm],
        "low": float(np.min(reference.lower)),
        "high": float(np.max(reference.upper)),
        "label": reference.label,
        "origin": json.dumps(dict(reference.origin)),
        "shape": reference.origin.get("shape") or "x".join(map(str, networks[0].inputs[0].shape)),
        **_told(finding),
        "near": None if witness is None else x.astype(np.float32).tobytes(),
        "witness_x": None if witness is None else witness.x.astype(np.float32).tobytes(),
        "witness_y": None if witness is None else outputs_to_bytes(witness.y),
        "distance": None if witness is None else _distance(reference, witness.x),
    }


def _told(finding: Finding | None) -> dict[str, object]:
    """What the answer says."""
    if finding is None:
        return {"status": "", "verifier": "", "reason": "", "flags": "[]", "seconds": 0.0, "reused": 0}
    answer = finding.answer
    return {
        "status": finding.status.value,
        "verifier": answer.verifier,
        "reason": finding.reason or answer.reason,
        "flags": json.dumps(sorted(f.value for f in answer.flags)),
        "seconds": answer.seconds,
        "reused": int(answer.reused),
    }


def _distance(reference: Reference, x: np.ndarray[tuple[int], np.dtype[np.float32]]) -> float | None:
    """How far a counterexample is; None where the radius is not measured in the network's units."""
    if reference.geometry is not None:
        return None
    gap = np.asarray(x, np.float64) - np.asarray(reference.x, np.float64).ravel()
    return float(np.linalg.norm(gap, reference.norm))
