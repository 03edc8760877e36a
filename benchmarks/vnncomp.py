"""A whole competition laid out in a folder, by the command line, beside the published answers of every tool.

    python benchmarks/vnncomp.py DATA [--per-category 6] [--category NAME]... [--shard 1/4] [--table]

DATA is a folder with `instances.csv`, whose columns are: category; onnx (several networks are joined by `;`, in the
order of the property's declarations); vnnlib (both relative to DATA); timeout (the competition's own limit, seconds);
expected (sat, unsat, or unknown where the tools contradict each other); and for every tool TOOL_result and
TOOL_time_s as the organisers published them.

Every instance is one `verifolio verify` with the default portfolio, whose clock starts with the process. Rows go to a
CSV file as they come; an instance that has one is not run again, so that an interrupted run continues and machines
can share the work (`--shard`). Instances are taken in a seeded random order, one of each category in turn, so that
what is there at any moment is a sample of every category. A counterexample is replayed here once more, and kept for
the organisers' scripts (`benchmarks/vnncomp_judge.py`).

The table counts what every tool decides within the same limit, and within the competition's own where that is
shorter; points are the competition's (10 for a right answer, -150 for a wrong one); what is not decided counts twice
the limit (PAR-2). The published times are of the organisers' machines. Exit code 4 if an answer of ours is wrong: it
contradicts what is expected, and no counterexample that replays stands behind it.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any

from verifolio.errors import VerifolioError
from verifolio.model.answer import Verdict
from verifolio.plugins.bench.instances import Instance
from verifolio.plugins.bench.results import InstanceResult, tools_in
from verifolio.plugins.bench.scoring import DECIDED, Contest, Line, lines, make_contest
from verifolio.testing.clock import children_seconds, reap_children

ROWS = Path(__file__).resolve().parent / "rows" / "vnncomp2025.csv"
WITNESSES = Path("out/vnncomp")
PR_SET_CHILD_SUBREAPER = 36  # from Linux's prctl.h: processes whose parents are gone become our children
HUNG = 60.0  # seconds beyond the limit after which a run is ended from here
OVERRUN = 0.5  # seconds beyond the limit that the command line promises at most
REASON = 120  # characters of a reason that are kept
HOLDS = "holds"
NORMAL95 = 1.96  # of a normal distribution, 95 % lies within so many standard deviations


@dataclass(frozen=True)
class Row:
    """What came of one instance; `load` is the machine's when it began, in processes that want a core."""

    category: str
    onnx: str
    vnnlib: str
    commit: str
    verdict: str
    seconds: float
    processor_seconds: float
    limit: float
    cores: int
    load: float
    verifier: str
    replay: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.category, self.onnx, self.vnnlib


def read_layout(folder: Path) -> list[Instance]:
    """The instances of a folder, with the competition's limits.

    Published rows are found by the names of files. Of files that have the same names in several folders nothing that
    is published can be trusted: nothing is expected of them.
    """
    with (folder / "instances.csv").open(newline="") as file:
        found = [_instance(folder, record) for record in csv.DictReader(file)]
    called: dict[tuple[str, ...], set[str]] = {}
    for i in found:
        called.setdefault(_names(i), set()).add(i.id)
    return [i if len(called[_names(i)]) == 1 else replace(i, expected="unknown", claims={}) for i in found]


def _names(instance: Instance) -> tuple[str, ...]:
    paths = [*(path for _, path in instance.networks), instance.specification]
    return instance.category, *(path.name for path in paths)


def _instance(folder: Path, record: Mapping[str, str]) -> Instance:
    tools = [name.removesuffix("_result") for name in record if name.endswith("_result")]
    said = {t: (record[f"{t}_result"], float(record[f"{t}_time_s"] or "nan")) for t in tools}
    return Instance(
        record["category"],
        record["onnx"],
        record["vnnlib"],
        tuple(("", folder / name) for name in record["onnx"].split(";")),
        folder / record["vnnlib"],
        float(record["timeout"]),
        f"{record['category']} {record['onnx']} {record['vnnlib']}",
        record["expected"],
        {tool: claim for tool, claim in said.items() if claim[0]},
    )


def ordered(instances: Sequence[Instance], seed: int, per_category: int = 0) -> list[Instance]:
    """One of each category in turn, each category shuffled; at most so many of each (0: all)."""
    groups: dict[str, list[Instance]] = {}
    for instance in instances:
        groups.setdefault(instance.category, []).append(instance)
    for category, group in groups.items():
        random.Random(f"{seed} {category}").shuffle(group)
    turns = list(zip_longest(*groups.values()))[: per_category or None]
    return [i for turn in turns for i in turn if i is not None]


