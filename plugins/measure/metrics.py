"""Constraint satisfaction, security and accuracy (Casadio et al. 2022) of networks around inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verifolio.model.answer import Verdict
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values_at import outputs_at
from verifolio.plugin.estimator import OracleLike
from verifolio.plugin.property import Points, Property, Reference
from verifolio.properties.kept import keep_misclassified, misclassified
from verifolio.properties.verdict import Finding, PropertyStatus, decide_many

from .sample import Method, draw, share_interval

Array = NDArray[np.float64]
Progress = Callable[[int, int, str], None]
METRICS = ("csat", "csec", "cacc")
SURVIVED, VIOLATED = "survived", "violated"
MISCLASSIFIED = "misclassified"  # the input itself violates the property, so nothing is asked


@dataclass(frozen=True)
class Item:
    """One input at one radius: each metric's outcome, empty or None where it was not asked for."""

    index: int
    label: int
    csat: str = ""
    csec: str = ""
    passed: int = 0
    samples: int = 0
    seconds: float = 0.0
    verifier: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """One network at one radius."""

    network: str
    prop: str
    epsilon: float
    items: tuple[Item, ...] = field(default=(), repr=False)

    def count(self, what: str) -> int:
        return sum(i.csat == what for i in self.items)


@dataclass(frozen=True)
class Sampling:
    """How constraint accuracy is estimated."""

    samples: int = 100
    confidence: float = 0.95
    method: Method = "wilson"
    seed: int = 0


def misclassified_at(
    prop: Property, networks: Sequence[Network], references: Sequence[Reference]
) -> list[bool]:
    """Which inputs violate the property themselves, by another class than their label."""
    if len(networks) != 1:
        return [False] * len(references)
    outputs = networks[0].compute(outputs_at, networks[0], [r.x for r in references])
    return [misclassified(prop, networks, r, y) for r, y in zip(references, outputs, strict=True)]


def satisfaction(
    oracle: OracleLike,
    prop: Property,
    networks: Sequence[Network],
    references: Sequence[Reference],
    items: Sequence[Item],
    progress: Progress,
) -> list[Item]:
    """Constraint satisfaction: is the property proved, refuted or open around each input?"""
    found = list(items)
    for done, (k, finding) in enumerate(decide_many(oracle, prop, networks, references), 1):
        answer = finding.answer
        found[k] = replace(
            found[k],
            csat=finding.status.value,
            seconds=round(found[k].seconds + answer.seconds, 4),
            verifier=answer.verifier,
            reason=finding.reason if finding.status is PropertyStatus.OPEN else "",
        )
        progress(done, len(items), "csat")
    return found


def security(
    oracle: OracleLike,
    prop: Property,
    networks: Sequence[Network],
    references: Sequence[Reference],
    items: Sequence[Item],
    progress: Progress,
) -> list[Item]:
    """Constraint security: does the property survive the attack around each input?

    An attack that refuses the question has not been survived, and neither has one that broke down.
    """
    found = list(items)
    for done, (k, finding) in enumerate(decide_many(oracle, prop, networks, references), 1):
        outcome, reason = attacked(finding)
        found[k] = replace(found[k], csec=outcome, reason=found[k].reason or reason)
        progress(done, len(items), "csec")
    return found


def asked_apart(
    metric: str,
    oracle: OracleLike,
    prop: Property,
    networks: Sequence[Network],
    references: Sequence[Reference],
    items: Sequence[Item],
    wrong: Sequence[bool],
    progress: Progress,
) -> list[Item]:
    """csat or csec of the inputs that are not misclassified; the others are counted apart, as in `verify --data`."""
    rest = [k for k in range(len(items)) if not wrong[k]]
    ask = satisfaction if metric == "csat" else security
    near, left = [references[k] for k in rest], [items[k] for k in rest]
    known = dict(zip(rest, ask(oracle, prop, networks, near, left, progress) if rest else [], strict=True))
    for k in set(range(len(items))) - set(rest):
        keep_misclassified(oracle, prop, networks, references[k])
        csat = metric == "csat"
        known[k] = replace(items[k], csat=MISCLASSIFIED) if csat else replace(items[k], csec=MISCLASSIFIED)
    return [known[k] for k in range(len(items))]


def attacked(finding: Finding) -> tuple[str, str]:
    """What an attack came to, and why where it was none."""
    if finding.status is PropertyStatus.REFUTED:
        return VIOLATED, ""
    for answer in finding.answers:
        if answer.verdict in (Verdict.ERROR, Verdict.MEMOUT):
            return "error", answer.reason
        if all(a.refused for a in answer.attempts) and not answer.verdict.decided:
            return "refused", answer.reason
    return SURVIVED, ""


def accuracy(
    prop: Property,
    networks: Sequence[Network],
    references: Sequence[Reference],
    items: Sequence[Item],
    sampling: Sampling,
    progress: Progress,
) -> list[Item]:
    """Constraint accuracy: how many of many uniform samples around each input pass?"""
    found = []
    for done, (item, reference) in enumerate(zip(items, references, strict=True), 1):
        prop.query(networks, reference)  # says what does not fit: labels, positions, numbers of outputs
        rng = np.random.default_rng((sampling.seed, item.index))
        x = draw(prop, reference, sampling.samples, rng).astype(np.float32)
        y = networks[0].compute(sampled_outputs, tuple(networks), x)
        known = reference.with_outputs(networks)
        # the sums of a batch may be rounded in another order, and equal inputs have equal outputs
        y[(x == known.x.ravel()).all(axis=1)] = known.outputs
        passed = int(prop.satisfied(Points.at(known, x, y)).sum())
        found.append(replace(item, passed=passed, samples=sampling.samples))
        progress(done, len(items), "cacc")
    return found


def sampled_outputs(networks: Sequence[Network], x: NDArray[np.float32]) -> Array:
    """The outputs of all networks at many points, in double precision as those at the input itself."""
    import torch

    from verifolio.graph.module import double_module

    points = torch.from_numpy(x).double()
    with torch.no_grad():
        return torch.cat([double_module(n.graph)(points) for n in networks], dim=1).numpy()


def summarise(row: Row, sampling: Sampling) -> dict[str, object]:
    """The numbers of one row; a metric that was not asked for is absent."""
    n = len(row.items)
    out: dict[str, object] = {
        "network": row.network,
        "property": row.prop,
        "epsilon": row.epsilon,
        "inputs": n,
    }
    if any(i.csat for i in row.items):
        out |= {s: row.count(s) for s in (*(s.value for s in PropertyStatus), MISCLASSIFIED)}
        failed = row.count(PropertyStatus.REFUTED) + row.count(MISCLASSIFIED)
        out["csat_low"] = percent(row.count(PropertyStatus.PROVED), n)
        out["csat_high"] = percent(n - failed, n)
        out["seconds"] = round(sum(i.seconds for i in row.items), 3)
    if any(i.csec for i in row.items):
        survived = sum(i.csec == SURVIVED for i in row.items)
        asked = survived + sum(i.csec in (VIOLATED, MISCLASSIFIED) for i in row.items)
        out["csec"] = percent(survived, asked) if asked else math.nan
        if asked < n:
            out["not_attacked"] = n - asked
    total = sum(i.samples for i in row.items)
    if total:
        passed = sum(i.passed for i in row.items)
        low, high = share_interval(passed, total, sampling.confidence, sampling.method)
        out |= {"cacc": percent(passed, total), "cacc_low": 100 * low, "cacc_high": 100 * high}
    return out


def percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
