"""The whole game in linear real arithmetic with if-then-else, as the paper's SMT encoding, solved by z3."""

from __future__ import annotations

from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np

from verifolio.encode.exact_forms import ExactNetwork, LinearForm, exact_network
from verifolio.errors import InputError, UnknownPlugin
from verifolio.model.joint import shared_product

from .attack import AttackResult, DeterministicAttack, GameVerdict, Method, realised_value
from .monolith import Array, no_attack, replayed, without_attack
from .spot import Spot
from .survey import Survey


def solve_smt(survey: Survey, alpha: Fraction | None, attacks: int, seconds: float) -> AttackResult:
    """Find attacks that reach alpha, or prove in exact arithmetic that so few attacks cannot."""
    if alpha is None:
        raise InputError("method smt", "--alpha", "none", "give one, or use decomposition")
    if find_spec("z3") is None:
        raise UnknownPlugin("method smt needs z3; pip install z3-solver")
    import z3

    model = _Model(survey, attacks, z3)
    model.demand(alpha)
    model.solver.set("timeout", max(1, int(min(seconds, 4e6) * 1000)))
    said = model.solver.check()
    stats: dict[str, Any] = {"attacks": attacks, "z3": z3.get_version_string()}
    if said == z3.unsat:
        return refuted(survey, alpha, attacks, stats)
    if said == z3.unknown:
        why = f"z3 gave up: {model.solver.reason_unknown()}"
        return no_attack(survey, Method.SMT, why, stats)
    found = model.read()
    count = len(survey.networks)
    value = realised_value(found, count)
    reached = value >= alpha
    verdict = GameVerdict.NOT_ROBUST if reached else GameVerdict.UNKNOWN
    reason = "" if reached else "an exact attack exists, but its float32 points do not replay to alpha"
    weights = tuple(Fraction(1, count) for _ in range(count))
    return AttackResult(Method.SMT, verdict, value, Fraction(1), tuple(found), weights, reason, 0.0, stats)


def refuted(survey: Survey, alpha: Fraction, attacks: int, stats: dict[str, Any]) -> AttackResult:
    """No attack of this size reaches alpha: a proof if as many attacks as networks, or one for alpha = 1."""
    if attacks >= len(survey.networks) or alpha == 1:
        return without_attack(survey, Method.SMT, GameVerdict.ROBUST, alpha, "in exact arithmetic", stats)
    size = f"no randomized attack with {attacks} deterministic ones reaches alpha"
    return no_attack(survey, Method.SMT, f"{size}, but {len(survey.networks)} may be needed", stats)


class _Model:
    """Variables x_ij, p_i and the losses as Boolean terms."""

    def __init__(self, survey: Survey, attacks: int, z3: Any) -> None:
        self.survey, self.z3, self.attacks = survey, z3, attacks
        self.solver = z3.SolverFor("QF_LRA")
        self.graph = shared_product(tuple(n.graph for n in survey.networks))
        self.probability = [z3.Real(f"p{i}") for i in range(attacks)]
        self.solver.add(z3.Sum(self.probability) == 1, *(p >= 0 for p in self.probability))
        self.points: dict[tuple[int, int], list[Any]] = {}
        self.losses: list[list[Any]] = [[] for _ in survey.networks]
        for i in range(attacks):
            for j, spot in enumerate(survey.spots):
                self._add(i, j, spot)

    def number(self, value: Fraction) -> Any:
        return self.z3.Q(value.numerator, value.denominator)

    def _add(self, i: int, j: int, spot: Spot) -> None:
        z3 = self.z3
        x = [z3.Real(f"x{i}_{j}_{k}") for k in range(self.graph.input_size)]
        self.points[i, j] = x
        for v, low, high in zip(x, spot.lower.tolist(), spot.upper.tolist(), strict=True):
            self.solver.add(v >= self.number(Fraction(low)), v <= self.number(Fraction(high)))
        if spot.ball is not None:
            self._ball(x, spot)
        ranges = [
            (Fraction(a), Fraction(b)) for a, b in zip(spot.lower.tolist(), spot.upper.tolist(), strict=True)
        ]
        network = exact_network(self.graph, ranges)
        values = [*x, *([None] * len(network.neurons))]
        for neuron in network.neurons:
            value = self._term(neuron.form, values)
            relu = z3.Real(f"r{i}_{j}_{neuron.variable}")
            self.solver.add(relu == z3.If(value >= 0, value, self.number(Fraction(0))))
            values[neuron.variable] = relu
        self._add_losses(i, spot, network, values)

    def _add_losses(self, i: int, spot: Spot, network: ExactNetwork, values: list[Any]) -> None:
        z3, first, label = self.z3, 0, spot.reference.label
        for c, member in enumerate(self.survey.networks):
            outputs = [self._term(f, values) for f in network.outputs[first : first + member.output_size]]
            wrong = z3.Or([y >= outputs[label] for k, y in enumerate(outputs) if k != label])
            self.losses[c].append(z3.If(wrong, self.probability[i], self.number(Fraction(0))))
            first += member.output_size

    def _ball(self, x: list[Any], spot: Spot) -> None:
        if spot.reference.norm != 1:
            raise InputError("method smt", "norm l1 or linf", "an L2 ball", "it is not linear")
        z3, sizes = self.z3, []
        for v, centre in zip(x, spot.reference.x.tolist(), strict=True):
            gap = v - self.number(Fraction(centre))
            sizes.append(z3.If(gap >= 0, gap, -gap))
        self.solver.add(z3.Sum(sizes) <= self.number(Fraction(spot.reference.epsilon)))

    def _term(self, form: LinearForm, values: list[Any]) -> Any:
        parts = [self.number(c) * values[v] for v, c in form.terms]
        return self.z3.Sum([self.number(form.constant), *parts]) if parts else self.number(form.constant)

    def demand(self, alpha: Fraction) -> None:
        for losses in self.losses:
            self.solver.add(self.z3.Sum(losses) >= self.number(alpha * len(self.survey.spots)))

    def read(self) -> list[DeterministicAttack]:
        """The model's attacks, replayed."""
        model, places = self.solver.model(), range(len(self.survey.spots))
        chances = [self._value(model, p) for p in self.probability]
        moved = [[self._point(model, i, j) for j in places] for i in range(self.attacks)]
        return replayed(self.survey, chances, moved)

    def _point(self, model: Any, i: int, j: int) -> Array:
        return np.array([float(self._value(model, v)) for v in self.points[i, j]])

    def _value(self, model: Any, variable: Any) -> Fraction:
        value = model.eval(variable, model_completion=True)
        return Fraction(value.numerator_as_long(), value.denominator_as_long())
