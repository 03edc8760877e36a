"""Reads a certificate line by line and checks every step as it comes."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verifolio_check.bounds import Choice, Model
from verifolio_check.integers import Invalid, Unreadable
from verifolio_check.network import Network
from verifolio_check.tree import Walk, parse, slopes_of
from verifolio_check.vnnlib import Property, Region

FIRST = "verifolio certificate 1"
LONGEST_LINE, MOST_BYTES, MOST_BITS = 1 << 24, 1 << 34, 44
CLAIM = re.compile(r"(low|high) (\d{1,5}) (\d{1,8}) ([0-9A-Za-z]*)")


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a gzipped text, none longer than a bound."""
    try:
        total = 0
        with gzip.open(path, "rb") as file:
            while True:
                line = file.readline(LONGEST_LINE)
                total += len(line)
                if not line:
                    return
                if not line.endswith(b"\n") or total > MOST_BYTES:
                    raise Unreadable("certificate: a line or the whole is too long, or the end is missing")
                yield line[:-1].decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Unreadable(f"certificate: {error}") from error


def hash_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Unreadable(str(error)) from error


@dataclass
class Reader:
    """The lines of a certificate with one line of foresight."""

    lines: Iterator[str]
    line: str = ""
    number: int = 0

    def advance(self) -> str:
        """The line at hand; goes on to the next."""
        held = self.line
        self.number += 1
        self.line = next(self.lines, "")
        return held

    def expect(self, word: str) -> str:
        """What follows a word on the line at hand."""
        line = self.advance()
        if not line.startswith(word + " ") and line != word:
            raise Unreadable(f"certificate: line {self.number - 1}: expected {word}, got {line[:60]!r}")
        return line[len(word) + 1 :]

    def count(self, word: str, most: int) -> int:
        text = self.expect(word)
        if not re.fullmatch(r"\d{1,9}", text) or int(text) > most:
            raise Unreadable(
                f"certificate: line {self.number - 1}: expected {word} and a number up to {most}"
            )
        return int(text)

    def __iter__(self) -> Iterator[str]:
        while self.line:
            yield self.advance()


def check(network: Network, hashes: tuple[str, str], prop: Property, lines: Iterator[str]) -> None:
    """Returns if the lines prove that no input reaches the condition; Invalid names the first step that fails."""
    reader = Reader(lines)
    reader.advance()
    if reader.advance() != FIRST:
        raise Unreadable(f"certificate: the first line is not {FIRST!r}")
    for word, wanted in zip(("network", "property"), hashes, strict=True):
        if reader.expect(word) != wanted:
            raise Invalid(f"it is about another {word}")
    sizes = network.nodes[0].size, network.nodes[network.output].size
    if sizes != (prop.inputs, prop.outputs):
        raise Unreadable(
            f"the network has {sizes} inputs and outputs, the property {prop.inputs, prop.outputs}"
        )
    bits = reader.count("bits", MOST_BITS)
    for k, region in enumerate(prop.regions):
        if reader.count("region", len(prop.regions)) != k:
            raise Invalid(f"region {k} is missing")
        check_region(network, region, bits, reader)
    if reader.advance() != "end":
        raise Unreadable("certificate: the last line is not 'end'")


def check_region(network: Network, region: Region, bits: int, reader: Reader) -> None:
    model = Model(network, region, bits)
    while reader.line.startswith(("bounds ", "low ", "high ")):
        claim(model, reader)
    model.advance(len(network.nodes) - 1)
    left = set(range(len(region.disjuncts)))
    while reader.line.startswith("tree"):
        text = reader.expect("tree")
        if not re.fullmatch(r"\d{1,6}( \d{1,6})*", text):
            raise Unreadable(f"certificate: line {reader.number - 1}: expected the disjuncts of a tree")
        chosen = sorted({int(v) for v in text.split()})
        if chosen[-1] >= len(region.disjuncts):
            raise Unreadable(f"certificate: no disjunct {chosen[-1]}")
        tree = parse(iter(reader), model)
        Walk(model, tree, [region.disjuncts[d] for d in chosen]).run()
        left -= set(chosen)
    if left:
        raise Invalid(f"disjunct {min(left)} of a region has no tree")


def claim(model: Model, reader: Reader) -> None:
    """Intervals of the whole region: all neurons by the default rule, or single ends by stated slopes."""
    relus = model.network.relus
    if reader.line.startswith("bounds "):
        z = model.network.nodes[relus[reader.count("bounds", len(relus) - 1)]].parent
        model.advance(z)
        state = model.state()
        model.bound_neurons(state, z)
        model.keep(state, z)
        return
    number = reader.line.split(" ", 2)[1]
    rows: list[tuple[int, int, str]] = []
    while (found := CLAIM.fullmatch(reader.line)) and found.group(2) == number and len(rows) < 256:
        reader.advance()
        rows.append((1 if found.group(1) == "low" else -1, int(found.group(3)), found.group(4)))
    if not rows or int(number) >= len(relus):
        raise Unreadable(
            f"certificate: line {reader.number}: expected an end of a neuron, got {reader.line[:60]!r}"
        )
    z = model.network.nodes[relus[int(number)]].parent
    model.advance(z)
    if any(neuron >= model.network.nodes[z].size for _, neuron, _ in rows):
        raise Unreadable("certificate: no such neuron")
    state, before = model.state(), model.open(z - 1)
    for sign in (1, -1):
        part = [r for r in rows if r[0] == sign]
        if part:
            choice = stated([text for _, _, text in part], before)
            neurons = np.array([neuron for _, neuron, _ in part])
            model.bound_ends(state, z, np.zeros(len(part), np.intp), neurons, sign, choice)
    model.keep(state, z)


def stated(texts: list[str], before: list[tuple[int, np.ndarray]]) -> Choice:
    """Slopes per row, of the neurons of both signs before a node."""
    choice, first = Choice(), 0
    if any(len(t) != sum(len(at) for _, at in before) for t in texts):
        raise Unreadable(f"certificate: expected {sum(len(at) for _, at in before)} slopes of an end")
    table = np.stack([slopes_of(t) for t in texts])
    for z, at in before:
        choice.slopes[z] = (at, table[:, first : first + len(at)])
        first += len(at)
    return choice
