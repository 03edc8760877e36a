"""Brackets of critical radii on the networks of Bosman et al. 2025, against the radii they published.

    python benchmarks/jair.py --networks mnist-net_256x2 --images 20 --budget 60 --out out/jair

Needs the folder `jair/` (networks and published_critical_epsilons.csv) and `mnist/` in $VERIFOLIO_SHARED.
Started again with the same options it continues, also with more images. Every published "verified" radius that a
replayed point refutes is listed. `--challenge` attacks every proved radius once more, with an attack that did not
take part in the search. Writes brackets.csv, published.csv (the numbers below), refuted.csv and brackets.png.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifolio.data import load_data
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugins.distribution.families import make_family
from verifolio.plugins.distribution.ledger import DistributionLedger
from verifolio.plugins.distribution.progress import Reporter
from verifolio.plugins.distribution.run import Distribution, Setting, make_items
from verifolio.plugins.distribution.summary import mean
from verifolio.plugins.distribution.table import Row, write_csv, write_lines
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.storage.store import Store

SHARED = Path(os.environ.get("VERIFOLIO_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data"))
Place = tuple[str, str, int]


@dataclass(frozen=True)
class Published:
    """What the paper's table says: `verified` was published as proved, `falsified` as refuted."""

    verified: float
    falsified: float
    seconds: float


def published(path: Path) -> dict[Place, Published]:
    with path.open(newline="") as stream:
        return {
            (r["network_path"], r["split"], int(float(r["image_id"]))): Published(
                float(r["epsilon_value"] or "nan"),
                float(r["smallest_sat_value"] or "nan"),
                float(r["total_time"] or "nan"),
            )
            for r in csv.DictReader(stream)
        }


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["mnist-net_256x2"])
    parser.add_argument("--images", type=int, default=10, help="the first N images")
    parser.add_argument("--split", default="test")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds per image")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--challenge", type=float, default=0.0, help="seconds per proved radius")
    parser.add_argument("--verifier", default="", help="one verifier instead of the default portfolio")
    parser.add_argument("--out", type=Path, default=Path("out/jair"))
    return parser.parse_args(arguments)


def measure(given: argparse.Namespace) -> list[Row]:
    """Run, or continue, and keep the table up to date."""
    os.environ["VERIFOLIO_DATA"] = str(SHARED)
    networks = [Network.load(SHARED / "jair" / f"{name}.onnx") for name in given.networks]
    items = make_items(networks, [(load_data(f"mnist:{given.split}"), range(given.images))])
    setting = Setting(tolerance=given.tolerance, budget=given.budget, portfolio=given.verifier or "default")
    portfolio = single_verifier(given.verifier) if given.verifier else None
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "run.db"
    with (
        Store(path) as store,
        DistributionLedger(path) as ledger,
        Oracle(portfolio, None, store, workers=given.jobs) as oracle,
        Reporter() as report,
    ):
        task = Distribution(setting, items, oracle, ledger, given.jobs, listen=report)
        rows = task.run()
    write_csv(given.out / "brackets.csv", rows)
    return rows


@dataclass(frozen=True)
class Comparison:
    """One network against the paper's table; `judged` are images with a published counterexample."""

    network: str
    images: int
    closed: int
    mean_gap: float
    largest_gap: float
    published_gap: float
    mean_seconds: float
    most_seconds: float
    published_seconds: float
    upper_at_most_published: int
    judged: int
    refuted: int
    published: int
    proved_beyond: int

    def lines(self) -> list[str]:
        return [
            f"{self.network}: {self.images} images, {self.closed} closed",
            f"  mean gap {self.mean_gap:.5f} (largest {self.largest_gap:.5f}), "
            f"published {self.published_gap:.5f}",
            f"  mean seconds {self.mean_seconds:.1f} (most {self.most_seconds:.1f}), "
            f"published {self.published_seconds:.0f}",
            f"  upper <= published falsified radius: {self.upper_at_most_published} of {self.judged}",
            f"  published verified radii refuted by a replayed point: {self.refuted} of {self.published}",
            f"  published falsified radii below a proved one: {self.proved_beyond} of {self.judged}",
        ]


def compare(network: str, rows: Sequence[Row], known: dict[Place, Published]) -> Comparison:
    """The numbers of one network."""
    mine = [r for r in rows if r.network == network and r.measured]
    pairs = [(r, known[place]) for r in mine if (place := (r.network, r.split, r.image_id)) in known]
    gaps = [r.gap for r in mine if r.gap is not None]
    judged = [(r, p) for r, p in pairs if np.isfinite(p.falsified)]
    seconds = [r.seconds for r in mine]
    return Comparison(
        network,
        len(mine),
        sum(r.status == "closed" for r in mine),
        mean(gaps),
        max(gaps, default=0.0),
        mean([p.falsified - p.verified for _, p in judged]),
        mean(seconds),
        max(seconds, default=0.0),
        mean([p.seconds for _, p in pairs]),
        sum(r.upper is not None and r.upper <= p.falsified * (1 + 1e-9) for r, p in judged),
        len(judged),
        len(refuted(mine, known)),
        len(pairs),
        sum(r.lower is not None and r.lower >= p.falsified for r, p in judged),
    )


