"""Assert the network once, then every disjunct on top of it, and read the rational point back."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import z3
from numpy.typing import NDArray

from verifolio.encode.exact_forms import (
    ExactNetwork,
    LinearForm,
    Neuron,
    Phase,
    Range,
    exact_network,
    row_form,
)
from verifolio.encode.known import chosen_bounder, known_bounds
from verifolio.encode.smtlib import number, term
from verifolio.model.answer import Outcome, Stats, Verdict
from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Bounds
from verifolio.plugin.verifier import Context
from verifolio.vnnlib import Rows

from .pieces import cut, open_phases
from .verifier import SmtOptions

Array = NDArray[np.float64]
POLL = 0.02  # seconds within which z3 is interrupted after a cancellation
QUICK = 10  # the largest tightness of a bounder that is asked about many pieces; that of CROWN without steps
CUTTING = 0.2  # share of the time that cutting may take: z3 needs the rest; a choice
# how much deeper than needed a witness is asked to lie, so that float32 does not push it out
DEPTHS = (Fraction(1, 100), Fraction(1, 10_000), Fraction(1, 1_000_000))


def decide(problem: Problem, context: Context, options: SmtOptions) -> Outcome:
    """SAT with a point that replays, UNSAT by exact arithmetic, or why neither."""
    if problem.domain.empty or not problem.disjuncts:
        return Outcome.proved(reason="no input or no condition to satisfy")
    bounder = chosen_bounder(problem, context, "smt", options.bounder)
    bounds = known_bounds(problem, context, bounder)
    count = open_phases(problem, bounds)
    if count > options.max_open:
        return _too_many_open(count, options)
    pieces: list[tuple[Problem, Bounds | None]] = [(problem, bounds)]
    if bounds is not None and bounder is not None and options.pieces > 1:
        quick = bounder if options.bounder else context.bounders.best(problem, QUICK) or bounder
        budget = context.budget.share(CUTTING * context.budget.remaining)
        pieces = [*cut(problem, bounds, quick, options.few, options.pieces, budget)]
    outcomes: list[Outcome] = []
    for piece in pieces:
        late = context.budget.expired()
        outcomes.append(_stopped(context, {}) if late else _decide_piece(*piece, context, options))
        if late or outcomes[-1].point is not None:
            break
    undecided = [o for o in outcomes if o.verdict is not Verdict.UNSAT]
    stats = dict(outcomes[0].stats) if outcomes else {}
    for outcome in undecided[:1]:
        stats |= outcome.stats
    stats |= {"open": max(count, int(stats.get("open", 0))), "pieces": len(pieces)}
    last = next(
        (o for o in undecided if o.point is not None), undecided[0] if undecided else Outcome.proved()
    )
    return replace(last, stats=stats)


def _decide_piece(problem: Problem, bounds: Bounds | None, context: Context, options: SmtOptions) -> Outcome:
    network = exact_network(problem.graph, input_ranges(problem.domain), bounds)
    if network.open_count > options.max_open:
        return _too_many_open(network.open_count, options)
    stats: dict[str, float | int | str] = {"open": network.open_count, "z3": z3.get_version_string()}
    with _watched(context) as (solver, ctx):
        session = _Session(problem, network, context, solver, ctx, stats)
        try:
            return session.run()
        except z3.Z3Exception as error:
            # an interrupt may also surface as an exception
            return (
                session.stopped()
                if context.budget.expired()
                else Outcome.unknown(f"z3: {error}", stats=stats)
            )


def _stopped(context: Context, stats: Stats) -> Outcome:
    late = context.budget.remaining <= 0
    verdict = Verdict.TIMEOUT if late else Verdict.CANCELLED
    return Outcome(verdict, reason="out of time" if late else "cancelled", stats=stats)


def _too_many_open(count: int, options: SmtOptions) -> Outcome:
    text = f"{count} ReLUs of unknown phase, more than max_open = {options.max_open}"
    return Outcome.unknown(text, stats={"open": count})


def input_ranges(domain: Domain) -> list[Range]:
    """The exact range of every input, ball included."""
    ranges: list[Range] = []
    for k, (low, high) in enumerate(zip(domain.lower.tolist(), domain.upper.tolist(), strict=True)):
        least = Fraction(low) if math.isfinite(low) else None
        most = Fraction(high) if math.isfinite(high) else None
        if domain.ball is not None:
            centre, radius = Fraction(float(domain.ball.centre[k])), Fraction(domain.ball.radius)
            least = centre - radius if least is None else max(least, centre - radius)
            most = centre + radius if most is None else min(most, centre + radius)
        ranges.append((least, most))
    return ranges


@contextmanager
def _watched(context: Context) -> Iterator[tuple[Any, Any]]:
    """A solver of its own z3 context, interrupted as soon as the budget is used up or cancelled."""
    ctx = z3.Context()
    solver = z3.SolverFor("QF_LRA", ctx=ctx)
    solver.set("random_seed", context.seed % 2**31)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL):
            if context.budget.expired():
                ctx.interrupt()

    thread = threading.Thread(target=watch, name="smt-watch", daemon=True)
    thread.start()
    try:
        yield solver, ctx
    finally:
        done.set()
        thread.join()


class _Session:
    """One network in one solver."""

    def __init__(
        self,
        problem: Problem,
        network: ExactNetwork,
        context: Context,
        solver: Any,
        ctx: Any,
        stats: dict[str, float | int | str],
    ) -> None:
        self.problem, self.network, self.context = problem, network, context
        self.solver, self.ctx, self.stats = solver, ctx, stats
        names = [f"X_{k}" for k in range(network.inputs)] + [f"R_{k}" for k in range(len(network.neurons))]
        self.declared = {name: z3.Real(name, ctx) for name in names}
        self.lines: list[str] = []
        self.switches = 0
        self.point: Array = np.zeros(network.inputs)
        self.phases: list[Any] = []

    def run(self) -> Outcome:
        self._assert_domain()
        for neuron in self.network.neurons:
            if self.context.budget.expired():
                return self.stopped()
            self._assert_neuron(neuron)
        self._send()
        reason = ""
        for d, rows in enumerate(self.problem.disjuncts):
            if self.context.budget.expired():
                return self.stopped()
            verdict = self._check(rows, Fraction(0))
            if verdict == z3.sat:
                point = self._witness(rows)
                if point is not None:
                    return Outcome.found(point, stats=self.stats)
                reason = (
                    f"disjunct {d} is satisfiable in exact arithmetic, but no float32 point near it replays"
                )
                self.stats["exact"] = "sat"
            elif verdict == z3.unknown:
                if self.context.budget.expired():
                    return self.stopped()
                reason = reason or f"z3 gave up: {self.solver.reason_unknown()}"
        return Outcome.unknown(reason, stats=self.stats) if reason else Outcome.proved(stats=self.stats)

    def stopped(self) -> Outcome:
        return _stopped(self.context, self.stats)

    def _check(self, rows: Rows, depth: Fraction) -> Any:
        """Check one disjunct, every row `depth` deeper than written; on sat the model is kept in `point`.

        The rows hold where a switch of their own is on, so that they do not bind later checks. `push` would solve
        all that is asserted so far and cannot be interrupted: it took minutes of a query of two seconds.
        """
        self.switches += 1
        switch = f"S_{self.switches}"
        self.lines.append(f"(declare-const {switch} Bool)")
        for row in rows.linear_rows():
            self._row(row_form(row.terms, self.network), row.rhs - depth, row.strict, switch)
        self._send()
        verdict = self.solver.check(z3.Bool(switch, self.ctx))
        if verdict == z3.sat:
            self._keep(self.solver.model())
        return verdict

    def _witness(self, rows: Rows) -> Array | None:
        """The float point nearest to the rational one, or one that lies deeper, if any replays."""
        if self.context.check(self.point):
            return self.point
        phases = self.phases
        for depth in DEPTHS:
            if self.context.budget.expired():
                return None
            if self._check(rows, depth) == z3.sat and self.context.check(self.point):
                return self.point
        return self.point if self._deepest(rows, phases) and self.context.check(self.point) else None

    def _deepest(self, rows: Rows, phases: list[Any]) -> bool:
        """The point of one linear region that satisfies all rows, the domain's too, by the most."""
        depth = z3.Real("DEPTH", self.ctx)
        inputs = self.problem.domain.rows
        forms = [(row_form(r.terms, self.network), r.rhs) for r in rows.linear_rows()]
        forms += [(LinearForm(r.terms), r.rhs) for r in inputs.linear_rows()] if inputs is not None else []
        for form, rhs in forms:
            left = f"(+ DEPTH {term(form, self.network)})"
            self.lines.append(f"(assert (<= {left} {number(rhs)}))")
        self.lines.append("(assert (<= DEPTH 1.0))")
        optimiser = z3.Optimize(ctx=self.ctx)
        declared = self.declared | {"DEPTH": depth}
        optimiser.add(self.solver.assertions(), *phases)
        optimiser.add(z3.parse_smt2_string("\n".join(self.lines), decls=declared, ctx=self.ctx))
        self.lines = []
        optimiser.maximize(depth)
        if optimiser.check() != z3.sat:
            return False
        self.point = self._read(optimiser.model())
        return True

    def _keep(self, model: Any) -> None:
        """Remember the model's inputs and the phases it chose."""
        self.point, self.phases = self._read(model), []
        for neuron in self.network.neurons:
            if neuron.phase is Phase.OPEN:
                on = z3.Bool(f"B_{neuron.variable - self.network.inputs}", self.ctx)
                chosen = z3.is_true(model.eval(on, model_completion=True))
                self.phases.append(on if chosen else z3.Not(on))

    def _read(self, model: Any) -> Array:
        names = [f"X_{k}" for k in range(self.network.inputs)]
        values = [model.eval(self.declared[name], model_completion=True) for name in names]
        fractions = [Fraction(v.numerator_as_long(), v.denominator_as_long()) for v in values]
        return np.array([float(f) for f in fractions])

    def _assert_domain(self) -> None:
        domain = self.problem.domain
        for k, (low, high) in enumerate(input_ranges(domain)):
            self._range(f"X_{k}", low, high)
        if domain.rows is not None:
            for row in domain.rows.linear_rows():
                self._row(LinearForm(row.terms), row.rhs, row.strict)
        if domain.ball is not None and domain.ball.norm == 1:
            self._assert_l1(domain.ball.centre.tolist(), domain.ball.radius)

    def _assert_l1(self, centre: list[float], radius: float) -> None:
        for k, c in enumerate(centre):
            gap = f"(- X_{k} {number(Fraction(c))})"
            self.lines.append(f"(declare-const D_{k} Real)")
            self.lines += [f"(assert (>= D_{k} {gap}))", f"(assert (>= D_{k} (- {gap})))"]
        total = " ".join(f"D_{k}" for k in range(len(centre)))
        self.lines.append(f"(assert (<= (+ 0.0 {total}) {number(Fraction(radius))}))")

    def _assert_neuron(self, neuron: Neuron) -> None:
        """r = relu(a): r >= 0, r >= a, and r <= a or r <= 0 as the phase says."""
        k = neuron.variable - self.network.inputs
        out, form = f"R_{k}", term(neuron.form, self.network)
        low, high = neuron.reach
        if neuron.phase is Phase.ACTIVE:
            self.lines.append(f"(assert (= {out} {form}))")
            self._range(out, low, high)
            return
        self.lines += [f"(declare-const A_{k} Real)", f"(assert (= A_{k} {form}))"]
        self.lines += [f"(assert (>= {out} 0.0))", f"(assert (>= {out} A_{k}))"]
        self.lines += [f"(declare-const B_{k} Bool)", f"(assert (=> B_{k} (<= {out} A_{k})))"]
        self.lines.append(f"(assert (=> (not B_{k}) (<= {out} 0.0)))")
        if high is not None:
            self.lines.append(f"(assert (<= {out} {number(max(high, Fraction(0)))}))")
        if low is not None and high is not None and low < 0 < high:
            # the upper side of the triangle: implied, but it spares the search many branches
            slope = number(high / (high - low))
            self.lines.append(f"(assert (<= {out} (* {slope} (- A_{k} {number(low)}))))")

    def _range(self, name: str, low: Fraction | None, high: Fraction | None) -> None:
        if low is not None:
            self.lines.append(f"(assert (>= {name} {number(low)}))")
        if high is not None:
            self.lines.append(f"(assert (<= {name} {number(high)}))")

    def _row(self, form: LinearForm, rhs: Fraction, strict: bool, switch: str = "true") -> None:
        row = f"({'<' if strict else '<='} {term(form, self.network)} {number(rhs)})"
        self.lines.append(f"(assert (=> {switch} {row}))")

    def _send(self) -> None:
        """Hand the collected text to the solver: parsing is far quicker than building terms one by one."""
        self.solver.add(z3.parse_smt2_string("\n".join(self.lines), decls=self.declared, ctx=self.ctx))
        self.lines = []
