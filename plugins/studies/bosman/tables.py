"""Tables 1 to 23: every cell the paper's number, the one from its records, and ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..sources import published
from ..statistics import SIGNIFICANT, Side, describe, lognormal_p, means_p, two_sample_p
from ..study import Judgement, Record, Shown, Statement, Tables, judged
from ..text import NOTHING, markdown, passes, shown, three
from .brackets import ours, theirs_on_ours
from .subjects import ALL, FIRST, HERE, MISSING, STEP, Subject, subject

CELLS = (
    "Each cell: paper / from the authors' records / ours, where *n* is our number of images (train, test)."
)
ENOUGH = 30  # images of each split from which a test between them is judged


def of_records(tables: Tables, one: Subject | None, split: str) -> Record:
    """The statistics of the authors' records; empty texts where there are none."""
    found = tables.of("records", network=one.network, training=one.training, split=split) if one else []
    return found[0] if found else dict.fromkeys(("n", "lowest", "mean", "gap", "critical", "lognormal_p"), "")


def sides(tables: Tables, one: Subject | None) -> tuple[Side, Side]:
    """Our train and test samples."""
    if one is None or not one.file:
        return Side([], [], []), Side([], [], [])
    return ours(tables, one, "train"), ours(tables, one, "test")


def counts(train: Side, test: Side) -> str:
    return f"{len(train.lower)}, {len(test.lower)}"


