"""Standard and Lipschitz robustness: outputs stay close to those of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from verifolio.errors import InputError
from verifolio.model.answer import Answer, Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values_at import double_outputs
from verifolio.plugin.options import described
from verifolio.plugin.property import Array, Asking, Growth, Reference
from verifolio.properties.formula import X0, Y0, Formula, FormulaProperty, X, Y, largest, norm, term
from verifolio.properties.verdict import judged

MAX_CANDIDATES = 4  # rows; each may cost a judgement per length, and the steepest fail first
THINNEST = 1.001  # outer by inner radius of a shell
BELOW = 1 - 1e-12  # covers the rounding of a shell's box, and of a distance
LENGTHS = 6  # of moves, each four times the last: from the affine radius to a thousand times it


@dataclass(frozen=True)
class StandardOptions:
    """Options of `standard`."""

    delta: float = described(10.0, "How far any output may move.")

    def __post_init__(self) -> None:
        if not self.delta >= 0:
            raise InputError("option delta", "a number, not negative", repr(self.delta))


class Standard(FormulaProperty):
    """No output moves by more than delta from the reference's (SR of Casadio et al. 2022)."""

    name: ClassVar[str] = "standard"
    Options: ClassVar[type] = StandardOptions
    needs_outputs: ClassVar[bool] = True

    def formula(self) -> Formula:
        return norm(Y - Y0) <= term(self.options.delta)


@dataclass(frozen=True)
class LipschitzOptions:
    """Options of `lipschitz`."""

    constant: float = described(10.0, "The Lipschitz constant L.")
    tolerance: float = described(1e-4, "The radius used where the reference sits on a kink of the network.")

    def __post_init__(self) -> None:
        if not self.constant > 0 or not self.tolerance > 0:
            got = f"{self.constant} and {self.tolerance}"
            raise InputError("options constant, tolerance", "positive numbers", got)


