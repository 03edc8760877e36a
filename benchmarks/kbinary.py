"""What k queries at a time gain and cost on 200 radii, beside table 1 of Bosman et al. 2025.

    python benchmarks/kbinary.py [--seeds 20]

The scheduler of `k-binary` runs against simulated query times, longest near the critical radius and with a heavy
tail, for every critical radius of the grid. Times are in units of an easy query; every query is answered. The
published numbers (in brackets) come from real queries, thousands of which ran out of time or memory.
"""

from __future__ import annotations

import argparse
from statistics import mean

from verifolio.plugins.distribution.costs import worst_case
from verifolio.plugins.distribution.simulate import draw_times, simulate

SIZE = 200
# k: mean queries, share of cancelled queries, mean seconds that passed
PUBLISHED = {
    1: (12.68, 206 / 14547, 9781),
    2: (11.78, 1961 / 13516, 6717),
    4: (18.33, 6499 / 21025, 5574),
    8: (28.51, 15949 / 32646, 4433),
    16: (22.46, 12398 / 25761, 5878),
}
COLUMNS = ("k", "mean queries", "most", "bound", "cancelled", "time / k = 1", "work / k = 1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="drawn times per critical radius")
    seeds = parser.parse_args().seeds
    print("\t".join(COLUMNS))
    first: tuple[float, float] | None = None
    for k, (queries, cancelled, seconds) in PUBLISHED.items():
        runs = [
            simulate(k, c, draw_times(seed * (SIZE + 1) + c, c, SIZE))
            for seed in range(seeds)
            for c in range(SIZE + 1)
        ]
        wall, work = mean(r.wall for r in runs), mean(r.work for r in runs)
        first = first or (wall, work)
        share = sum(r.cancelled for r in runs) / sum(r.queries for r in runs)
        cells = (
            str(k),
            f"{mean(r.queries for r in runs):.2f} ({queries})",
            str(max(r.queries for r in runs)),
            str(worst_case(SIZE, k) or "-"),
            f"{share:.3f} ({cancelled:.3f})",
            f"{wall / first[0]:.2f} ({seconds / PUBLISHED[1][2]:.2f})",
            f"{work / first[1]:.2f}",
        )
        print("\t".join(cells), flush=True)


if __name__ == "__main__":
    main()
