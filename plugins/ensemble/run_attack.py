"""From the arguments of `ensemble attack` to printed results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from verifolio.cli.main import DONE, UNDECIDED, complain
from verifolio.cli.output import say, say_json, table
from verifolio.data import check_shape, in_layout, load_data, parse_indices
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

from .attack import AttackOptions, AttackRequest, AttackResult, EnsembleAttack, Method, Outcome
from .falsify import Plan
from .joint import JointOptions
from .lattice import members
from .picture_file import picture_path
from .replay import make_references

if TYPE_CHECKING:
    from .commands import Limits

NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


@dataclass(frozen=True)
class AttackCall:
    """The arguments as given."""

    networks: tuple[str, ...]
    data: str
    indices: str
    epsilon: float
    alpha: str
    norm: str
    clip: bool
    attacks: int
    method: str
    exact: bool
    form: str
    layout: str = ""


def run_attack(call: AttackCall, limits: Limits, as_json: bool, picture: str) -> int:
    """Run, print, draw; gives the exit code."""
    target = picture_path(picture)
    alpha = read_alpha(call.alpha)
    networks = tuple(Network.load(n) for n in call.networks)
    data = in_layout(load_data(call.data), call.layout)
    for network in networks:
        check_shape(data, network)
    indices = parse_indices(call.indices, len(data))
    references = make_references(data, indices, call.epsilon, NORMS[call.norm], call.clip)
    options = AttackOptions(
        Method(call.method),
        call.attacks,
        call.exact or alpha is None,
        limits.seconds,
        JointOptions(form=call.form),  # type: ignore[arg-type]
        Plan(seed=limits.seed),
        limits.keep,
        limits.store,
    )
    request = AttackRequest(networks, tuple(references), alpha)
    with limits.oracle(NORMS[call.norm]) as oracle:
        result = EnsembleAttack(options).run(request, oracle, _tell)
    if as_json:
        say_json(describe(call, request, result, indices))
    else:
        show(request, result, indices)
    if target is not None:
        from .pictures import draw_attack

        draw_attack(request, result, data.shape, target)
    known = result.verdict is not Outcome.UNKNOWN
    if alpha is None:
        known = result.value_lower == result.value_upper
    return DONE if known else UNDECIDED


def _tell(done: int, total: int, message: str) -> None:
    complain(f"{message} ({done} of {total})" if total else message)


def read_alpha(text: str) -> Fraction | None:
    """Exactly the decimal (or fraction) that was written."""
    if not text:
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError("--alpha", "a number such as 0.4 or 1/3", repr(text)) from None


def show(request: AttackRequest, result: AttackResult, indices: list[int]) -> None:
    """The verdict, the value, the attacks."""
    say(result.verdict.value)
    low, high = result.value_lower, result.value_upper
    exact = low == high
    value = f"{float(low):.6g} = {low}" if exact else f"from {float(low):.6g} to {float(high):.6g}"
    say(f"value: {value}" + ("" if request.alpha is None else f" (alpha {float(request.alpha):g})"))
    if result.reason:
        say(f"reason: {result.reason}")
    names = [n.path.stem for n in request.networks]
    weights = ", ".join(f"{n} {w}" for n, w in zip(names, result.weights, strict=True) if w)
    if exact or result.method is Method.DECOMPOSITION:
        say(f"weights that prove the upper value: {weights}")
    rows = []
    for k, attack in enumerate(result.attacks):
        for j, pattern in enumerate(attack.patterns):
            fooled = " ".join(names[c] for c in members(pattern)) or "-"
            rows.append((k, attack.probability, indices[j], request.references[j].label, fooled))
    say()
    table(("attack", "probability", "point", "label", "fooled"), rows)
    counts = {k: v for k, v in result.stats.items() if v and not isinstance(v, dict)}
    say()
    say(f"{result.seconds:.2f} s; " + ", ".join(f"{k} {v}" for k, v in counts.items()))


def describe(
    call: AttackCall, request: AttackRequest, result: AttackResult, indices: list[int]
) -> dict[str, Any]:
    """The result for programs; fractions are given as text too."""
    return {
        "verdict": result.verdict.value,
        "method": result.method.value,
        "value_lower": float(result.value_lower),
        "value_upper": float(result.value_upper),
        "value_lower_exact": str(result.value_lower),
        "value_upper_exact": str(result.value_upper),
        "alpha": None if request.alpha is None else str(request.alpha),
        "epsilon": call.epsilon,
        "norm": call.norm,
        "probabilities": [str(a.probability) for a in result.attacks],
        "attacks": [
            {
                "probability": float(a.probability),
                "points": [
                    {"index": i, "x": x, "fooled": members(p)}
                    for i, x, p in zip(indices, a.points, a.patterns, strict=True)
                ],
            }
            for a in result.attacks
        ],
        "weights": [str(w) for w in result.weights],
        "networks": [str(n.path) for n in request.networks],
        "network_sha256": [n.sha256 for n in request.networks],
        "indices": indices,
        "labels": [r.label for r in request.references],
        "reason": result.reason,
        "seconds": round(result.seconds, 6),
        "stats": result.stats,
    }
