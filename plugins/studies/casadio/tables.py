"""Tables 1 and 3 and the curves of figures 2 to 14: published numbers beside ours, and what the paper concludes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..drawing import picture
from ..sources import published
from ..study import Judgement, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, shown
from . import sampled
from .measure import RADII
from .networks import DATA, REGIMES, VERIFIED

HERE = Path(__file__).resolve().parent
NEAR = 1.5  # points of accuracy within which a network counts as the paper's
SIGNS = (
    "The paper's traffic signs are ten classes of 48 x 48 pixels, which it does not name; ours are the first ten "
    "classes at 32 x 32, so those numbers are not expected to agree."
)
Pair = tuple[str, str]  # an attack and a network
Claims = Callable[[Tables, str], list[Statement]]


def satisfied(tables: Tables, data: str, prop: str, network: str) -> tuple[int, int, int]:
    """Proved, open, and all images."""
    rows = tables.of("satisfaction", data=data, property=prop, network=network)
    return tuple(sum(int(r[c]) for r in rows) for c in ("proved", "open", "n"))  # type: ignore[return-value]


def satisfaction(tables: Tables) -> Shown:
    """Table 1."""
    lines = []
    for row in published(HERE, "table1"):
        cells, n = [], 0
        for network in VERIFIED:
            proved, left, n = satisfied(tables, row["data"], row["property"], network)
            mine = f"{100 * proved / n:.1f}{f' (open {left})' if left else ''}" if n else NOTHING
            cells.append(f"{row[network]} / {mine}")
        lines.append((row["data"], row["property"], n, *cells))
    head = f"Each cell: paper (200 images, Marabou) / ours, proved in percent of *n* images. {SIGNS}"
    table = markdown(("data", "property", "n", *VERIFIED), lines)
    more = sampled.shown(tables)
    said = [s for data in DATA for s in proved_statements(tables, data)]
    return Shown([head, "", *table, "", *more.lines], [*said, *more.statements])


def proved_statements(tables: Tables, data: str) -> list[Statement]:
    share: dict[Pair, float] = {}
    least = 10**9
    for prop in ("CR", "SR", "LR"):
        for network in VERIFIED:
            proved, _, n = satisfied(tables, data, prop, network)
            least = min(least, n)
            share[prop, network] = proved / n if n else 0.0
    sample = f"{data}, {least} images each"
    texts = (
        "LR holds for no image of any network",
        "SR holds most often for the LR network, then for SR, then for the others",
        "CR holds most often for the LR network",
    )
    if least == 0:
        return [Statement(f"{data}: {t}", Judgement.UNDECIDED, sample) for t in texts]
    sr = {n: share["SR", n] for n in VERIFIED}
    cr = {n: share["CR", n] for n in VERIFIED}
    holds = (
        all(share["LR", n] == 0 for n in VERIFIED),
        sr["LR"] >= sr["SR"] > max(sr["Base"], sr["SCR"]),
        cr["LR"] > max(cr["Base"], cr["SCR"], cr["SR"]),
    )
    reason = "Our SCR is the paper's definition (a probability); the authors' program compares a raw output."
    return [judged(f"{data}: {t}", h, sample, "" if h else reason) for t, h in zip(texts, holds, strict=True)]


def accuracy(tables: Tables) -> Shown:
    """Table 3."""
    lines, said = [], []
    for row in published(HERE, "table3"):
        found = {
            r["network"]: 100 * int(r["right"]) / int(r["n"]) for r in tables.of("accuracy", data=row["data"])
        }
        lines.append((row["data"], *(f"{row[n]} / {shown(found.get(n), 1)}" for n in REGIMES)))
        text = f"{row['data']}: adversarial training loses most accuracy"
        whole = len(found) == len(REGIMES)
        far = [n for n in found if abs(found[n] - float(row[n])) > NEAR]
        more = f"More than {NEAR:g} points from the paper: {', '.join(far) or 'none'}." if whole else ""
        said.append(
            judged(
                text,
                min(found, key=found.__getitem__) == "Adv" if whole else None,
                f"{len(found)} networks",
                more,
            )
        )
    head = f"Each cell: paper / ours, on the whole test split, in percent. {SIGNS}"
    return Shown([head, "", *markdown(("data", *REGIMES), lines)], said)


def kept(tables: Tables, data: str, attack: str, network: str, radius: str) -> tuple[int, int]:
    found = tables.of("security", data=data, attack=attack, network=network, radius=radius)
    return (int(found[0]["kept"]), int(found[0]["n"])) if found else (0, 0)


def curves(
    pairs: Sequence[Pair], claims: Claims | None = None, more: Callable[[Tables], list[str]] | None = None
) -> Callable[[Tables], Shown]:
    """The curves of a figure as a table."""

    def show(tables: Tables) -> Shown:
        theirs = {(r["data"], r["attack"], r["network"]): r for r in published(HERE, "security")}
        lines = []
        for data in DATA:
            for attack, network in pairs:
                row = theirs.get((data, attack, network))
                cells, count = [], 0
                for radius in RADII:
                    good, n = kept(tables, data, attack, network, radius)
                    count = max(count, n)
                    paper = row.get(radius) if row else None
                    cells.append(f"{paper or NOTHING} / {shown(100 * good / n if n else None, 1)}")
                lines.append((data, attack, network, count, *cells))
        said = [s for data in DATA for s in claims(tables, data)] if claims else []
        head = "Images that keep the property under its attack, in percent: the authors' records / ours."
        table = markdown(("data", "attack", "network", "n", *RADII), lines)
        return Shown([head, "", *table, *(["", *more(tables)] if more else [])], said)

    return show


def mean_of_records(data: str, attack: str, network: str) -> float | None:
    """The same of the authors' records."""
    rows = [
        r
        for r in published(HERE, "security")
        if (r["data"], r["attack"], r["network"]) == (data, attack, network)
    ]
    return (
        sum(float(rows[0][r]) for r in RADII) / len(RADII)
        if rows and all(rows[0][r] for r in RADII)
        else None
    )


