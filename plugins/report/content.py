"""What the page shows, as plain values: the one form that a file embeds and that the live view sends."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verifolio.cli.output import plain
from verifolio.plugin.account import Account, Example
from verifolio.plugin.palette import colours
from verifolio.plugin.section import Content

from .compare import Comparison, Share, compare_all, decided
from .png import difference, picture
from .provenance import day
from .sentence import NORMS, answer, cards, short

PICTURES = 240  # counterexamples with pictures, and
BYTES = 6_000_000  # how much they may take together: a page is sent by mail
CHANGES = 12  # changed values that are listed of a counterexample
EVENTS = 20_000  # answers on the timeline; of more, every second or third one is left out


def page_content(
    accounts: Sequence[Account], made: Mapping[int, Sequence[Content]] | None = None, live: Any = None
) -> dict[str, Any]:
    """Everything; `made` are the contents of sections by position of the account."""
    names = dict.fromkeys(name for account in accounts for name in account.networks)
    colour = colours(names)
    networks = [
        {
            "name": name,
            "short": short(name),
            "colour": colour[name],
            "sha256": next(a.networks[name] for a in accounts if name in a.networks),
        }
        for name in names
    ]
    place = {name: k for k, name in enumerate(names)}
    return {
        "title": f"verifolio: {', '.join(short(n) for n in names)}"[:120],
        "made": day(time.time()),
        "networks": networks,
        "alarms": [text for account in accounts for text in account.alarms],
        "chapters": [chapter(a, place, (made or {}).get(k, ())) for k, a in enumerate(accounts)],
        "live": live,
    }


def chapter(account: Account, place: Mapping[str, int], contents: Sequence[Content]) -> dict[str, Any]:
    """One run."""
    shown = {(*e.place, e.epsilon): k for k, e in enumerate(account.examples)}
    verifiers = list(dict.fromkeys(e.verifier for e in account.events))
    step = 1 + len(account.events) // EVENTS
    return {
        "kind": account.kind,
        "run": account.run,
        "answer": answer(account),
        "cards": cards(account),
        "brackets": account.brackets,
        "thresholds": list(account.thresholds),
        "norm": NORMS.get(account.provenance.get("norm", ""), account.provenance.get("norm", "")),
        "results": [
            [
                *(place[r.network], r.data, r.index, r.status, _number(r.lower), _number(r.upper)),
                *(_number(r.epsilon), r.label, r.predicted, r.verifier, _number(r.seconds), int(r.reused)),
                *(", ".join(r.flags), r.reason, shown.get((*r.place, r.epsilon))),
            ]
            for r in account.results
        ],
        "examples": examples(account.examples, place),
        "comparisons": [comparison(c, place) for c in compare_all(account)],
        "verifiers": verifiers,
        "events": [
            [
                *(round(e.when, 3), verifiers.index(e.verifier), e.verdict, round(e.seconds, 4)),
                *(place.get(e.network), e.index, _number(e.radius), int(e.reused)),
            ]
            for e in account.events[::step]
        ],
        "provenance": list(account.provenance.items()),
        **sections(contents),
    }


def sections(contents: Sequence[Content]) -> dict[str, Any]:
    """The tables and pictures of sections."""
    tables = [
        {"name": t.name, "title": t.title, "columns": t.columns, "rows": t.rows}
        for content in contents
        for t in content.tables
    ]
    pictures = [(caption, path) for content in contents for caption, path in content.pictures]
    return {"tables": tables, "pictures": [{"caption": c, "path": p} for c, p in pictures]}


def comparison(c: Comparison, place: Mapping[str, int]) -> dict[str, Any]:
    """Two networks."""
    return {
        "first": place[c.first],
        "second": place[c.second],
        "counts": [c.better, c.worse, c.undecided, c.equal],
        "at": [[radius, _share(a), _share(b), decided(a, b)] for radius, a, b in c.at],
    }


def _share(share: Share) -> list[int]:
    return [share.low, share.high, share.of]


def examples(found: Sequence[Example], place: Mapping[str, int]) -> list[dict[str, Any]]:
    """Counterexamples; the first ones, network by network in turn, have pictures as long as they fit."""
    turns: dict[str, int] = {}
    order = []
    for k, e in enumerate(found):
        turns[e.network] = turns.get(e.network, -1) + 1
        order.append((turns[e.network], k))
    chosen = [k for _, k in sorted(order)[:PICTURES]]
    pictures: dict[int, dict[str, str]] = {}
    used = 0
    for k in chosen:
        made = _pictures(found[k])
        used += sum(map(len, made.values()))
        if used > BYTES:
            break
        pictures[k] = made
    return [_example(e, place) | pictures.get(k, {}) for k, e in enumerate(found)]


def _pictures(e: Example) -> dict[str, str]:
    made = {"picture": picture(e.x, e.shape, e.low, e.high)}
    if e.near is not None and e.near.shape == e.x.shape:
        made["near"] = picture(e.near, e.shape, e.low, e.high)
        made["difference"] = difference(e.x - e.near, e.shape)
    return made


def _example(e: Example, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "network": place[e.network],
        "data": e.data,
        "index": e.index,
        "label": e.label,
        "becomes": e.becomes,
        "distance": _number(e.distance),
        "epsilon": _number(e.epsilon),
        "verifier": e.verifier,
        "when": round(e.when, 3),
        "shape": list(e.shape),
        "outputs": [_number(v) for v in e.outputs[:64]],
        "changes": changes(e),
        "changed": 0 if e.near is None or e.near.shape != e.x.shape else int(np.sum(e.x != e.near)),
    }


def changes(e: Example) -> list[list[Any]]:
    """The values that changed most: name, before, after. Without the input, the first values."""
    names = e.names if len(e.names) == e.x.size else None
    if e.near is None or e.near.shape != e.x.shape:
        return [[_name(names, i), None, _number(float(e.x[i]))] for i in range(min(CHANGES, e.x.size))]
    gaps = np.nan_to_num(np.abs(e.x - e.near), nan=math.inf)
    order = [int(i) for i in np.argsort(-gaps, kind="stable")[:CHANGES] if gaps[i] > 0]
    return [[_name(names, i), _number(float(e.near[i])), _number(float(e.x[i]))] for i in order]


def _name(names: Sequence[str] | None, i: int) -> str:
    return f"x[{i}]" if names is None else names[i]


def _number(value: float | None) -> Any:
    """A number with the digits that matter, or text where JSON has no number for it."""
    if value is None:
        return None
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)


def as_plain(content: Mapping[str, Any]) -> Any:
    """In types that JSON has."""
    return plain(dict(content))