def shard(instances: Sequence[Instance], part: str) -> list[Instance]:
    """The k-th of n parts of the work, for `k/n`."""
    k, n = map(int, part.split("/"))
    if not 1 <= k <= n:
        raise SystemExit(f"--shard: expected k/n with k from 1 to n, got {part}")
    return list(instances[k - 1 :: n])


def witness_file(folder: Path, instance: Instance) -> Path:
    """Where an instance's counterexample is kept, in the competition's format."""
    return folder / f"{instance.category}-{sha256(instance.id.encode()).hexdigest()[:12]}.counterexample"


def measure(instance: Instance, options: argparse.Namespace, commit: str) -> Row:
    """One run of the command line; what it left behind is waited for, so that its seconds count."""
    command = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", "verify", "--json"]
    command += [*(str(path) for _, path in instance.networks), str(instance.specification)]
    limit, witness = options.limit, witness_file(options.witnesses.resolve(), instance)
    witness.parent.mkdir(parents=True, exist_ok=True)
    command += ["--timeout", str(limit), "--cores", str(options.cores), "--counterexample", str(witness)]
    load, before, began = os.getloadavg()[0], children_seconds(), time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit + HUNG, cwd="/"
        )
        answer = _answer(done)
    except subprocess.TimeoutExpired:
        answer = {"verdict": "hung"}
    seconds = time.monotonic() - began
    reap_children()
    return Row(
        instance.category,
        instance.onnx,
        instance.vnnlib,
        commit,
        answer["verdict"],
        round(seconds, 3),
        round(children_seconds() - before, 3),
        limit,
        options.cores,
        round(load, 1),
        answer.get("verifier") or "",
        replayed(instance, answer["witness"]["x"]) if answer["verdict"] == "sat" else "",
        " ".join((answer.get("reason") or "").split())[:REASON],
    )


def _answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"verdict": "error", "reason": done.stderr.strip() or f"exit code {done.returncode}"}
    return answer


def replayed(instance: Instance, x: Sequence[float]) -> str:
    """What the referee says of a counterexample, asked in this process."""
    import numpy as np

    from verifolio.model.query import Query
    from verifolio.trust.referee import Rejection, judge_counterexample

    try:
        query = Query.from_files([path for _, path in instance.networks], instance.specification)
        found = judge_counterexample(query, np.array(x, dtype=np.float64))
    except VerifolioError as error:
        return str(error)
    return found.reason if isinstance(found, Rejection) else HOLDS


def load(path: Path) -> dict[tuple[str, str, str], Row]:
    """The newest row of every instance."""
    if not path.exists():
        return {}
    kinds: dict[str, type] = {"float": float, "int": int, "str": str}
    with path.open(newline="") as file:
        made = [
            Row(**{f.name: kinds[str(f.type)](record[f.name]) for f in fields(Row)})
            for record in csv.DictReader(file)
        ]
    return {row.key: row for row in made}


def record(instances: Sequence[Instance], options: argparse.Namespace) -> None:
    """Run what has no row yet, or only a row of another commit whose verdict is to be tried again."""
    commit = options.commit or current_commit()
    path: Path = options.rows
    path.parent.mkdir(parents=True, exist_ok=True)
    again = set(options.again.split(","))
    for number, instance in enumerate(instances, 1):
        # read every time: another shard may write to the same file
        old = load(path).get(_key(instance))
        if old is not None and (old.commit == commit or not {old.verdict, "all"} & again):
            continue
        row = measure(instance, options, commit)
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(f.name for f in fields(Row))
            writer.writerow(getattr(row, f.name) for f in fields(Row))
        note = f"{row.verdict} ({instance.expected}) {row.seconds:.1f} s {row.verifier} {row.reason}"
        print(f"{number}/{len(instances)} {instance.id}: {note}", file=sys.stderr, flush=True)


def current_commit() -> str:
    """The commit of the code, with a plus where files differ from it."""
    here = Path(__file__).resolve().parent
    words = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def wrong(instance: Instance, row: Row) -> bool:
    """Whether an answer contradicts what is expected, or is a counterexample that does not replay."""
    if row.verdict == "sat":
        return row.replay != HOLDS
    return row.verdict == "unsat" and instance.expected == "sat"


def contest_of(instances: Sequence[Instance], rows: Mapping[tuple[str, str, str], Row]) -> Contest:
    """Ours and the published answers; what is true is what is expected, or what a replayed point shows."""
    pairs = []
    for instance in instances:
        row = rows[_key(instance)]
        known = Verdict(row.verdict) if row.verdict in DECIDED else Verdict.UNKNOWN
        shown = "sat" if row.replay == HOLDS else "unsat" if row.verdict == "sat" else instance.expected
        pairs.append((replace(instance, expected=shown), InstanceResult(known, row.seconds)))
    return make_contest(pairs, tools_in(instances))


