"""The answer of a run in a sentence with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from verifolio.plugin.account import Account, InputResult

from .compare import Share, at_each, robust_at

NAMED = 3  # networks that a sentence names; the curve shows the others
NORMS = {"linf": "maximum norm", "l1": "L1 norm", "l2": "L2 norm"}


def short(network: str) -> str:
    """A network's name for people."""
    return network.replace(".onnx", "")


def count(number: int, one: str, many: str) -> str:
    """A number of things."""
    return f"{number} {one if number == 1 else many}"


def middle(values: Sequence[float]) -> float:
    """The radius that a sentence speaks about: the one in the middle."""
    return sorted(values)[(len(values) - 1) // 2]


def answer(account: Account) -> str:
    """What came out, in a sentence with numbers."""
    if account.brackets or any(r.epsilon is not None for r in account.results):
        return _about_radii(account) if account.thresholds else _verdicts(account)
    return _verdicts(account)


def _about_radii(account: Account) -> str:
    """The share of robust inputs at one radius, network by network, the most robust first."""
    radius = middle(account.thresholds)
    shares = {}
    for name in account.networks:
        mine = at_each([r for r in account.results if r.network == name], radius)
        if mine:
            shares[name] = robust_at(mine, radius)
    norm = NORMS.get(account.provenance.get("norm", ""), "")
    where = f"{radius:g}" + (f" ({norm})" if norm else "")
    order = sorted(shares, key=lambda n: (-shares[n].low, -shares[n].high))
    if not order:
        return _verdicts(account)
    if len(order) == 1:
        share = shares[order[0]]
        return f"{short(order[0])} is robust on {_both(share)} within radius {where}."
    inputs = shares[order[0]].of
    first = f"{short(order[0])} is robust on {shares[order[0]].text} of {count(inputs, 'input', 'inputs')}"
    others = [f"{short(n)} on {_text(shares[n], inputs)}" for n in order[1:NAMED]]
    more = len(order) - NAMED
    others += [count(more, "more network below that", "more networks below that")] if more > 0 else []
    return f"Within radius {where}, {', '.join([first, *others[:-1]])} and {others[-1]}."


def _text(share: Share, inputs: int) -> str:
    """The share, and of how many where a run has not come as far with this network."""
    return share.text + (f" of {count(share.of, 'input', 'inputs')}" if share.of != inputs else "")


def _both(share: Share) -> str:
    if share.low == share.high:
        return f"{share.low} of {count(share.of, 'input', 'inputs')} ({share.text})"
    return f"at least {share.low} and at most {share.high} of {count(share.of, 'input', 'inputs')} ({share.text})"


def _verdicts(account: Account) -> str:
    """How many questions are decided, and how."""
    found = Counter(kind(r) for r in account.results)
    total = len(account.results)
    parts = [f"{found['proved']} proved", count(found["refuted"], "counterexample", "counterexamples")]
    parts.append(f"{found['open']} open")
    if found["error"]:
        parts.append(count(found["error"], "error", "errors"))
    return f"{count(total, 'question', 'questions')}: {', '.join(parts[:-1])} and {parts[-1]}."


def kind(result: InputResult) -> str:
    """The status in the words of verdicts."""
    return "proved" if result.status == "closed" else result.status


def cards(account: Account) -> list[tuple[str, str, str]]:
    """The counts at the top of a page: what, how many, and what that means."""
    found = Counter(r.status for r in account.results)
    total = account.total or len(account.results)
    shown = [
        ("questions" if not account.brackets else "inputs", f"{len(account.results)}", _of(account, total))
    ]
    if account.brackets:
        measured = found["closed"] + found["open"]
        shown.append(("closed", f"{found['closed']}", f"of {measured} brackets are as narrow as asked"))
        shown.append(("open", f"{found['open']}", "brackets that time did not close"))
    else:
        shown.append(("proved", f"{found['proved']}", "no counterexample exists"))
        shown.append(("refuted", f"{found['refuted']}", "a counterexample was replayed"))
        shown.append(("open", f"{found['open']}", "neither proved nor refuted"))
    if found["misclassified"]:
        shown.append(("misclassified", f"{found['misclassified']}", "wrong without any change"))
    if found["error"]:
        shown.append(("errors", f"{found['error']}", "could not be asked"))
    shown.append(("counterexamples", f"{len(account.examples)}", "each replayed by ONNX Runtime"))
    return shown


def _of(account: Account, total: int) -> str:
    networks = count(len(account.networks), "network", "networks")
    return f"on {networks}" + (f", of {total}" if total > len(account.results) else "")
