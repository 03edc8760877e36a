"""The default portfolio against its members alone, on a short list of public instances or on all of them.

    python benchmarks/run_short.py DATA [--whole] [--members crown,milp] [--cap 60] [--cores 2] [--jobs 1]

DATA is a folder with `instances.csv` (id, category, onnx, vnnlib, timeout, expected). Interrupted at any moment
and started again, it continues; the table is printed when all runs are complete. Exit code 4 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from verifolio.model.answer import Verdict
from verifolio.plugins.bench.instances import Instance, cap, read_instances, select
from verifolio.plugins.bench.results import Result, Tool, read_tool
from verifolio.plugins.bench.scoring import BEST, OURS, Contest, lines, make_contest

SHORT = Path(__file__).resolve().parent / "short.csv"
DEFAULT = "default"


def run(name: str, options: argparse.Namespace, only: str) -> Path:
    """One configuration through `verifolio bench`; gives its results file."""
    out = Path(options.out) / f"{name}.csv"
    command = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", "bench"]
    command += [str(options.data / "instances.csv"), "--out", str(out), "--timeout-cap", str(options.cap)]
    command += ["--jobs", str(options.jobs), "--cores", str(options.cores), "--no-plots"]
    command += ["--only", only] if only else []
    command += ["--verifier", name] if name != DEFAULT else []
    print(f"== {name}", file=sys.stderr)
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 4):  # 4: a wrong answer, which the table shows
        raise SystemExit(code)
    return out


def contest_of(instances: list[Instance], files: dict[str, Path]) -> Contest:
    """All configurations on the same instances; what is true is what is expected."""
    tools = [Tool(name, read_tool(path).rows) for name, path in files.items()]
    plain = [replace(i, claims={}) for i in instances]
    nobody = Result(Verdict.UNKNOWN, 0.0)
    contest = make_contest([(i, nobody) for i in plain], tools)
    return replace(contest, claims={n: c for n, c in contest.claims.items() if n != OURS})


def show(contest: Contest) -> int:
    """Decided, wrong and PAR-2 per category, then the sums and the gap to the virtual best."""
    rows = lines(contest)
    print("category\tconfiguration\tinstances\tdecided\tsat\tunsat\twrong\tPAR-2")
    for line in rows:
        cells = (line.instances, line.decided, line.sat, line.unsat, line.wrong, f"{line.par2:.2f}")
        print("\t".join([line.category, line.tool, *map(str, cells)]))
    last = {line.tool: line for line in rows if line.category == "all"}
    alone = [line for name, line in last.items() if name not in (DEFAULT, BEST)]
    if DEFAULT in last and alone and BEST in last:
        best = min(alone, key=lambda line: line.par2)
        mine = last[DEFAULT]
        print(f"best member alone: {best.tool}, {best.decided} decided, PAR-2 {best.par2:.2f}")
        print(f"default: {mine.decided} decided ({mine.decided - best.decided:+d}), PAR-2 {mine.par2:.2f}")
        print(f"gap to the virtual best: {mine.par2 - last[BEST].par2:.2f} s, {last[BEST].decided} decided")
    wrong = sum(line.wrong for line in rows if line.category != "all")
    return 4 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--whole", action="store_true", help="all instances, not the short list")
    parser.add_argument("--only", default="", help="other ids or categories, with commas")
    parser.add_argument("--members", default="crown", help="verifiers to run alone, with commas")
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--cores", type=int, default=2, help="per instance")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="out/short")
    options = parser.parse_args()
    only = options.only or ("" if options.whole else str(SHORT))
    names = [DEFAULT, *filter(None, options.members.split(","))]
    files = {name: run(name, options, only) for name in names}
    every = read_instances(options.data / "instances.csv")
    return show(contest_of(cap(select(every, only), options.cap), files))


if __name__ == "__main__":
    raise SystemExit(main())