def capped(instances: Sequence[Instance], limit: float, own: bool) -> list[Instance]:
    """With the limit of this run; `own`: with the competition's where that is shorter."""
    return [replace(i, timeout=min(i.timeout, limit) if own else limit) for i in instances]


def show(every: Sequence[Instance], options: argparse.Namespace) -> int:
    """The table of what is recorded; 4 where an answer is wrong."""
    rows = {key: row for key, row in load(options.rows).items() if row.limit == options.limit}
    done = [i for i in every if _key(i) in rows]
    if not done:
        print("nothing is recorded")
        return 0
    bad = [i for i in done if wrong(i, rows[_key(i)])]
    table = lines(contest_of(capped(done, options.limit, own=False), rows))
    short = lines(contest_of(capped(done, options.limit, own=True), rows))
    within = {(line.category, line.tool): line.decided for line in short}
    print("category\ttool\tinstances\tdecided\twithin own limit\tsat\tunsat\twrong\tscore\tPAR-2")
    for line in table:
        print(_cells(line, within.get((line.category, line.tool), 0)))
    print(_summary(every, done, rows))
    for instance in bad:
        print(f"WRONG: {instance.id}: expected {instance.expected}, got {rows[_key(instance)].verdict}")
    return 4 if bad else 0


def _key(instance: Instance) -> tuple[str, str, str]:
    return instance.category, instance.onnx, instance.vnnlib


def _cells(line: Line, within: int) -> str:
    cells = (line.instances, line.decided, within, line.sat, line.unsat, line.wrong, line.score)
    return "\t".join([line.category, line.tool, *map(str, cells), f"{line.par2:.2f}"])


def _summary(
    every: Sequence[Instance], done: Sequence[Instance], rows: Mapping[tuple[str, str, str], Row]
) -> str:
    """What the sample says about the whole, whose answers these are, and who overran the limit."""
    mine = [rows[_key(i)] for i in done]
    late = [r for r in mine if r.seconds > r.limit + OVERRUN]
    mean, error = estimate(every, mine)
    commits = ", ".join(f"{commit} {count}" for commit, count in Counter(r.commit for r in mine).items())
    loads = sorted(r.load for r in mine)
    return "\n".join(
        [
            f"recorded: {len(done)} of {len(every)} instances; rows of each commit: {commits}",
            f"estimated for all {len(every)}: {mean:.0f} decided, +- {NORMAL95 * error:.0f} (95 %)",
            f"load when a run began: median {loads[len(loads) // 2]}, most {loads[-1]}",
            f"over the limit by more than {OVERRUN} s: {len(late)}"
            + "".join(f"\n  {r.seconds:.1f} s of {r.limit:.0f}: {' '.join(r.key)}" for r in late),
        ]
    )


def estimate(every: Sequence[Instance], rows: Sequence[Row]) -> tuple[float, float]:
    """How many of all would be decided, by a stratified sample, and its standard error.

    A share is estimated as (decided + 1) / (tried + 2) in the error alone, so that a category in which a few were
    tried and all decided is not taken for certain.
    """
    sizes, tried = Counter(i.category for i in every), Counter(r.category for r in rows)
    decided = Counter(r.category for r in rows if r.verdict in DECIDED)
    mean = variance = 0.0
    for category, n in tried.items():
        size, share = sizes[category], (decided[category] + 1) / (n + 2)
        mean += size * decided[category] / n
        variance += size * (size - n) * share * (1 - share) / n
    return mean, math.sqrt(variance)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--category", action="append", default=[], help="only this one; can be given again")
    parser.add_argument("--per-category", type=int, default=0, help="at most so many of each (0: all)")
    parser.add_argument("--shard", default="1/1", help="k/n: the k-th of n parts of the work")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of an instance")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--again", default="", help="verdicts of other commits to try again; `all`")
    parser.add_argument("--commit", default="", help="what to record as the commit, outside a repository")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--witnesses", type=Path, default=WITNESSES, help="folder of counterexamples, kept")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is recorded")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    every = read_layout(options.data)
    strangers = set(options.category) - {i.category for i in every}
    if strangers:
        raise SystemExit(f"--category: expected a category of {options.data}, got {', '.join(strangers)}")
    chosen = [i for i in every if not options.category or i.category in options.category]
    if not options.table:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        record(shard(ordered(chosen, options.seed, options.per_category), options.shard), options)
    return show(chosen, options)


if __name__ == "__main__":
    raise SystemExit(main())
