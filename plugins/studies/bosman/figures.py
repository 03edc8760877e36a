"""Figures 1 to 15: the numbers behind them as tables, and pictures of our rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from .. import drawing
from ..statistics import SIGNIFICANT, Side, correlation, share_above, two_sample_p
from ..study import Judgement, Record, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, shown
from .boxes import box_table, gaps, groups, label, median
from .brackets import maybe, measured, ours
from .subjects import CONVOLUTIONAL, DENSE, FIRST
from .tables import ENOUGH, of_records

TEN = 10  # images from which a median is compared
STRICT = 1e-3  # a margin between two outputs that no rounding of float32 explains on these networks
PRINTED = {
    "net": ("100", "49"),
    "relu_4_1024": ("93", "66"),
}  # figure 2: robust accuracy, as the text gives it
AVERAGE = {"train": "0.55", "test": "0.39"}  # figure 6, as the text gives them


def robust_accuracy(tables: Tables) -> Shown:
    """Figure 2: boxes over training images, and the robust accuracies that the text reads off them."""
    lines = []
    for one in FIRST:
        records = of_records(tables, one, "train")
        mine = ours(tables, one, "train") if one.file else Side([], [], [])
        cells = []
        printed = PRINTED.get(one.network, (NOTHING, NOTHING))
        for paper, radius, name in zip(printed, (0.012, 0.04), ("above_012", "above_040"), strict=True):
            low, high = share_above(mine.lower, radius), 1 - refuted_share(mine, radius)
            interval = f"{100 * low:.0f} to {100 * high:.0f}" if mine.lower else NOTHING
            theirs = 100 * float(records[name]) if records.get(name) else None
            cells.append(f"{paper} / {shown(theirs, 1)} / {interval}")
        lines.append((one.network, len(mine.lower), *cells))
    net, wide = (of_records(tables, s, "train") for s in (FIRST[0], FIRST[4]))
    said = []
    if net.get("above_012") and wide.get("above_012"):
        better = float(net["above_012"]) > float(wide["above_012"])
        worse = float(net["above_040"]) < float(wide["above_040"])
        text = "net is more robust than relu_4_1024 at 0.012 and less at 0.04"
        said.append(judged(text, better and worse, "the authors' records, 99 and 93 images"))
    head = "Robust accuracy in percent: paper / from its records / ours (what is proved, to what is not refuted)."
    table = markdown(("network", "n", "at 0.012", "at 0.04"), lines)
    return Shown([head, "", *table, "", *box_table(tables, FIRST, ("train",))], said)


def refuted_share(side: Side, radius: float) -> float:
    """The share with a counterexample within a radius."""
    return float(np.mean([u is not None and u <= radius for u in side.upper])) if side.upper else 0.0


def highest(tables: Tables) -> Shown:
    """Figure 3: which networks have the highest and the lowest median on training images."""
    text = "Of the twelve, relu_4_1024 has the highest and nn the lowest median"
    names = [s.network for s in FIRST]
    theirs = {r["network"]: float(r["middle"]) for r in tables.of("record-boxes", split="train")}
    known = sorted((n for n in names if n in theirs), key=theirs.__getitem__)
    records = (known[-1], known[0]) == ("relu_4_1024", "nn") if len(known) == len(names) else None
    found = {n: s for n, s in groups(tables, FIRST, "train").items() if len(s.lower) >= TEN}
    order = sorted(found, key=lambda n: median(found[n].lower) or 0.0)
    holds = order[0] == "nn" if "nn" in order and len(order) > 2 else None
    said = [
        judged(text, records, f"the authors' records of {len(known)} networks"),
        judged(
            "nn has the lowest median (our rows)", holds, f"{len(order)} networks with {TEN} images or more"
        ),
    ]
    return Shown(box_table(tables, FIRST, ("train",)), said)


def splits(tables: Tables) -> Shown:
    """Figures 4 and 5: training beside test images."""
    lines, judgements = [], []
    for one in FIRST:
        train, test = (ours(tables, one, s) if one.file else Side([], [], []) for s in ("train", "test"))
        p = two_sample_p(train.lower, test.lower)
        records = of_records(tables, one, "train").get("splits_p", "")
        lines.append((one.network, f"{len(train.lower)}, {len(test.lower)}", shown(records), shown(p)))
        if min(len(train.lower), len(test.lower)) >= ENOUGH:
            judgements.append(p >= SIGNIFICANT)
    text = "Train and test radii do not differ significantly (our rows)"
    holds = all(judgements) if judgements else None
    said = [judged(text, holds, f"{len(judgements)} networks with {ENOUGH} images of both")]
    table = markdown(("network", "n (train, test)", "records: KS p", "ours: KS p"), lines)
    return Shown([*table, "", *box_table(tables, FIRST, ("train", "test"))], said)


def our_pairs(tables: Tables, split: str) -> dict[tuple[str, str], tuple[int, float]]:
    """Spearman's coefficients of our own radii."""
    radii = {
        s.network: {int(r["image"]): float(r["lower"]) for r in measured(tables, s, split)}
        for s in FIRST
        if s.file
    }
    found = {(a, b): correlation(radii[a], radii[b]) for a, b in combinations(radii, 2)}
    return {pair: (n, value) for pair, (n, value) in found.items() if np.isfinite(value)}