class Lipschitz(FormulaProperty):
    """No output moves more than L times as far as the input did (LR of Casadio et al. 2022).

    Both distances are in the maximum norm, whatever the norm of the ball. At the reference itself both sides are
    0, so a query that asks for violations everywhere cannot be refuted by any relaxation. Let r0 be a distance
    within which the network is affine and everything lies inside the ball and the box, apart from the faces that
    x0 itself lies on. A violation closer than r0 can be stretched along its ray to distance r0, where it is still
    one. So |f(x) - f(x0)| <= L max(|x - x0|, r0) says the same as the property and is free of the tie. Only where
    x0 lies on a kink is r0 the `tolerance`, and violations that stay below L * tolerance are not seen.
    """

    name: ClassVar[str] = "lipschitz"
    Options: ClassVar[type] = LipschitzOptions
    needs_outputs: ClassVar[bool] = True
    growth = Growth.MONOTONE  # r0 shrinks with the radius

    def formula(self) -> Formula:
        return norm(Y - Y0) <= term(self.options.constant) * norm(X - X0)

    def query(self, networks: Sequence[Network], reference: Reference) -> Query:
        radius, exact = self.centre(networks, reference)
        formula = norm(Y - Y0) <= term(self.options.constant) * largest(norm(X - X0), radius)
        query = self.query_for(networks, reference, formula)
        around = f"{'affine within' if exact else 'tolerance'} {radius:.6g}"
        return replace(query, labels=query.labels | {"centre": around})

    def candidates(self, networks: Sequence[Network], reference: Reference) -> list[Array]:
        """The steepest corners: where a row of the Jacobian has a sum of sizes above L, it is violated."""
        x = np.asarray(reference.x, np.float64).ravel()
        lower, upper = self.region(reference)
        radius, _ = self.centre(networks, reference)
        slopes = np.concatenate([slope for _, slope in pieces(networks, x)])
        signs = np.concatenate([np.sign(slopes), -np.sign(slopes)])
        free = np.where(signs > 0, upper > x, lower < x)  # at the edge of the legal range one way is closed
        steep = (np.abs(np.tile(slopes, (2, 1))) * free).sum(axis=1)
        order = [k for k in np.argsort(-steep)[:MAX_CANDIDATES] if steep[k] > self.options.constant]
        reach = corner_reach(reference, x, lower, upper)
        lengths = [min(radius * 4.0**k, reach) for k in range(LENGTHS)]
        return [np.clip(x + r * signs[k], lower, upper) for k in order for r in dict.fromkeys(lengths)]

    def candidate_query(self, networks: Sequence[Network], reference: Reference, x: Array) -> Query:
        """Around a candidate's distance r, a move by more than L r within r violates: a single row, not thousands."""
        known = reference.with_outputs(networks)
        far = float(np.abs(x - np.asarray(known.x, np.float64).ravel()).max()) * (1 + 1e-6)
        y = np.concatenate(networks[0].compute(double_outputs, tuple(networks), x))
        moved = y - np.asarray(known.outputs, np.float64)
        k = int(np.abs(moved).argmax())
        change = (Y - Y0)[k] if moved[k] > 0 else -(Y - Y0)[k]
        limit = term(self.options.constant) * term(far * (1 + 1e-9))  # the box is rounded outward
        return self.query_for(networks, known.within(far), change <= limit)

    def settle(self, networks: Sequence[Network], reference: Reference) -> Asking[Answer | None]:
        """Shell by shell: outputs that move by at most L a within distance b break nothing between a and b.

        Within r0 (see above) a = b = r0 is exact. A shell that fails is halved, unless the point that it fails
        at is a violation; shells that get too thin, and other norms, are left to the one query.
        """
        radius, exact = self.centre(networks, reference)
        x = np.asarray(reference.x, np.float64).ravel()
        lower, upper = self.region(reference)
        reach = corner_reach(reference, x, lower, upper)
        radius = min(radius, reach)
        if not exact or not np.isinf(reference.norm) or radius == 0:
            return None
        known, seconds = reference.with_outputs(networks), 0.0
        shells = [(radius, reach)] * (radius < reach) + [(radius, radius)]
        while shells:
            a, b = shells.pop()
            limit = term(self.options.constant) * term(a * BELOW)
            answer = yield self.query_for(networks, known.within(b), norm(Y - Y0) <= limit)
            seconds += answer.seconds
            if answer.verdict is Verdict.UNSAT:
                continue
            if answer.witness is None:
                return None
            point = answer.witness.x.astype(np.float64)
            witness = judged(self.candidate_query(networks, known, point), point)
            if isinstance(witness, Witness):
                flags = witness.flags
                return Answer(Verdict.SAT, answer.verifier, witness=witness, flags=flags, seconds=seconds)
            if b <= THINNEST * a:
                return None
            middle = float(np.sqrt(a * b))
            shells += [(middle, b), (a, middle)]
        return Answer(Verdict.UNSAT, "shells", seconds=seconds)

    def centre(self, networks: Sequence[Network], reference: Reference) -> tuple[float, bool]:
        """The distance r0, and whether the split at it is exact."""
        x = np.asarray(reference.x, np.float64).ravel()
        lower, upper = self.region(reference)
        room = np.concatenate([x - lower, upper - x])
        faces = float(room[room > 0].min(initial=np.inf))
        reach = corner_reach(reference, x, lower, upper)
        faces = min(faces, reach) if reach > 0 else faces
        found = min([faces, *(radius for radius, _ in pieces(networks, x))])
        limit = min(self.options.tolerance, reference.epsilon)
        return (found, True) if 0 < found < np.inf else (limit, not np.isfinite(found))


def pieces(networks: Sequence[Network], x: Array) -> list[tuple[float, Array]]:
    """The affine piece of each network around a point, computed where the networks are."""
    from verifolio.plugins.properties.affine import affine_pieces

    return networks[0].compute(affine_pieces, tuple(networks), x)


def corner_reach(reference: Reference, x: Array, lower: Array, upper: Array) -> float:
    """How far every input can move at once: radius / n^(1/p) for n inputs that can move, all the way in a box."""
    ball = reference.ball
    if ball is None:
        far = max((x - lower).max(initial=0.0), (upper - x).max(initial=0.0))
        return float(np.nextafter(far, np.inf)) if far > 0 else 0.0
    free = max(1, int((upper > lower).sum()))
    return float(ball.radius / free ** (1 / ball.norm)) * BELOW
