"""Every bad text gives one error that names the place, the expectation, the finding and the remedy."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest

from verifolio.vnnlib import VnnlibError, load, loads

HEAD = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n"
BOX = "(assert (<= X_0 1))\n(assert (>= X_0 0))\n"
V2 = "(vnnlib-version <2.0>)\n"
NET = V2 + "(declare-network N (declare-input X float32 [1, 2]) (declare-output Y float32 [2]))\n"


def failure(text: str) -> VnnlibError:
    with pytest.raises(VnnlibError) as caught:
        loads(text, "p.vnnlib")
    return caught.value


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", (1, 1), "an empty text"),
        (HEAD + "(assert (>= X_0 0))", (1, 1), "X_0 has no upper bound; every input needs both"),
        (HEAD + "(assert (<= X_0 0))", (1, 1), "X_0 has no lower bound; every input needs both"),
        (HEAD + BOX + "(assert (<= Y_7 0))", (5, 13), "expected a declared variable, got Y_7"),
        (HEAD + BOX + "(assert (<= Y_0 0)", (5, 1), "balance the parentheses"),
        (HEAD + BOX + "(assert (<= Y_0 0)))", (5, 20), "closes nothing"),
        (HEAD + "(declare-const X_0 Real)", (3, 1), "X_0 again"),
        (HEAD + "(declare-const X_2 Real)", (3, 1), "X_2 without X_1"),
        (HEAD + "(declare-const Z Real)", (3, 1), "X_<number> or Y_<number>"),
        (HEAD + "(declare-const X_1 Int)", (3, 1), "sort Real"),
        (HEAD + "(declare-const X_1)", (3, 1), "(declare-const X_0 Real)"),
        ("(declare-const X_0 Real)", (1, 1), "at least one output"),
        (HEAD + BOX + "(assert (<= Y_0 1.2.3))", (5, 17), "expected a number"),
        (HEAD + BOX + "(assert (<= Y_0 1e999))", (5, 17), "range of doubles"),
        (HEAD + BOX + "(assert (<= Y_0 1e99999999999))", (5, 17), "expected a number"),
        (HEAD + BOX + "(assert (<= Y_0 nan))", (5, 17), "a declared variable"),
        (HEAD + BOX + "(assert (<= (+ (* 0.123456789012345678901 Y_0) X_0) 0))", (5, 9), "too many digits"),
        (HEAD + BOX + "(assert (<= Y_0 (* 1e300 1e300)))", (5, 9), "range of doubles"),
        (HEAD + BOX + "(assert (Y_0 == 0))", (5, 14), "write '='"),
        (HEAD + BOX + "(assert (Y_0 < 0 1))", (5, 9), "and, or or a comparison"),
        (HEAD + BOX + "(assert (not (<= Y_0 0)))", (5, 9), "rewrite the formula with and, or"),
        (HEAD + BOX + "(assert (<= Y_0))", (5, 9), "at least 2 arguments"),
        (HEAD + BOX + "(assert (and))", (5, 9), "at least 1 argument"),
        (HEAD + BOX + "(assert (<= (/ Y_0 2) 1))", (5, 13), "only sums, differences and products"),
        (HEAD + BOX + "(assert Y_0)", (5, 9), "a formula in parentheses"),
        (HEAD + BOX + "(assert (<= Y_0 0) (<= Y_0 1))", (5, 1), "one formula after assert"),
        (HEAD + BOX + "(assert (== Y_0 0))", (5, 10), "write '='"),
        (HEAD + BOX + "(<= Y_0 0)", (5, 1), "wrap it in (assert ...)"),
        (HEAD + BOX + "hello", (5, 1), "'hello'"),
        (HEAD + BOX + '(assert (<= "a Y_0))', (5, 13), "remove or close it"),
        (HEAD + BOX + "(frobnicate)", (5, 2), "'frobnicate'"),
        ("(declare-network N)", (1, 2), "(vnnlib-version <2.0>)"),
        ("(vnnlib-version <3.0>)", (1, 1), "(vnnlib-version <2.0>)"),
        (V2, (1, 1), "declare-network after the version"),
        (V2 + "(assert (<= X[0] 1.0))", (2, 1), "declare-network before the first assertion"),
        (NET + "(declare-const X_0 Real)", (3, 1), "inside (declare-network ...)"),
        (NET + "(assert (<= X[0,2] 1.0))", (3, 13), "inside the shape [1, 2]"),
        (NET + "(assert (<= X[0] 1.0))", (3, 13), "2 indices for X"),
        (NET + "(assert (<= X 1.0))", (3, 13), "2 indices for X"),
        (NET + "(assert (<= X[0,-1] 1.0))", (3, 13), "2 indices for X"),
        (NET + "(assert (= X[0,0] 1.0))", (3, 10), "write '=='"),
        (NET + "(assert (<= X[0,0] X[0,1] 1.0))", (3, 9), "two terms after <="),
        (NET + "(assert (X[0,0] = Y[1]))", (3, 17), "write '=='"),
        (NET + NET.splitlines()[1], (3, 18), "N again"),
        (NET + "(assert (>= X[0,0] 1.0))", (2, 20), "a lower bound for X[0,1]"),
        (NET.replace("float32", "float33"), (2, 20), "Real or an ONNX element type"),
        (NET.replace("[2]", "[0]"), (2, 53), "positive extents"),
        (NET.replace("[2]", "[99999999, 99999999]"), (2, 53), "positive extents"),
        (NET.replace("float32", "int8") + "(assert (<= X[0,0] 1))", (3, 13), "X of type int8"),
        (NET.replace("N (", "N (equal-to M) ("), (2, 20), "a network declared before"),
    ],
)
def test_position_and_words(text: str, place: tuple[int, int], words: str) -> None:
    error = failure(text)
    assert words in str(error)
    assert (error.path, error.line, error.column) == ("p.vnnlib", *place)
    assert str(error) == (
        f"p.vnnlib:{place[0]}:{place[1]}: expected {error.expected}, got {error.got}; {error.remedy}"
    )


def test_twins_need_the_same_signature() -> None:
    other = "(declare-network M (equal-to N) (declare-input A float32 [3]) (declare-output B float32 [2]))"
    assert "same signature" in str(failure(NET + other))


def test_deep_nesting_is_refused_without_recursion() -> None:
    assert "nested parentheses" in str(failure(HEAD + "(" * 1_000_000))
    deep = "(assert " + "(and " * 100_000 + "(<= Y_0 1)" + ")" * 100_001
    assert "nested parentheses" in str(failure(HEAD + BOX + deep))


def test_exploding_disjunctions_are_refused() -> None:
    choice = "(or (<= Y_0 1) (<= Y_0 2))"
    assert "a disjunctive form of at most" in str(failure(HEAD + BOX + f"(assert (and {choice * 40}))"))
    assert "a disjunctive form of at most" in str(failure(HEAD + BOX + f"(assert {choice})" * 40))
    many = f"(assert (or {f'(and {choice * 15})' * 50}))"  # each fits, all together do not
    assert "a disjunctive form of at most" in str(failure(HEAD + BOX + many))


def test_implied_bounds_beyond_doubles_do_not_count() -> None:
    text = HEAD + BOX.replace("X_0 1)", "X_0 1e308)") + "(declare-const X_1 Real)(assert (>= X_1 0))"
    assert "X_1 has no upper bound" in str(failure(text + "(assert (<= X_1 (* 10 X_0)))"))


def test_hostile_products_are_refused() -> None:
    factors = "1e2000 1e-2000 " * 3000
    assert "bits" in str(failure(HEAD + BOX + f"(assert (<= (* {'1e-2000 ' * 3000} Y_0) 0))"))
    assert "expected a number" in str(failure(HEAD + BOX + f"(assert (<= (* {factors} Y_0) 0))"))


def test_bad_files(tmp_path: Path) -> None:
    good = gzip.compress((HEAD + BOX).encode() * 50)
    contents = {
        "cut.vnnlib.gz": (good[: len(good) // 2], "a complete gzip file"),
        "fake.vnnlib.gz": (b"(assert", "a complete gzip file"),
        "latin.vnnlib": (HEAD.encode() + b"; caf\xe9\n", "byte 0xe9; save the file as UTF-8"),
    }
    for name, (data, words) in contents.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(VnnlibError) as caught:
            load(path)
        assert words in str(caught.value)
        assert str(caught.value).startswith(str(path))
    with pytest.raises(VnnlibError, match="a readable file"):
        load(tmp_path / "absent.vnnlib")
    with pytest.raises(VnnlibError, match="a readable file"):
        load(tmp_path)


def test_errors_cross_process_borders() -> None:
    error = failure("(")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_a_comment_ends_with_its_line_whatever_ends_that() -> None:
    """A lone carriage return ends a line in SMT-LIB too; what follows it is no comment."""
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (and (>= X_0 0) (<= X_0 1)))"
    text += "(assert (or (<= Y_0 1.0) ; END (<= Y_0 2.0)\n))"
    read = [loads(text.replace("END", end), "p.vnnlib") for end in (" ", "\r", "\n")]
    assert [sum(len(case.disjuncts) for case in found.cases) for found in read] == [1, 2, 2]