def heat_map(tables: Tables) -> Shown:
    """Figure 6."""
    lines, means = [], {}
    for split in ("train", "test"):
        rows = tables.of("record-pairs", split=split)
        values = [float(r["spearman"]) for r in rows]
        mine = our_pairs(tables, split)
        means[split] = float(np.mean(values)) if values else float("nan")
        lines.append(
            (
                *(split, AVERAGE[split], shown(means[split], 2), f"{len(values)} pairs"),
                *(extreme(rows, min), extreme(rows, max)),
                shown(float(np.mean([v for _, v in mine.values()])) if mine else None, 2),
                f"{len(mine)} pairs",
            )
        )
    text = "Correlations between networks are lower on test than on training images"
    holds = means["test"] < means["train"] if np.isfinite(list(means.values())).all() else None
    titles = ("split", "paper, mean", "records, mean", "n", "lowest", "highest", "ours, mean", "n")
    return Shown(
        markdown(titles, lines), [judged(text, holds, "the authors' records, 66 pairs"), classes(tables)]
    )


def extreme(rows: Sequence[Record], pick: Callable[..., Record]) -> str:
    if not rows:
        return NOTHING
    found = pick(rows, key=lambda r: float(r["spearman"]))
    return f"{found['spearman'][:4]} ({found['first']}, {found['second']})"


def classes(tables: Tables) -> Statement:
    """Do networks err towards different classes at the same image?"""
    becomes: dict[str, list[str]] = {}
    for one in (s for s in FIRST if s.file):
        for r in measured(tables, one, "test"):
            becomes.setdefault(r["image"], []).append(r["becomes"])
    several = [Counter(v) for v in becomes.values() if len(v) > 1]
    text = "At the same image, networks err towards different classes"
    if not several:
        return Statement(text, Judgement.UNDECIDED, "no image with two networks")
    differ = sum(len(c) > 1 for c in several)
    return judged(
        text,
        differ > 0,
        f"{len(several)} test images",
        f"At {differ} of them the closest counterexamples have different classes.",
    )


def draw_heat(tables: Tables, path: Path) -> None:
    values = {
        (r["first"], r["second"]): float(r["spearman"]) for r in tables.of("record-pairs", split="train")
    }
    drawing.heat(path, [s.network for s in FIRST], values)


def draw_scatter(tables: Tables, path: Path) -> None:
    """Figure 7 with our radii: the two pairs of networks that the paper shows, as far as they are public."""
    panels = {}
    for a, b in (("net", "net_256x2"), ("relu_6_100", "relu_9_100"), ("net", "relu_3_50")):
        one, two = (
            {
                r["image"]: float(r["lower"])
                for s in FIRST
                if s.network == n
                for r in measured(tables, s, "test")
            }
            for n in (a, b)
        )
        panels[f"{a}, {b}"] = [(one[i], two[i]) for i in one.keys() & two.keys()]
    drawing.scatter(path, panels)


