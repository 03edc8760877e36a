"""`bracket` against `binary` for the same final gap: wall time per image, network by network.

    python benchmarks/bracket.py --networks mnist-net_256x2 mnist_nn --images 30 --step 0.002 --out out/bracket

`binary` searches the grid STEP/2, 3 STEP/2, ..., so its brackets are STEP wide; `bracket` stops at a gap of STEP.
Both get every ten images in turn, each with a store of its own, so that neither knows what the other found. Needs the
folders `jair/` and `mnist/` in $VERIFOLIO_SHARED; digits and a network of examples/ serve without them
(`--networks digits`). Started again with the same options it continues.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from verifolio.data import load_data
from verifolio.onnx_import.network import Network
from verifolio.plugin.data_source import Dataset
from verifolio.plugins.distribution.ledger import Ledger
from verifolio.plugins.distribution.progress import describe
from verifolio.plugins.distribution.run import Distribution, Item, Setting, make_items
from verifolio.plugins.distribution.search import Status
from verifolio.plugins.distribution.summary import mean
from verifolio.plugins.distribution.table import Row, write_csv
from verifolio.portfolio.tree import single_verifier
from verifolio.solve.oracle import Oracle
from verifolio.storage.store import Store

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("VERIFOLIO_SHARED", ROOT.parent / "shared" / "data"))
SEARCHES = ("bracket", "binary")
LARGEST = 0.4
BLOCK = 10  # images of one run


@dataclass(frozen=True)
class Side:
    """One search with its own store and oracle."""

    setting: Setting
    ledger: Ledger
    oracle: Oracle

    def measure(self, items: Sequence[Item]) -> list[Row]:
        return Distribution(self.setting, items, self.oracle, self.ledger).run()

    def rows(self, items: Sequence[Item]) -> dict[tuple[str, str, int], Row]:
        places = {i.place for i in items}
        found = {(r.network, r.split, r.image_id): r for r in self.ledger.rows(self.setting.run)}
        return {place: row for place, row in found.items() if place in places}


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    networks = ["mnist-net_256x2", "mnist-net", "mnist_nn"]
    parser.add_argument("--networks", nargs="+", default=networks)
    parser.add_argument("--images", type=int, default=30, help="the first N images")
    parser.add_argument("--step", type=float, default=0.002, help="the gap both searches aim at")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds per image and search")
    parser.add_argument("--verifier", default="", help="one verifier instead of the default portfolio")
    parser.add_argument("--out", type=Path, default=Path("out/bracket"))
    return parser.parse_args(arguments)


def setting_of(search: str, given: argparse.Namespace) -> Setting:
    count = round(LARGEST / given.step)
    grid = tuple(round((k + 0.5) * given.step, 9) for k in range(count))
    return Setting(
        search,
        1,
        grid if search == "binary" else (),
        given.step,
        LARGEST if search == "bracket" else 0.0,
        budget=given.budget,
        portfolio=given.verifier or "default",
    )


def load(name: str) -> tuple[Network, Dataset]:
    if name == "digits":
        return Network.load(ROOT / "examples" / "networks" / "digits_dense.onnx"), load_data("digits:test")
    return Network.load(SHARED / "jair" / f"{name}.onnx"), load_data("mnist:test")


def open_side(search: str, given: argparse.Namespace, stack: ExitStack) -> Side:
    path = given.out / f"{search}.db"
    portfolio = single_verifier(given.verifier) if given.verifier else None
    store, ledger = stack.enter_context(Store(path)), stack.enter_context(Ledger(path))
    return Side(setting_of(search, given), ledger, stack.enter_context(Oracle(portfolio, None, store)))


def measure(given: argparse.Namespace) -> dict[str, dict[str, list[tuple[Row, Row]]]]:
    """Both searches, block by block; who begins alternates, so that other load on the machine hits both."""
    pairs: dict[str, dict[str, list[tuple[Row, Row]]]] = {}
    given.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        sides = [open_side(s, given, stack) for s in SEARCHES]
        items: list[Item] = []
        for name in given.networks:
            network, data = load(name)
            items += make_items([network], [(data, range(given.images))])
        blocks = [items[k : k + BLOCK] for k in range(0, len(items), BLOCK)]
        for k, block in enumerate(blocks):
            for side in sides if k % 2 else sides[::-1]:
                known = side.rows(block)
                for row in side.measure([item for item in block if item.place not in known]):
                    print(f"{side.setting.search} {describe(row)}", file=sys.stderr, flush=True)
        first, second = (side.rows(items) for side in sides)
        for side, rows in zip(sides, (first, second), strict=True):
            write_csv(given.out / f"{side.setting.search}.csv", rows.values())
    for place, row in first.items():
        both = row.status is Status.CLOSED and second[place].status is Status.CLOSED
        kind = "both closed" if both else "open" if row.measured else ""
        if kind:
            pairs.setdefault(place[0], {}).setdefault(kind, []).append((row, second[place]))
    return pairs


def report(pairs: dict[str, dict[str, list[tuple[Row, Row]]]]) -> None:
    """Times over the images on which both searches reached the gap, and what became of the others."""
    total = [0.0, 0.0]
    for network, kinds in pairs.items():
        both, rest = kinds.get("both closed", []), kinds.get("open", [])
        wall = [sum(p[k].seconds for p in both) for k in (0, 1)]
        total = [t + w for t, w in zip(total, wall, strict=True)]
        gaps = [mean([p[k].gap or 0.0 for p in both]) for k in (0, 1)]
        queries = [mean([p[k].queries for p in both]) for k in (0, 1)]
        ratio = f"{wall[0] / wall[1]:.2f}" if wall[1] else "undefined"
        print(f"{network}: {len(both)} images closed by both")
        print(f"  bracket {wall[0]:.1f} s, binary {wall[1]:.1f} s: ratio {ratio}")
        print(
            f"  mean gap {gaps[0]:.5f} and {gaps[1]:.5f}, mean queries {queries[0]:.1f} and {queries[1]:.1f}"
        )
        if rest:
            left = [mean([g for p in rest if (g := p[k].gap) is not None]) for k in (0, 1)]
            closed = [sum(p[k].status is Status.CLOSED for p in rest) for k in (0, 1)]
            print(
                f"  {len(rest)} others: closed {closed[0]} and {closed[1]}, mean gap {left[0]:.4f} and {left[1]:.4f}"
            )
    if total[1]:
        print(f"all: bracket {total[0]:.1f} s, binary {total[1]:.1f} s: ratio {total[0] / total[1]:.2f}")


def main() -> None:
    given = options()
    os.environ.setdefault("VERIFOLIO_DATA", str(SHARED))
    if "digits" not in given.networks and not (SHARED / "jair").is_dir():
        sys.exit(f"no folder {SHARED / 'jair'}; set VERIFOLIO_SHARED to where the data is")
    report(measure(given))


if __name__ == "__main__":
    main()
