"""Mutated texts: an error of ours or an answer, never another exception, never a hang."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from verifolio.vnnlib import Specification, VnnlibError, loads, normalise, parse_text, write

Same = Callable[[Specification, Specification], None]
SEEDS = [
    """; one box, two disjuncts
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-fun Y_1 () Real)
(assert (<= X_0 0.5))
(assert (>= X_0 -1.5e-1))
(assert (and (<= 0 X_1 1) (>= (* 2 X_1) (- 3))))
(assert (or (and (<= Y_0 Y_1) (>= X_0 0.1)) (and (< (+ Y_0 (* 0.1 X_1)) 3) (= Y_1 0))))
""",
    """(vnnlib-version <2.0>)
(declare-network f (declare-input A float32 [1, 2]) (declare-hidden H real [3] "h")
    (declare-output B float32 [2]))
(declare-network g (equal-to f) (declare-input C float32 [1, 2]) (declare-output D float32 [2]))
(assert (and (<= A[0,0] 1.0) (>= A[0,0] -1.0) (== A [0, 1] 0.25)))
(assert (== C[0,0] A[0,0])) (assert (== C[0,1] (- A[0,1] 1.0)))
(assert (or (!= B[0] D[0]) (> (* 2.0 B[1]) (+ D[1] 0.5))))
""",
    """(vnnlib-version <2.0>)
(declare-network f (declare-input A float32 [2]) (declare-hidden H real [3] "h")
    (declare-output B float32 [2]))
(assert (and (<= A[0] 1.0) (>= A[0] -1.0) (== A [1] 0.25)))
(assert (or (<= (* (+ A[0] H[1]) (- B[0] 0.5)) (* B[1] B[1] 3.0)) (B[0] < (* A[1] H[0]))))
(assert (>= (* A[0] A[1]) -2.0))
""",
]
PIECES = [
    *"()[]<>=;\"'\\\0\n -+*.,09eEXY_",
    "(assert ",
    "(or ",
    "(and ",
    "(<= ",
    "(* ",
    "X_0",
    "Y_1",
    "A[0,0]",
    "1e308",
    "-0",
    "1e-400",
    "inf",
    "nan",
    "é",
    "\u2028",
    "((((((((",
    "))))))))",
    "<2.0>",
    "declare-const",
    "99999999999999999999",
]


def mutate(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 0, 1, 1, 2, 8, 30]))
        piece = rng.choice(PIECES)
        if rng.random() < 0.3:
            other = rng.randrange(len(text) + 1)
            piece = text[other : other + rng.randint(1, 40)]
        text = text[:start] + piece + text[end:]
    return text


def attack(count: int, seed: int, assert_same: Same) -> int:
    rng = random.Random(seed)
    accepted = 0
    for _ in range(count):
        text = mutate(rng, rng.choice(SEEDS))
        start = time.perf_counter()
        try:
            document = parse_text(text)
            specification = normalise(document)
            written = [write(document), write(specification)]
            accepted += 1
        except VnnlibError as error:
            assert error.expected and error.got and error.remedy, text
            continue
        for again in written:
            assert_same(specification, loads(again))
        assert time.perf_counter() - start < 5, text
    return accepted


def test_seeds_are_valid() -> None:
    for seed in SEEDS:
        normalise(parse_text(seed))


def test_mutations(assert_same: Same) -> None:
    assert 0 < attack(1500, 1, assert_same) < 1500


@pytest.mark.slow
def test_ten_thousand_mutations(assert_same: Same) -> None:
    assert attack(10_000, 2, assert_same)