def pairs_shown(tables: Tables) -> Shown:
    """Figure 7 as numbers: the pairs with the highest and the lowest correlation, and all of ours."""
    lines = []
    for split in ("train", "test"):
        theirs = {(r["first"], r["second"]): r for r in tables.of("record-pairs", split=split)}
        mine = our_pairs(tables, split)
        order = sorted(theirs, key=lambda pair: float(theirs[pair]["spearman"]))
        for pair in dict.fromkeys((*order[:1], *order[-1:], *mine)):
            records = theirs.get(pair, {})
            n, value = mine.get(pair, (0, None))
            cells = (records.get("n", NOTHING), shown(records.get("spearman"), 2))
            lines.append((split, *pair, *cells, n, shown(value, 2)))
    titles = ("split", "network", "network", "n, records", "Spearman, records", "n, ours", "Spearman, ours")
    head = "The paper shows the pairs with the highest and the lowest correlation of each split (here the first two)."
    return Shown([head, "", *markdown(titles, lines)] if lines else ["No rows yet."])


def refuted_table(tables: Tables) -> tuple[list[str], Statement | None]:
    """Published radii within which a replayed point lies: by the attack on the ball, or by the closest one found."""
    lines, total, strict = [], 0, 0
    for one in dict.fromkeys(s for s in (*FIRST, *DENSE, *CONVOLUTIONAL) if s.file and s not in DENSE[:1]):
        found = tables.of("refuted", network=one.key)
        if not found:
            continue
        hit = [r for r in found if r["found"] == "yes"]
        clear = [r for r in hit if float(r["margin"]) > STRICT]
        more = [r for r in measured(tables, one, "test") if closer(r) and not _among(r, hit)]
        beyond = [r for r in tables.of("brackets", network=one.key) if proved_beyond(r)]
        total, strict = total + len(found), strict + len(clear)
        lines.append((label(one), len(found), len(hit), len(clear), len(more), len(beyond)))
    if not lines:
        return ["No rows yet."], None
    titles = (
        "network",
        "published radii",
        "refuted",
        "by more than 0.001",
        "more by brackets",
        "published counterexamples inside a proved radius",
    )
    text = "The published radii are provable lower bounds"
    reason = f"{strict} of them hold a replayed point with a margin above 0.001."
    return markdown(titles, lines), judged(text, strict == 0, f"{total} published radii attacked", reason)


def closer(row: Record) -> bool:
    """Whether our closest counterexample lies within the radius that was published as verified."""
    upper, theirs = maybe(row["upper"]), maybe(row["published_lower"])
    return upper is not None and theirs is not None and upper <= theirs


def proved_beyond(row: Record) -> bool:
    """Whether we proved a radius at which a counterexample was published; one of the two is wrong then."""
    lower, theirs = maybe(row["lower"]), maybe(row["published_upper"])
    return lower is not None and theirs is not None and lower >= theirs


def _among(row: Record, rows: Sequence[Record]) -> bool:
    return any((r["split"], r["image"]) == (row["split"], row["image"]) for r in rows)


def mnist_gaps(tables: Tables) -> Shown:
    """Figure 13 with the refuted radii below it."""
    first = gaps((*FIRST, *DENSE[1:], *CONVOLUTIONAL))(tables)
    table, statement = refuted_table(tables)
    head = "Published radii attacked (`004-refuted.csv` lists every image with its replayed distance and margin):"
    return Shown([*first.lines, "", head, "", *table], [statement] if statement else ())


def larger(tables: Tables) -> Shown:
    """Figure 12 as numbers: those of table 6."""
    return Shown(["The numbers are those of table 6; the picture has our radii with fitted distributions."])
