"""What the framework costs on top of a verifier: many easy queries on one network, and one that takes long.

    python benchmarks/overhead.py [--queries 100] [--seconds 20] [--verifier crown] [--long-verifier smt]

Easy: the same local-robustness queries by the verifier called directly in this process, by the oracle with a
portfolio of one, and by a portfolio of two, whose members are asked first whether they refuse; all warm. The clock
counts what other work on the machine takes away, processor time does not. Long: a hard query; the time that it
spends outside the worker, and the processor time of everything but the worker. Exit code 1 if a goal is missed, 20 ms
of processor per easy query or 5 % of a long one; 3 if the long query was decided too soon to tell.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from verifolio.data import load_data
from verifolio.model.answer import Answer
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.choice import Choice
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.property import Reference
from verifolio.plugin.verifier import Context, Verifier
from verifolio.portfolio.tree import Member, Portfolio, Series, single_verifier
from verifolio.run.budget import Budget
from verifolio.solve.oracle import Oracle
from verifolio.trust.referee import Rejection, replay

NETWORKS = Path(__file__).resolve().parent.parent / "examples" / "networks"
GOAL_MS, GOAL_SHARE = 20.0, 0.05
WARM = 5  # queries that do not count
HARD = 0.2  # radius


def easy_queries(count: int, epsilon: float) -> list[Query]:
    """Small boxes around different inputs: a bound or two decides each."""
    network = Network.load(NETWORKS / "digits_dense.onnx")
    data = load_data("digits:test")
    robust = current_plugins().properties.get("classification")()
    return [
        robust.query([network], Reference(data.image(k), int(data.labels[k]), epsilon)) for k in range(count)
    ]


def hard_query(epsilon: float) -> Query:
    """A box so large that bounds alone decide nothing, and an attack finds nothing."""
    network = Network.load(NETWORKS / "digits_robust.onnx")
    data = load_data("digits:test")
    robust = current_plugins().properties.get("classification")()
    return robust.query([network], Reference(data.image(45), int(data.labels[45]), epsilon))


def call_directly(verifier: Verifier, query: Query, seconds: float = 60.0) -> dict[str, object]:
    """The verifier alone; gives what it says about its work."""
    context = Context(
        budget=Budget(seconds),
        bounders=current_plugins().all_bounders(),
        check=lambda x: not isinstance(replay(query, x), Rejection),
    )
    outcomes = verifier.run_many(list(query.problems), context)
    return {name: value for outcome in outcomes for name, value in outcome.stats.items()}


def processor_seconds() -> dict[int, float]:
    """Of this process and everything below it that lives, by process."""
    everybody = [psutil.Process(), *psutil.Process().children(recursive=True)]
    times = {p.pid: p.cpu_times() for p in everybody}
    return {pid: t.user + t.system for pid, t in times.items()}


@dataclass(frozen=True)
class Cost:
    """Milliseconds per easy query: the median by the clock, the mean by processor time of everybody."""

    clock: float
    processor: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.clock - other.clock, self.processor - other.processor)

    def __str__(self) -> str:
        return f"{self.clock:.1f} ms by the clock, {self.processor:.1f} ms of processor"


def cost_of(run: Callable[[Query], object], queries: Sequence[Query]) -> Cost:
    """What the queries after the first few cost."""
    for query in queries[:WARM]:
        run(query)
    times, before = [], sum(processor_seconds().values())
    for query in queries[WARM:]:
        started = time.perf_counter()
        run(query)
        times.append(time.perf_counter() - started)
    spent = sum(processor_seconds().values()) - before
    return Cost(1000 * statistics.median(times), 1000 * spent / len(times))


def measure_easy(verifier: str, count: int) -> Cost:
    """The larger overhead of the two portfolios, by either measure."""
    queries = easy_queries(count + WARM, 0.005)
    direct = current_plugins().verifiers.get(verifier)()
    for query in queries:  # what a worker has in memory, too
        _ = query.problems
    two = Portfolio(Series((Member(Choice(verifier)), Member(Choice("pgd")))), "two")
    bare = cost_of(lambda q: call_directly(direct, q), queries)
    worst = Cost(0.0, 0.0)
    print(f"easy: {count} queries, load {os.getloadavg()[0]:.1f}")
    print(f"  {verifier} called directly: {bare}")
    for portfolio in (single_verifier(verifier), two):
        with Oracle(portfolio, timeout=60.0, infer=False) as oracle:
            oracle.executor.warm(wait=True)
            extra = cost_of(oracle.ask, [replace(q) for q in queries]) - bare
        print(f"  more through the oracle, portfolio {portfolio.name}: {extra}")
        worst = Cost(max(worst.clock, extra.clock), max(worst.processor, extra.processor))
    return worst


def ask_watched(oracle: Oracle, query: Query) -> tuple[Answer, float, dict[int, float]]:
    """The answer, its seconds, and the processor seconds of every process; of one that died, what was seen last."""
    before, seen, over = processor_seconds(), dict[int, float](), threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.update(processor_seconds())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    try:
        answer = oracle.ask(query)
    finally:
        wall = time.perf_counter() - started
        over.set()
        watcher.join()
    seen.update(processor_seconds())
    return answer, wall, {pid: spent - before.get(pid, 0.0) for pid, spent in seen.items()}


def measure_long(verifier: str, seconds: float) -> float | None:
    """The larger share of a long query that is not the verifier's: by the clock, by processor time."""
    with Oracle(single_verifier(verifier), timeout=seconds, infer=False) as oracle:
        oracle.executor.warm(wait=True)
        answer, wall, spent = ask_watched(oracle, hard_query(HARD))
    if wall < seconds / 4:
        print(f"long: {answer.verdict.value} after {wall:.2f} s, too soon to tell; nothing is measured")
        return None
    worker = max(spent, key=lambda pid: spent[pid])
    around = sum(s for pid, s in spent.items() if pid != worker)
    inside = sum(a.seconds for a in answer.attempts)
    shares = (wall - inside) / inside, around / spent[worker]
    print(f"long: {verifier} {answer.verdict.value} after {wall:.2f} s, load {os.getloadavg()[0]:.1f}")
    print(f"  clock: {wall - inside:.3f} s outside the worker, {100 * shares[0]:.2f} %")
    print(f"  processor: worker {spent[worker]:.2f} s, all others {around:.2f} s, {100 * shares[1]:.2f} %")
    return max(shares)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the long query; 0 leaves it out")
    parser.add_argument("--verifier", default="crown", help="for easy queries")
    parser.add_argument("--long-verifier", default="smt", help="one that is slow on the long query")
    options = parser.parse_args()
    extra = measure_easy(options.verifier, options.queries)
    share = measure_long(options.long_verifier, options.seconds) if options.seconds else 0.0
    if share is None:
        return 3
    print(
        f"goal of {GOAL_MS:g} ms per easy query, by processor time: {verdict(extra.processor, GOAL_MS)}; ",
        end="",
    )
    print(f"by the clock, which needs an idle machine: {verdict(extra.clock, GOAL_MS)}")
    print(f"goal of {100 * GOAL_SHARE:g} % of a long query: {verdict(share, GOAL_SHARE)}")
    return int(extra.processor > GOAL_MS or share > GOAL_SHARE)


def verdict(value: float, goal: float) -> str:
    return "met" if value <= goal else "missed"


if __name__ == "__main__":
    raise SystemExit(main())
