"""What `milp` gains from crown's bounds over interval bounds, on public dense ReLU networks.

    python benchmarks/milp_bounds.py DATA [--cap 60] [--bounders interval,crown] [--only IDS] [--out FILE]

DATA is a folder with `instances.csv` (id, category, onnx, vnnlib, timeout, expected). The cap is in seconds of one
core, so that a busy machine does not change the table. Everything but the bounder is equal; the solver is HiGHS.
Stopped at any moment and started again, it continues with what the table in --out does not hold yet. Exit code 4
if an answer is wrong.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from verifolio.model.answer import Outcome, Verdict, Witness
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.bench.instances import Instance, read_instances, select
from verifolio.plugins.bench.runner import load
from verifolio.plugins.milp import box_search, decide, probe
from verifolio.plugins.milp.options import MilpOptions
from verifolio.plugins.milp.verifier import Milp
from verifolio.testing.clock import CpuBudget
from verifolio.trust.referee import replay

CATEGORIES = ("mnist_fc", "eran", "rl_benchmarks", "reach_prob_density", "acasxu")
ACASXU = 30
LOADED = (box_search, decide, probe)  # before forking, so that all runs see the same code
PATIENCE = 40  # wall seconds per second of the cap, for a core that is shared
COLUMNS = (
    "id",
    "category",
    "expected",
    "bounder",
    "cap",
    "verdict",
    "cpu",
    "wall",
    "nodes",
    "boxes",
    "reason",
)
BOUNDERS = current_plugins().all_bounders()
Row = dict[str, str]


def chosen(data: Path, only: str) -> list[Instance]:
    """All instances of the categories that `milp` takes; of acasxu thirty, spread evenly."""
    found: list[Instance] = []
    every = select(read_instances(data / "instances.csv"), only)
    for category in CATEGORIES:
        mine = [i for i in every if i.category == category]
        if category == "acasxu" and len(mine) > ACASXU:
            mine = [mine[k * len(mine) // ACASXU] for k in range(ACASXU)]
        found += [i for i in mine if Milp().refuses(load(i).problems[0]) is None]
    return found


def answer(instance: Instance, bounder: str, cap: float) -> Row:
    """One run; a counterexample counts only after replay."""
    query = load(instance)
    problems = query.problems
    verifier = Milp(MilpOptions(solver="highs", bounder=bounder))
    context = Context(
        budget=CpuBudget(cap),
        bounders=BOUNDERS,
        check=lambda x: isinstance(replay(query, x), Witness),
    )
    wall = time.monotonic()
    start = time.process_time()
    outcomes: list[Outcome] = verifier.run_many(problems, context)
    cpu, last = time.process_time() - start, outcomes[-1]
    open_ones = [o for o in outcomes if o.verdict is not Verdict.UNSAT]
    verdict = open_ones[0].verdict if open_ones else Verdict.UNSAT
    verdict = Verdict.SAT if last.point is not None else verdict
    counts = {k: sum(int(o.stats.get(k, 0)) for o in outcomes) for k in ("nodes", "boxes")}
    return {
        "verdict": verdict.value,
        "cpu": f"{min(cpu, cap):.2f}",
        "wall": f"{time.monotonic() - wall:.2f}",
        **{k: str(v) for k, v in counts.items()},
        "reason": open_ones[0].reason if open_ones else "",
    }


def _child(sender: Connection, instance: Instance, bounder: str, cap: float) -> None:
    import torch

    torch.set_num_threads(1)
    sender.send(answer(instance, bounder, cap))


def contained(instance: Instance, bounder: str, cap: float) -> Row:
    """The run in a process of its own: one that dies or hangs is an undecided instance."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("fork").Process(target=_child, args=(sender, instance, bounder, cap))
    worker.start()
    sender.close()
    row: Row = {"verdict": Verdict.ERROR.value, "cpu": str(cap), "reason": "the process died"}
    try:
        if receiver.poll(PATIENCE * cap):
            row = receiver.recv()
        else:
            row = {"verdict": Verdict.TIMEOUT.value, "cpu": str(cap), "reason": "no answer"}
    except EOFError:
        pass
    worker.kill()
    worker.join()
    named = {"id": instance.id, "category": instance.category, "expected": instance.expected}
    return row | named | {"bounder": bounder, "cap": str(cap)}


def run(instances: Sequence[Instance], bounders: Sequence[str], cap: float, out: Path) -> list[Row]:
    """All runs that the table does not hold yet, the bounders in turn."""
    out.parent.mkdir(parents=True, exist_ok=True)
    old = list(csv.DictReader(out.open())) if out.is_file() else []
    rows = [r for r in old if r["verdict"] != Verdict.ERROR.value]  # those are tried again
    done = {(r["id"], r["bounder"], float(r["cap"])) for r in rows}
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        for instance in instances:
            for bounder in bounders:
                if (instance.id, bounder, cap) in done:
                    continue
                row = contained(instance, bounder, cap)
                writer.writerow(row)
                file.flush()
                rows.append(row)
    return rows


def show(rows: Sequence[Row], bounders: Sequence[str], cap: float) -> int:
    """Decided, wrong and PAR-2 per category and bounder."""
    print("category\tbounder\tinstances\tdecided\tsat\tunsat\twrong\tPAR-2 (CPU s)")
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        for category in (row["category"], "all"):
            groups[category, row["bounder"]].append(row)
    par2: dict[str, float] = {}
    for category in (*CATEGORIES, "all"):
        for bounder in bounders:
            mine = [r for r in groups[category, bounder] if float(r["cap"]) == cap]
            sat, unsat = (sum(r["verdict"] == v for r in mine) for v in ("sat", "unsat"))
            wrong = sum(_wrong(r) for r in mine)
            times = [float(r["cpu"]) if r["verdict"] in ("sat", "unsat") else 2 * cap for r in mine]
            par2[bounder] = sum(times) / max(len(times), 1)
            cells = (len(mine), sat + unsat, sat, unsat, wrong, f"{par2[bounder]:.2f}")
            print("\t".join([category, bounder, *map(str, cells)]))
    first, last = par2[bounders[0]], par2[bounders[-1]]
    print(f"PAR-2 with {bounders[-1]} is {100 * (1 - last / max(first, 1e-9)):.0f} % below {bounders[0]}")
    return 4 if any(_wrong(r) for r in rows) else 0


def _wrong(row: Row) -> bool:
    return {row["verdict"], row["expected"]} == {"sat", "unsat"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cap", type=float, default=60.0, help="seconds of processor time per instance")
    parser.add_argument("--bounders", default="interval,crown")
    parser.add_argument("--only", default="", help="ids or categories with commas, or a file of them")
    parser.add_argument("--out", type=Path, default=Path("out/milp_bounds.csv"))
    options = parser.parse_args()
    bounders = options.bounders.split(",")
    rows = run(chosen(options.data, options.only), bounders, options.cap, options.out)
    return show(rows, bounders, options.cap)


if __name__ == "__main__":
    raise SystemExit(main())
