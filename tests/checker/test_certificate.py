"""Certificates are accepted if they prove their claim, and never where a counterexample exists."""

from __future__ import annotations

import gzip
import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifolio.certificates.writer import write
from verifolio_check.main import INVALID, UNREADABLE, VALID, run

from .networks import Layer, exact, property_text, random_layers, save

WHOLE = {"dimension": [-1], "left": [-1], "right": [-1], "cut": [0.0]}


class Case:
    """A network, the exact values of its outputs at many points, and a property that a margin makes true or false."""

    def __init__(self, folder: Path, seed: int, kind: str = "plain") -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.sizes = [2, *self.rng.integers(3, 9, size=2).tolist(), 2]
        self.layers: list[Layer] = random_layers(self.rng, self.sizes, kind)
        self.network = save(folder / "n.onnx", self.layers)
        grid = [[Fraction(i, 16) for i in pair] for pair in np.ndindex(17, 17)]
        values = [exact(self.layers, x) for x in grid]
        self.least = min(y[0] - y[1] for y in values)
        self.minimiser = grid[[y[0] - y[1] for y in values].index(self.least)]
        self.spread = max(y[0] - y[1] for y in values) - self.least

    def claim(self, limit: Fraction) -> Path:
        """y_0 - y_1 <= limit is impossible: true if limit is well below the least value, false from there on."""
        path = self.folder / "p.vnnlib"
        path.write_text(property_text([0, 0], [1, 1], 2, f"(<= (- Y_0 Y_1) {decimal(limit)})"))
        return path

    def certificate(self, prop: Path) -> Path:
        """Written without a search: the writer splits until the checker's bounds suffice."""
        trace: dict[str, Any] = {name: np.array(value) for name, value in WHOLE.items()}
        (self.folder / "traces").mkdir(exist_ok=True)
        np.savez(self.folder / "traces" / "t.npz", lower=np.zeros(2), upper=np.ones(2), **trace)
        target = self.folder / "c.gz"
        assert write(self.network, prop, self.folder / "traces", target, 60.0) == str(target)
        return target


def decimal(value: Fraction) -> str:
    """A decimal not above a fraction, by less than 1e-40."""
    whole = int((value * 10**40).__floor__())
    sign, digits = ("-" if whole < 0 else ""), str(abs(whole)).rjust(41, "0")
    return f"{sign}{digits[:-40]}.{digits[-40:]}"


def lines_of(path: Path) -> list[str]:
    with gzip.open(path, "rt") as file:
        return file.read().split("\n")[:-1]


