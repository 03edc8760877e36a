"""Brackets of critical radii on the networks of Bosman et al. 2025, against the radii they published.

    python benchmarks/jair.py --networks mnist-net_256x2 --images 20 --budget 60 --out out/jair

Needs the folder `jair/` (networks and published_critical_epsilons.csv) and `mnist/` in $VERIFOLIO_SHARED.
Started again with the same options it continues. Every published "verified" radius that a replayed point
refutes is listed.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verifolio.data import load_data
from verifolio.network import Network
from verifolio.oracle import Oracle
from verifolio.plugins.distribution.ledger import Ledger
from verifolio.plugins.distribution.progress import Reporter
from verifolio.plugins.distribution.run import Distribution, Setting, make_items
from verifolio.plugins.distribution.summary import mean
from verifolio.plugins.distribution.table import Row, write_csv
from verifolio.portfolio import single
from verifolio.store import Store

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
    parser.add_argument("--verifier", default="", help="one verifier instead of the default portfolio")
    parser.add_argument("--out", type=Path, default=Path("out/jair"))
    return parser.parse_args(arguments)


def measure(given: argparse.Namespace) -> list[Row]:
    """Run, or continue, and keep the table up to date."""
    os.environ["VERIFOLIO_DATA"] = str(SHARED)
    networks = [Network.load(SHARED / "jair" / f"{name}.onnx") for name in given.networks]
    items = make_items(networks, [(load_data(f"mnist:{given.split}"), range(given.images))])
    setting = Setting(tolerance=given.tolerance, budget=given.budget, portfolio=given.verifier or "default")
    portfolio = single(given.verifier) if given.verifier else None
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "run.db"
    with (
        Store(path) as store,
        Ledger(path) as ledger,
        Oracle(portfolio, None, store, workers=given.jobs) as oracle,
        Reporter() as report,
    ):
        task = Distribution(setting, items, oracle, ledger, given.jobs, listen=report)
        rows = task.run()
    write_csv(given.out / "brackets.csv", rows)
    return rows


def compare(rows: Sequence[Row], known: dict[Place, Published]) -> None:
    """The numbers, network by network, and every published radius that a replayed point refutes."""
    for network in dict.fromkeys(r.network for r in rows):
        mine = [r for r in rows if r.network == network and r.measured]
        pairs = [(r, known[place]) for r in mine if (place := (r.network, r.split, r.image_id)) in known]
        gaps = [r.gap for r in mine if r.gap is not None]
        theirs = [p.falsified - p.verified for _, p in pairs if np.isfinite(p.falsified)]
        judged = [(r, p) for r, p in pairs if np.isfinite(p.falsified)]
        better = sum(r.upper is not None and r.upper <= p.falsified * (1 + 1e-9) for r, p in judged)
        print(f"{network}: {len(mine)} images, {sum(r.status == 'closed' for r in mine)} closed")
        print(f"  mean gap {mean(gaps):.5f} (largest {max(gaps, default=0.0):.5f})")
        print(f"  published mean gap {mean(theirs):.5f}")
        seconds = [r.seconds for r in mine]
        print(f"  mean seconds {mean(seconds):.1f}, most {max(seconds, default=0.0):.1f}")
        print(f"  published mean seconds {mean([p.seconds for _, p in pairs]):.0f}")
        print(f"  upper <= published falsified radius: {better} of {len(judged)}")
        refuted = [(r, p) for r, p in pairs if r.upper is not None and r.upper <= p.verified]
        print(f"  published verified radii refuted by a replayed point: {len(refuted)} of {len(pairs)}")
        for r, p in refuted:
            print(f"    {r.split} {r.image_id}: published {p.verified:g}, counterexample at {r.upper:.6f}")
        for r, p in judged:
            if r.lower is not None and r.lower >= p.falsified:
                print(f"    {r.split} {r.image_id}: published refuted {p.falsified:g}, proved {r.lower:.6f}")


def draw(path: Path, rows: Sequence[Row], known: dict[Place, Published]) -> None:
    """Our brackets as bars, the published radii as marks, relative to our closest counterexample."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(r.network for r in rows))
    figure = Figure(figsize=(9, 3.2 * len(names)), layout="constrained")
    for k, network in enumerate(names, 1):
        axes = figure.add_subplot(len(names), 1, k)
        mine = [r for r in rows if r.network == network and r.measured and r.lower is not None]
        mine.sort(key=lambda r: r.lower or 0.0)
        for x, r in enumerate(mine):
            low = r.lower or 0.0
            zero = low if r.upper is None else r.upper
            axes.plot([x, x], [low - zero, 0], color="C0", lw=6, solid_capstyle="butt")
            theirs = known.get((r.network, r.split, r.image_id))
            if theirs is not None:
                axes.plot(x + 0.25, theirs.verified - zero, "v", color="C2", ms=5)
                axes.plot(x + 0.25, theirs.falsified - zero, "^", color="C3", ms=5)
        axes.set_xticks(range(len(mine)), [str(r.image_id) for r in mine], fontsize=7)
        axes.set_title(
            f"{network}: our brackets (bars), published verified (v) and falsified (^)", fontsize=10
        )
        axes.set(xlabel="image", ylabel="radius - our upper side")
        axes.axhline(0, color="grey", lw=0.6)
        axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    given = options()
    if not (SHARED / "jair").is_dir():
        sys.exit(f"no folder {SHARED / 'jair'}; set VERIFOLIO_SHARED to where the data is")
    rows = measure(given)
    known = published(SHARED / "jair" / "published_critical_epsilons.csv")
    compare(rows, known)
    draw(given.out / "brackets.png", rows, known)
    print(f"written: {given.out / 'brackets.csv'}, {given.out / 'brackets.png'}")


if __name__ == "__main__":
    main()
