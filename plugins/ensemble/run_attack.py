"""From the arguments of `ensemble attack` to printed results."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifolio.cli.codes import DONE, UNDECIDED
from verifolio.cli.output import complain, say, say_json, table
from verifolio.data import check_shape
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network

from .attack import AttackOptions, AttackRequest, AttackResult, EnsembleAttack, GameVerdict, Method
from .certificates import certify_value, require
from .joint import JointOptions
from .lattice import members
from .picture_file import picture_path
from .spot import make_references

if TYPE_CHECKING:
    from .commands import AttackInputs, AttackSearch, AttackWritten, Running


def run_attack(
    paths: Sequence[str], inputs: AttackInputs, search: AttackSearch, running: Running, written: AttackWritten
) -> int:
    """Run, print, draw; gives the exit code."""
    target = picture_path(written.picture)
    alpha = read_alpha(search.alpha)
    networks = tuple(Network.load(n) for n in paths)
    data = inputs.dataset()
    for network in networks:
        check_shape(data, network)
    indices = inputs.positions(len(data))
    references = make_references(data, indices, inputs.radius, inputs.order, inputs.limits)
    options = AttackOptions(
        Method(search.method),
        search.attacks,
        search.exact or alpha is None,
        running.seconds,
        JointOptions(form=search.form),
        written.keep_queries,
        running.store,
    )
    request = AttackRequest(networks, tuple(references), alpha)
    with running.oracle(inputs.order) as oracle:
        folder = Path(written.certificate) if written.certificate else None
        if folder is not None:
            require(request, options.method, oracle)
        result = EnsembleAttack(options).run(request, oracle, _tell)
        if folder is not None:
            for line in certify_value(request, result, folder, oracle):
                complain(line)
    if written.json:
        say_json(describe(inputs, request, result, indices))
    else:
        show(request, result, indices)
    if target is not None:
        from .pictures import draw_attack

        draw_attack(request, result, data.shape, target)
    known = result.verdict is not GameVerdict.UNKNOWN
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
    inputs: AttackInputs, request: AttackRequest, result: AttackResult, indices: list[int]
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
        "epsilon": inputs.radius,
        "norm": inputs.norm,
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