def pack(path: Path, lines: list[str]) -> Path:
    with gzip.open(path, "wt") as file:
        file.write("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path, 5)


def test_a_written_certificate_is_valid(case: Case) -> None:
    prop = case.claim(case.least - case.spread / 20)
    target = case.certificate(prop)
    assert run(case.network, prop, target) == (VALID, "valid")
    assert any("/" in line for line in lines_of(target)), "the claim needs splits"


def test_another_network_or_property_is_not_valid(case: Case, tmp_path: Path) -> None:
    prop = case.claim(case.least - case.spread / 20)
    target = case.certificate(prop)
    other = save(tmp_path / "other.onnx", random_layers(case.rng, case.sizes))
    assert run(other, prop, target) == (INVALID, "not valid: it is about another network")
    elsewhere = tmp_path / "q.vnnlib"
    elsewhere.write_text(prop.read_text() + "\n")
    assert run(case.network, elsewhere, target) == (INVALID, "not valid: it is about another property")


def forged(case: Case, prop: Path, lines: list[str]) -> int:
    """The verdict on lines whose hashes are those of the files at hand."""
    held = list(lines)
    for k, path in ((1, case.network), (2, prop)):
        held[k] = f"{held[k].split()[0]} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    code, line = run(case.network, prop, pack(case.folder / "forged.gz", held))
    assert code in (VALID, INVALID, UNREADABLE) and "\n" not in line
    return code


def mutate(rng: np.random.Generator, lines: list[str]) -> list[str]:
    """Some change of a certificate."""
    lines = list(lines)
    k = int(rng.integers(3, len(lines)))
    line = lines[k]
    kind = rng.integers(9)
    if kind == 0:
        del lines[k]
    elif kind == 1:
        lines.insert(k, line)
    elif kind == 2:
        lines = lines[:k]
    elif kind == 3:
        lines[k] = line.replace("*.", "", 1)  # a dropped leaf
    elif kind == 4:
        lines[k] = line.replace("*.", "*.*.", 1)  # a duplicated leaf
    elif kind == 5:
        lines[k] = line.replace("0@", "1@", 1).replace("p", "p-", 1)  # another input, a huge cut
    elif kind == 6:
        lines[k] = line.replace("@", "@-9", 2)
    elif kind == 7:
        lines[k] = line.replace("*.", f"[a{'z' * int(rng.integers(20))};m{10**8}].", 1)
    else:
        place = int(rng.integers(max(len(line), 1)))
        lines[k] = line[:place] + str(rng.choice(list("0123456789*!./@p[]rabm;,- "))) + line[place + 1 :]
    return lines


def examine_false_claims(folder: Path, seed: int, count: int, kind: str = "plain") -> None:
    """Nothing proves that a value is not attained which a point attains exactly."""
    case = Case(folder, seed, kind)
    honest = lines_of(case.certificate(case.claim(case.least - case.spread / 10)))
    prop = case.claim(case.least + Fraction(1, 10**30))
    assert exact_margin(case) <= case.least + Fraction(1, 10**30) - Fraction(1, 10**40)
    assert forged(case, prop, honest) != VALID
    for _ in range(count):
        assert forged(case, prop, mutate(case.rng, honest)) != VALID


def exact_margin(case: Case) -> Fraction:
    y = exact(case.layers, case.minimiser)
    return y[0] - y[1]


@pytest.mark.parametrize("seed", range(4))
def test_false_claims_are_never_accepted(tmp_path: Path, seed: int) -> None:
    examine_false_claims(tmp_path, seed, 40, ["plain", "cancelling"][seed % 2])


@pytest.mark.slow
def test_thousands_of_false_claims_are_never_accepted(tmp_path: Path) -> None:
    for seed in range(100):
        (tmp_path / str(seed)).mkdir()
        examine_false_claims(tmp_path / str(seed), seed, 50, ["plain", "cancelling"][seed % 2])


@pytest.mark.parametrize("seed", range(2))
def test_mutations_of_a_true_claim_end_with_a_verdict(tmp_path: Path, seed: int) -> None:
    """The claim is true, so either answer is right; what counts is that there is one, in one line."""
    case = Case(tmp_path, seed)
    prop = case.claim(case.least - case.spread / 10)
    honest = lines_of(case.certificate(prop))
    codes = [forged(case, prop, mutate(case.rng, honest)) for _ in range(60)]
    assert codes.count(VALID) < len(codes) and INVALID in codes and UNREADABLE in codes


def test_a_part_of_the_input_set_is_no_proof(case: Case) -> None:
    """A leaf is dropped and its brother takes its place: the tree is whole, the cover is not."""
    prop = case.claim(case.least - case.spread / 20)
    honest = lines_of(case.certificate(prop))
    start = next(k for k, line in enumerate(honest) if line.startswith("tree"))
    assert forged(case, prop, [*honest[: start + 1], "*.", "end"]) == INVALID


def test_ties_are_told_apart(tmp_path: Path) -> None:
    """relu(x) < 0 is impossible, relu(x) <= 0 is not."""
    one = np.ones((1, 1), np.float32)
    net = save(tmp_path / "n.onnx", [(one, np.zeros(1, np.float32)), (one, np.zeros(1, np.float32))])
    for condition, wanted in (("(< Y_0 0.0)", VALID), ("(<= Y_0 0.0)", INVALID)):
        prop = tmp_path / "p.vnnlib"
        prop.write_text(property_text([-1], [1], 1, condition))
        hashes = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (net, prop)]
        lines = ["verifolio certificate 2", f"network {hashes[0]}", f"property {hashes[1]}", "bits 26"]
        lines += ["region 0", "tree 0", "*.", "end"]
        assert run(net, prop, pack(tmp_path / "c.gz", lines))[0] == wanted


@pytest.mark.parametrize("damage", ["", "short", "text", "long line", "bomb", "deep", "missing"])
def test_hostile_files_are_unreadable(case: Case, damage: str) -> None:
    prop = case.claim(case.least - case.spread / 20)
    target = case.certificate(prop)
    honest, data = lines_of(target), target.read_bytes()
    start = next(k for k, line in enumerate(honest) if line.startswith("tree"))
    if damage == "missing":
        target.unlink()
    elif damage == "long line":
        pack(target, [*honest[:5], "x" * (1 << 25)])
    elif damage == "bomb":
        pack(target, [*honest[: start + 1], *["*" * (1 << 20)] * 200])
    elif damage == "deep":
        pack(target, [*honest[: start + 1], "0/" * 5000])
    else:
        target.write_bytes({"": b"", "short": data[: len(data) // 2], "text": b"valid"}[damage])
    code, line = run(case.network, prop, target)
    assert code == UNREADABLE and line.startswith("unreadable") and "\n" not in line
