"""What share of small random networks `smt` decides, by the number of ReLUs whose phase bounds leave open.

    python benchmarks/smt_shares.py [--open 16,20,40] [--networks 20] [--cap 60] [--seed 0]

Every network is asked about four times: at a distance on either side of the boundary, and twice about a corner of
the box that attains the minimum exactly, with `<=` (a tie, so a counterexample) and with `<` (so none). `milp` and
`crown` are asked too; the exit code is 4 if anybody contradicts. The cap is in seconds of one core.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verifolio.encode.condition import margin_model
from verifolio.encode.exact_forms import ExactNetwork, exact_network
from verifolio.encode.rows import encode
from verifolio.model.answer import Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.verifier import Context
from verifolio.plugins.milp.highs import Highs
from verifolio.plugins.milp.solver import SolverSettings, Watch
from verifolio.plugins.smt.pieces import open_phases
from verifolio.testing.check import checker
from verifolio.testing.clock import CpuBudget
from verifolio.testing.generate import Shape, random_graph
from verifolio.vnnlib import make_rows

Array = NDArray[np.float64]
DISTANCES = (1e-6, 1e-3, 0.1)
MOST_INPUTS = 5
OTHERS = ("milp", "crown")


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and what is true about it."""

    problem: Problem
    expected: Verdict
    kind: str


def network(rng: np.random.Generator, count: int) -> Problem:
    """A dense network of one output with exactly this many open phases under crown's bounds."""
    bounder = current_plugins().all_bounders()["crown"]
    while True:
        inputs, depth = int(rng.integers(2, MOST_INPUTS + 1)), int(rng.integers(1, 4))
        width = max(2, round(count * rng.uniform(0.8, 2.0) / depth))
        graph = random_graph(rng, Shape("dense", inputs, width, depth, 1))
        radius = 2.0 ** -int(rng.integers(0, 4))
        centre = np.round(rng.uniform(-1, 1, inputs) * 16) / 16
        row = make_rows([({inputs: 1.0}, 0.0)])
        problem = Problem(graph, Domain(centre - radius, centre + radius), (row,))
        if open_phases(problem, bounder.bound([problem])[0]) == count:
            return problem


def least(problem: Problem) -> tuple[float, Array]:
    """The least output and a point that attains it, up to a solver's tolerances."""
    bounds = current_plugins().all_bounders()["crown"].bound([problem])[0]
    encoding = encode(problem.graph, problem.domain, bounds)
    target = margin_model(encoding, problem.domain, problem.disjuncts, np.inf)
    result = Highs().solve(target.model, SolverSettings(1e-9), Watch(lambda *_: False, lambda _: False))
    if result.point is None:
        raise RuntimeError(f"no minimum: {result.message}")
    return result.objective, result.point[encoding.inputs]


def output_at(exact: ExactNetwork, x: list[Fraction]) -> Fraction:
    """The only output, in rational numbers."""
    values = list(x)
    for neuron in exact.neurons:
        value = neuron.form.constant + sum(c * values[v] for v, c in neuron.form.terms)
        values.append(max(value, Fraction(0)))
    form = exact.outputs[0]
    return form.constant + sum((c * values[v] for v, c in form.terms), Fraction(0))


def with_limit(problem: Problem, limit: float | Fraction, strict: bool = False) -> Problem:
    rows = make_rows([({problem.graph.input_size: 1.0}, limit)], strict=strict)
    return replace(problem, disjuncts=(rows,))


def cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """The four questions about one random network; fewer where no corner attains the minimum."""
    problem = network(rng, count)
    value, x = least(problem)
    near, far = (float(rng.choice(DISTANCES)) for _ in range(2))
    yield Case(with_limit(problem, value + near), Verdict.SAT, "sat")
    yield Case(with_limit(problem, value - far), Verdict.UNSAT, "unsat")
    domain = problem.domain
    corner = np.where(x - domain.lower < domain.upper - x, domain.lower, domain.upper)
    if np.abs(corner - x).max() < 1e-7:
        exact = exact_network(problem.graph, fix=False)
        tie = output_at(exact, [Fraction(v) for v in corner.tolist()])
        yield Case(with_limit(problem, tie), Verdict.SAT, "tie")
        yield Case(with_limit(problem, tie, strict=True), Verdict.UNSAT, "strict tie")


def ask(name: str, problem: Problem, cap: float) -> tuple[Verdict, float]:
    """One verifier's verdict and its processor time."""
    verifier = current_plugins().verifiers.get(name)()
    bounders = current_plugins().all_bounders()
    started = time.process_time()
    context = Context(budget=CpuBudget(cap), bounders=bounders, check=checker(problem, single=True))
    outcome = verifier.run(problem, context)
    return outcome.verdict, time.process_time() - started


def survey(count: int, networks: int, cap: float, seed: int) -> int:
    """Print the shares for one number of open phases; gives how many answers contradict."""
    rng = np.random.default_rng((seed, count))
    asked, decided, contradictions = Counter[str](), Counter[str](), 0
    slowest = 0.0
    for _ in range(networks):
        for case in cases(rng, count):
            asked[case.kind] += 1
            verdict, seconds = ask("smt", case.problem, cap)
            decided[case.kind] += verdict.decided
            slowest = max(slowest, seconds)
            everybody = [("smt", verdict), *((n, ask(n, case.problem, cap)[0]) for n in OTHERS)]
            for name, said in everybody:
                if said.decided and said is not case.expected:
                    contradictions += 1
                    print(f"{count} open: {name} says {said} to {case.kind}")
    total, sure = sum(asked.values()), sum(decided.values())
    kinds = ", ".join(f"{kind} {decided[kind]}/{asked[kind]}" for kind in asked)
    share = 100 * sure / max(total, 1)
    print(
        f"{count} open: {sure}/{total} decided ({share:.0f} %): {kinds}; slowest {slowest:.1f} s", flush=True
    )
    return contradictions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--open", default="16,20,40")
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = [int(c) for c in options.open.split(",")]
    wrong = sum(survey(c, options.networks, options.cap, options.seed) for c in counts)
    print(f"{wrong} contradictions with milp, crown or the known truth")
    return 4 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