def refuted(rows: Sequence[Row], known: dict[Place, Published]) -> list[tuple[Row, Published]]:
    """Published verified radii within which a replayed counterexample lies."""
    pairs = [(r, known.get((r.network, r.split, r.image_id))) for r in rows if r.measured]
    return [(r, p) for r, p in pairs if p is not None and r.upper is not None and r.upper <= p.verified]


def write_tables(out: Path, found: Sequence[Comparison], wrong: Sequence[tuple[Row, Published]]) -> None:
    names = [f.name for f in fields(Comparison)]
    write_lines(out / "published.csv", names, [[str(getattr(c, n)) for n in names] for c in found])
    columns = ("network", "split", "image_id", "published_verified", "counterexample_at")
    lines = [[r.network, r.split, str(r.image_id), repr(p.verified), repr(r.upper)] for r, p in wrong]
    write_lines(out / "refuted.csv", columns, lines)


def challenge(rows: Sequence[Row], given: argparse.Namespace) -> int:
    """How many proved radii another attack refutes; there should be none."""
    from verifolio.attacks import AttackSettings, attack_many
    from verifolio.model.answer import Witness
    from verifolio.run.budget import Budget
    from verifolio.trust.referee import replay

    data, broken, tried = load_data(f"mnist:{given.split}"), 0, 0
    for row in (r for r in rows if r.measured and r.lower):
        network = Network.load(SHARED / "jair" / row.network)
        family = make_family(Setting(), [network], data, row.image_id, "")
        query = family.query(row.lower or 0.0)

        def check(_: int, x: NDArray[np.float64], query: Query = query) -> bool:
            return isinstance(replay(query, x), Witness)

        settings = AttackSettings(samples=0, few_inputs=0)
        (found,) = attack_many(query.problems, check, Budget(given.challenge), settings, seed=row.image_id)
        tried += 1
        if found.point is not None:
            broken += 1
            print(f"{row.network} {row.image_id}: a counterexample inside the proved radius {row.lower:.6f}")
    print(f"{broken} of {tried} proved radii were refuted by an attack of {given.challenge:g} s each")
    return broken


def draw(path: Path, rows: Sequence[Row], known: dict[Place, Published]) -> None:
    """Our brackets as bars, the published radii as marks, relative to our closest counterexample."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(r.network for r in rows))
    most = max(sum(r.network == n for r in rows) for n in names)
    figure = Figure(figsize=(max(8.0, 2 + 0.16 * most), 3.4 * len(names)), layout="constrained")
    for k, network in enumerate(names, 1):
        axes = figure.add_subplot(len(names), 1, k)
        mine = [r for r in rows if r.network == network and r.measured and r.lower is not None]
        mine.sort(key=lambda r: r.upper if r.upper is not None else 1.0)
        for x, r in enumerate(mine):
            _draw_bracket(axes, x, r, known.get((r.network, r.split, r.image_id)))
        axes.set_xticks(range(len(mine)), [str(r.image_id) for r in mine], fontsize=6, rotation=90)
        axes.set_title(
            f"{network}: our brackets (bars), published verified (green) and falsified (red)", fontsize=10
        )
        axes.set(xlabel="image, by its closest counterexample", ylabel="radius - our upper side")
        axes.set_xlim(-1, len(mine))
        axes.axhline(0, color="grey", lw=0.6)
        axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=110)


def _draw_bracket(axes: Any, x: int, row: Row, theirs: Published | None) -> None:
    low = row.lower or 0.0
    zero = low if row.upper is None else row.upper
    axes.plot([x, x], [low - zero, 0], color="C0", lw=4, solid_capstyle="butt", alpha=0.7)
    if theirs is not None:
        axes.plot(x, theirs.verified - zero, "v", color="C2", ms=4)
        axes.plot(x, theirs.falsified - zero, "^", color="C3", ms=4)


def main() -> None:
    given = options()
    if not (SHARED / "jair").is_dir():
        sys.exit(f"no folder {SHARED / 'jair'}; set VERIFOLIO_SHARED to where the data is")
    rows = measure(given)
    known = published(SHARED / "jair" / "published_critical_epsilons.csv")
    found = [compare(name, rows, known) for name in dict.fromkeys(r.network for r in rows)]
    for line in (line for one in found for line in one.lines()):
        print(line)
    wrong = refuted(rows, known)
    for row, theirs in wrong:
        where = f"{row.network} {row.split} {row.image_id}"
        print(f"  {where}: published as verified {theirs.verified:g}, counterexample at {row.upper:.6f}")
    write_tables(given.out, found, wrong)
    draw(given.out / "brackets.png", rows, known)
    print(f"written: brackets.csv, published.csv, refuted.csv and brackets.png in {given.out}")
    if given.challenge and challenge(rows, given):
        sys.exit(4)


if __name__ == "__main__":
    main()