def mean(tables: Tables, data: str, attack: str, network: str) -> float | None:
    """Over the radii, in percent; None where one is missing."""
    pairs = [kept(tables, data, attack, network, radius) for radius in RADII]
    return 100 * sum(g / n for g, n in pairs) / len(pairs) if all(n for _, n in pairs) else None


def ordered(text: str, tables: Tables, data: str, larger: Pair, smaller: Pair) -> Statement:
    one, two = (mean(tables, data, *pair) for pair in (larger, smaller))
    theirs = [mean_of_records(data, *pair) for pair in (larger, smaller)]
    records = f"Authors' records: {' and '.join(shown(t, 1) for t in theirs)} %."
    sample = f"{data}, means over {len(RADII)} radii"
    if one is None or two is None:
        return Statement(f"{data}: {text}", Judgement.UNDECIDED, sample, records)
    return judged(f"{data}: {text}", one >= two, sample, f"{one:.1f} and {two:.1f} %. {records}")


def figure2(tables: Tables, data: str) -> list[Statement]:
    return [
        ordered(
            "the LR network is at least as secure as the SR network against SR",
            tables,
            data,
            ("SR", "LR"),
            ("SR", "SR"),
        ),
        ordered("the same against LR", tables, data, ("LR", "LR"), ("LR", "SR")),
        ordered("the SR network is least secure against LR", tables, data, ("SCR", "SR"), ("LR", "SR")),
    ]


def large(tables: Tables) -> list[str]:
    """The second graph of figure 3: the network with 18 layers."""
    lines = [(r["network"], *(r[radius] for radius in RADII)) for r in published(HERE, "layers18")]
    head = (
        "The figure's second graph, a network with 18 layers on Fashion-MNIST under SCR attacks: the authors' "
        "records. Ours is missing, since such a network takes days of processor time to train at the paper's size; "
        "one that saw a subset is on [the page of training](../measurements/training.md#the-18-layer-network), under "
        "SR attacks."
    )
    return [head, "", *markdown(("network", *RADII), lines)]


def figure3(tables: Tables, data: str) -> list[Statement]:
    return [
        ordered("SR training beats FGSM augmentation against SR", tables, data, ("SR", "SR"), ("SR", "FGSM")),
        ordered(
            "adversarial training beats FGSM augmentation against SR",
            tables,
            data,
            ("SR", "Adv"),
            ("SR", "FGSM"),
        ),
        ordered(
            "SCR training beats FGSM augmentation against SCR", tables, data, ("SCR", "SCR"), ("SCR", "FGSM")
        ),
        ordered(
            "FGSM augmentation beats uniform augmentation against SR",
            tables,
            data,
            ("SR", "FGSM"),
            ("SR", "RU"),
        ),
    ]


def figure5(tables: Tables, data: str) -> list[Statement]:
    return [
        ordered("SR training helps against SR", tables, data, ("SR", "SR"), ("SR", "Base")),
        ordered("LR training helps against SR", tables, data, ("SR", "LR"), ("SR", "Base")),
        ordered("SCR training helps less than SR training", tables, data, ("SR", "SR"), ("SR", "SCR")),
    ]


def drawn(pairs: Sequence[Pair]) -> Callable[[Tables, Path], None]:
    """The curves of a figure as a picture, of the first data set that has them."""

    def draw(tables: Tables, path: Path) -> None:
        def paint(axes: Any) -> None:
            for data in DATA:
                for attack, network in pairs:
                    points = [(float(r), *kept(tables, data, attack, network, r)) for r in RADII]
                    if all(n for *_, n in points):
                        label = f"{data}: {network} network, {attack} attack"
                        axes.plot(
                            [p[0] for p in points], [100 * g / n for _, g, n in points], "o-", label=label
                        )
            axes.set(xlabel="radius", ylabel="property kept (%)", ylim=(-3, 103))
            axes.legend(fontsize=6)

        picture(path, 6.0, 4.0, paint)

    return draw