def mean_of(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def lowest_of(values: Sequence[float]) -> float | None:
    return min(values, default=None)


def accuracy_of(tables: Tables, one: Subject | None, split: str, radius: str = "0") -> float | None:
    if one is None or not one.file:
        return None
    found = tables.of("accuracy", network=one.key, split=split, radius=radius)
    return float(found[0]["right"]) / float(found[0]["n"]) if found else None


def radii(tables: Tables, number: int) -> Shown:
    """Tables 5, 8, 9 and 10: the smallest and the mean radius, images, accuracy."""
    lines = []
    for row in published(HERE, f"table{number}"):
        one = subject(row["network"], row.get("training", "standard"))
        records = {s: of_records(tables, one, s) for s in ("train", "test")}
        mine = dict(zip(("train", "test"), sides(tables, one), strict=True))
        cells = []
        for split in ("train", "test"):
            theirs, found = records[split], mine[split].lower
            cells += [
                three(row[f"lowest_{split}"], theirs["lowest"], lowest_of(found)),
                three(row[f"mean_{split}"], theirs["mean"], mean_of(found)),
                f"{row[f'n_{split}']} / {theirs['n'] or NOTHING}",
                f"{row[f'accuracy_{split}']} / {shown(accuracy_of(tables, one, split))}",
            ]
        lines.append((row["network"], row.get("training", "standard"), counts(*mine.values()), *cells))
    titles = [
        f"{split}: {what}" for split in ("train", "test") for what in ("lowest", "mean", "images", "accuracy")
    ]
    said = {5: first_statements, 8: trained_statements}.get(number, lambda _: [])(tables)
    note = f"Images: paper / records. Accuracy: paper / ours, on the whole split.{missing(number)}"
    return Shown([f"{CELLS} {note}", "", *markdown(("network", "training", "n", *titles), lines)], said)


def missing(number: int) -> str:
    """Why a table has no numbers of ours."""
    data = {9: "cifar10", 12: "cifar10", 15: "cifar10", 10: "gtsrb", 13: "gtsrb", 16: "gtsrb"}.get(number)
    return f" {MISSING[data]}" if data else ""


def signs(tables: Tables) -> Shown:
    """Table 10, and what stays open at two small radii."""
    whole, lines = radii(tables, 10), []
    for one in (s for s in ALL if s.data == "gtsrb" and s.file):
        side = sides(tables, one)[1]
        cells = [open_share(side, r) for r in (1 / 255, 2 / 255)]
        lines.append((one.network, one.training, len(side.lower), *cells))
    head = "Test images that are neither proved nor refuted at a radius, in percent (ours):"
    titles = ("network", "training", "n", "open at 1/255", "open at 2/255")
    return Shown([*whole.lines, "", head, "", *markdown(titles, lines)], whole.statements)


def open_share(side: Side, radius: float) -> str:
    """Neither is the radius proved, nor is there a counterexample within it."""
    pairs = zip(side.lower, side.upper, strict=True)
    left = [low < radius and (high is None or high > radius) for low, high in pairs]
    return shown(percent(mean_of([float(v) for v in left])), 1)


def first_statements(tables: Tables) -> list[Statement]:
    """What section 4 says about the twelve networks, by its records and by our rows."""
    theirs = {s.network: of_records(tables, s, "train") for s in FIRST}
    known = {n: r for n, r in theirs.items() if r["lognormal_p"]}
    if not known:
        return []
    rejected = [n for n, r in known.items() if float(r["lognormal_p"]) < SIGNIFICANT]
    differ = [n for n, r in known.items() if float(r["splits_p"]) < SIGNIFICANT]
    return [
        judged(
            "The radii of 11 of the 12 networks follow a log-normal distribution, all but net_256x4",
            True if rejected == ["net_256x4"] else None,
            f"records of {len(known)} networks, train",
            "The paper does not say how it fits the parameters; the variant that agrees with most cells of tables "
            f"2 and 3 rejects {', '.join(rejected) or 'none'}.",
        ),
        judged(
            "Train and test radii of a network do not differ significantly",
            not differ,
            f"records of {len(known)} networks",
            f"Significant: {', '.join(differ) or 'none'}.",
        ),
        own_lognormal(tables),
    ]


def own_lognormal(tables: Tables) -> Statement:
    """Log-normality of our own radii, where there are enough of them and their gaps are small."""
    found = {}
    for one in (s for s in FIRST if s.file):
        side = ours(tables, one, "test")
        if len(side.lower) >= ENOUGH and side.gap <= STEP["mnist"]:
            found[one.network] = lognormal_p(side.lower)
    text = "The same of the radii proved here (networks with 30 images and a mean gap of at most 0.002)"
    if not found:
        return Statement(text, Judgement.UNDECIDED, "no network has enough rows")
    bad = [n for n, p in found.items() if p < SIGNIFICANT]
    return judged(text, not bad, f"{len(found)} networks, test", f"Rejected: {', '.join(bad) or 'none'}.")


def trained_statements(tables: Tables) -> list[Statement]:
    """Are the test columns about test images, and does adversarial training raise the radii?"""
    said = [mixed_up(tables)]
    for network, among in (("mnist_nn", ("fgsm", "pgd")), ("convSmall", ("diffai", "pgdk"))):
        base = ours(tables, _subject(network, "standard"), "test")
        for training in among:
            other = ours(tables, _subject(network, training), "test")
            said.append(raised(network, training, base, other))
    return said


def mixed_up(tables: Tables) -> Statement:
    """The same radii at the same ids in both splits cannot come from different images."""
    rows = tables.of("record-ids")
    same = [r for r in rows if int(r["both"]) == int(r["n_test"]) and 2 * int(r["equal"]) > int(r["both"])]
    told = "; ".join(
        f"{r['network']} {r['training']}: {r['equal']} of {r['n_test']} radii equal" for r in same
    )
    text = "The test columns of sections 5 and 6 are about test images"
    reason = (
        f"The test records of these have the ids and the radii of the training images: {told}."
        if same
        else ""
    )
    return judged(text, not same if rows else None, f"records of {len(rows)} networks", reason)


def _subject(network: str, training: str) -> Subject:
    found = subject(network, training)
    if found is None:
        raise LookupError(f"{network} {training}")
    return found


def raised(network: str, training: str, base: Side, other: Side) -> Statement:
    """Decided where one network's proved mean is above the other's refuted mean, or the reverse."""
    text = f"{training} training raises the mean radius of {network}"
    sample = f"n = {len(base.lower)}, {len(other.lower)} test images"
    if not base.pairs or not other.pairs:
        return Statement(text, Judgement.UNDECIDED, sample)
    low, high = ([mean_of([p[k] for p in s.pairs]) or 0.0 for k in (0, 1)] for s in (base, other))
    holds = True if high[0] > low[1] else False if high[1] < low[0] else None
    reason = f"Means in [{low[0]:.3f}, {low[1]:.3f}] and [{high[0]:.3f}, {high[1]:.3f}]."
    return judged(text, holds, sample, reason)


def quality(tables: Tables, number: int) -> Shown:
    """Tables 2 and 3."""
    lines = []
    for row in published(HERE, f"table{number}"):
        one = subject(row["network"], row["training"])
        data = one.data if one else "mnist"
        records = {s: of_records(tables, one, s) for s in ("train", "test")}
        train, test = sides(tables, one)
        mine = describe(test, train, STEP[data])
        tests = [
            f"{row[f'ks_{s}']} / {passes(records[s]['lognormal_p'])} / {passes(lognormal_p(side.lower))}"
            for s, side in (("train", train), ("test", test))
        ]
        share = [100 * float(v) if v else None for v in (records["test"]["critical"], mine["critical"])]
        lines.append(
            (
                *(row["network"], row["training"], counts(train, test)),
                f"{row['accuracy']} / {shown(accuracy_of(tables, one, 'test'))}",
                *tests,
                three(row["critical"], share[0], share[1], 1),
                row["unsolved"],
                three(row["gap"], records["test"]["gap"], float(mine["gap"]), 4),
            )
        )
    titles = ("network", "training", "n", "accuracy", "log-normal, train", "log-normal, test")
    more = ("critical terminations %", "unsolved % (paper)", "mean gap")
    return Shown([CELLS, "", *markdown((*titles, *more), lines)])


def samples(tables: Tables) -> Shown:
    """Table 6."""
    found = {r["network"]: r for r in tables.of("record-samples")}
    lines = []
    for row in published(HERE, "table6"):
        r = found.get(row["network"], {})
        cells = [
            f"{row[c]} / {shown(r.get(c))}"
            for c in ("mean_100", "deviation_100", "mean_400", "deviation_400")
        ]
        n = f"{r.get('n_100', NOTHING)}, {r.get('n_400', NOTHING)}"
        lines.append((row["network"], n, *cells, f"{row['ks_p']} / {shown(r.get('ks_p'))}"))
    same = all(float(r["ks_p"]) >= SIGNIFICANT for r in found.values()) if found else None
    said = [
        judged(
            "100 and 400 images give the same distribution (KS)", same, f"records of {len(found)} networks"
        )
    ]
    titles = ("network", "n", "mean of 100", "deviation", "mean of 400", "deviation", "p")
    return Shown(["Each cell: paper / from its records.", "", *markdown(titles, lines)], said)


def times(tables: Tables, number: int) -> Shown:
    """Tables 7 and 11 to 13: the paper's time per image beside ours, on the same images where ids say so."""
    lines, ratios = [], list[tuple[str, float]]()
    for row in published(HERE, f"table{number}"):
        if row["network"] == "total":
            continue
        one = subject(row["network"], row.get("training", "standard"))
        hours = float(row.get("cpu_hours_per_image") or row["hours_per_image"])
        test = sides(tables, one)[1]
        cpu = [float(r["cpu"]) for r in _rows(tables, one) if r["cpu"]]
        same = theirs_on_ours(tables, one, "test") if one and one.file else Side([], [], [])
        mine, theirs = mean_of(cpu), mean_of(same.seconds)
        ratio = mine / theirs if mine and theirs else math.nan
        if not math.isnan(ratio) and test.gap <= max(same.gap, STEP["mnist"]):
            ratios.append((row["network"], ratio))
        lines.append(
            (
                *(row["network"], row.get("training", "standard"), f"{3600 * hours:.0f}"),
                *(shown(of_records(tables, one, "test").get("seconds"), 0), len(test.lower)),
                *(
                    shown(theirs, 0),
                    shown(mean_of(test.seconds), 1),
                    shown(mine, 1),
                    shown(1 / ratio if ratio else None, 0),
                ),
            )
        )
    titles = (
        "network",
        "training",
        "paper, CPU s per image",
        "records, s (test)",
        "n",
        "records on our images",
    )
    more = ("ours, wall s", "ours, CPU s", "times faster")
    head = f"The paper's time is that of its search with k = 2 (MNIST) or on GPUs.{missing(number)}"
    return Shown([head, "", *markdown((*titles, *more), lines)], fiftieth(ratios) if number == 7 else ())


def _rows(tables: Tables, one: Subject | None) -> list[Record]:
    return tables.of("brackets", network=one.key, split="test") if one and one.file else []


def fiftieth(ratios: Sequence[tuple[str, float]]) -> list[Statement]:
    """Judged on networks whose mean gap here is no wider than the published one, or than a step of its grid."""
    text = "Radii as narrow as the paper's need 0.4 to 5 processor hours per image"
    if not ratios:
        return [Statement(text, Judgement.UNDECIDED, "no network with a gap as narrow")]
    name, slowest = max(ratios, key=lambda r: r[1])
    reason = f"On the same images here at most one part in {1 / slowest:.0f} of their time ({name}; other machines)."
    return [judged(text, False, f"{', '.join(n for n, _ in ratios)}", reason)]


def accuracies(tables: Tables, number: int) -> Shown:
    """Tables 14 to 16."""
    radii = {14: ("0.2", "0.3"), 15: ("4/255", "8/255"), 16: ("4/255", "8/255")}[number]
    lines = []
    for row in published(HERE, f"table{number}"):
        one = subject(row["network"], row["training"], tuple(s for s in ALL if s not in FIRST))
        cells = [
            f"{row[f'accuracy_{s}']} / {shown(percent(accuracy_of(tables, one, s)), 1)}"
            for s in ("train", "test")
        ]
        for column, radius in zip(("pgd_first", "pgd_second"), radii, strict=True):
            found = tables.of("accuracy", network=one.key, radius=radius) if one and one.file else []
            n = f" (n = {found[0]['n']})" if found else ""
            cells.append(f"{row[column]} / {shown(percent(accuracy_of(tables, one, 'test', radius)), 1)}{n}")
        lines.append((row["network"], row["training"], *cells))
    titles = ("network", "training", "train", "test", f"attack {radii[0]}", f"attack {radii[1]}")
    text = "Each cell: paper / ours, in percent. Our attack is the default portfolio's, with every point replayed."
    return Shown([f"{text}{missing(number)}", "", *markdown(titles, lines)])


def percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def sizes(tables: Tables, number: int) -> Shown:
    """Tables 17 to 19."""
    lines = []
    wrong = []
    for row in published(HERE, f"table{number}"):
        one = next((s for s in ALL if s.network == row["network"] and s.file), None)
        found = tables.of("architectures", network=one.key) if one else []
        mine = found[0] if found else {}
        names = ("neurons", "parameters", "linear_layers", "conv_layers")
        lines.append((row["network"], *(f"{row[c]} / {mine.get(c, NOTHING)}" for c in names)))
        if mine and not close(row["parameters"], mine["parameters"]):
            wrong.append(row["network"])
    said = []
    if any("/ -" not in line[2] for line in lines):
        text = "The printed numbers of parameters are those of the files (within 2 %)"
        said = [
            judged(
                text,
                not wrong,
                f"{sum('/ -' not in x[2] for x in lines)} files",
                f"Not of: {', '.join(wrong) or 'none'}.",
            )
        ]
    titles = ("network", "neurons", "parameters", "linear layers", "convolutions")
    return Shown(["Each cell: paper / counted in the ONNX file.", "", *markdown(titles, lines)], said)


def close(paper: str, mine: str) -> bool:
    """The paper rounds to thousands."""
    value = float(paper.removesuffix("K")) * (1000 if paper.endswith("K") else 1)
    return abs(value - float(mine)) <= 0.02 * value + 500


def training(tables: Tables, number: int) -> Shown:
    """Tables 20 to 22: hyperparameters, as published."""
    rows = published(HERE, f"table{number}")
    titles = list(rows[0])
    text = "Published hyperparameters (Adam, a step schedule). Only GTSRB's dense networks are trained here."
    return Shown([text, "", *markdown(titles, [list(r.values()) for r in rows])])


def two_sides(tables: Tables) -> Shown:
    """Table 23: do the verified and the falsified radii differ?"""
    lines = []
    for row in published(HERE, "table23"):
        one = subject(row["network"], row["training"], tuple(s for s in ALL if s not in FIRST))
        cells = []
        for split, side in zip(("train", "test"), sides(tables, one), strict=True):
            records = of_records(tables, one, split)
            low, high = [a for a, _ in side.pairs], [b for _, b in side.pairs]
            cells.append(three(row[f"t_{split}"], records.get("sides_t_p"), means_p(low, high)))
            cells.append(three(row[f"ks_{split}"], records.get("sides_ks_p"), two_sample_p(low, high)))
        lines.append((row["network"], row["training"], counts(*sides(tables, one)), *cells))
    titles = ("network", "training", "n", "train: t-test p", "train: KS p", "test: t-test p", "test: KS p")
    return Shown([CELLS, "", *markdown(titles, lines)])
