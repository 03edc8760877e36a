"""Documents to specifications: exact cases, one per distinct input region."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from verifolio.vnnlib.case import Case, case_of_exact
from verifolio.vnnlib.derive import derive_bounds
from verifolio.vnnlib.dnf import Expander, contradictory, is_input
from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.exact import Exact, ExactNumbers
from verifolio.vnnlib.linear import Clause, Constraint, Linearizer, Monomial
from verifolio.vnnlib.parse import collection_paused, parse, parse_text
from verifolio.vnnlib.rows import TRUE, LinearRow, Rows, pack_all, pack_rows
from verifolio.vnnlib.specification import Specification
from verifolio.vnnlib.symbols import Symbols
from verifolio.vnnlib.tree import Document

MAX_BOX_NUMBERS = 50_000_000


def load(path: Path | str) -> Specification:
    """Parse and normalise a file, gzipped or not."""
    return normalise(parse(path))


def loads(text: str, name: str = "<text>") -> Specification:
    """Parse and normalise a text; `name` is what errors show."""
    return normalise(parse_text(text, name))


def normalise(document: Document) -> Specification:
    """The normal form of a document."""
    with collection_paused():
        symbols = Symbols(document)
        normaliser = _Normaliser(document, symbols)
        cases = tuple(normaliser.cases())
    return Specification(
        document.version,
        symbols.input_size,
        symbols.output_size,
        cases,
        symbols.networks,
        document.source.sha256,
        normaliser.monomials,
        document.warnings,
    )


@dataclass
class _Region:
    """Bounds and rows over inputs, gathered constraint by constraint."""

    lower: dict[int, Exact] = field(default_factory=dict)
    upper: dict[int, Exact] = field(default_factory=dict)
    rows: dict[LinearRow, None] = field(default_factory=dict)

    def add(self, constraints: Iterable[Constraint], base: _Region | None = None) -> None:
        """Intersect; bounds that a base region implies already are left out."""
        for constraint in constraints:
            if isinstance(constraint, LinearRow):
                self.rows[constraint] = None
                continue
            column, upper, value, strict = constraint
            bounds = self.upper if upper else self.lower
            known = bounds.get(column)
            if known is None and base is not None:
                known = (base.upper if upper else base.lower).get(column)
            if known is None or (value < known if upper else value > known):
                bounds[column] = value
            if strict:
                sign = Fraction(1 if upper else -1)
                self.rows[LinearRow(((column, sign),), sign * Fraction(value), True)] = None

    @property
    def key(self) -> tuple[frozenset[tuple[int, Exact]], frozenset[tuple[int, Exact]], frozenset[LinearRow]]:
        """Equal for equal regions over the same base."""
        return frozenset(self.lower.items()), frozenset(self.upper.items()), frozenset(self.rows)


class _Normaliser:
    def __init__(self, document: Document, symbols: Symbols) -> None:
        self._document = document
        self._symbols = symbols
        linearizer = Linearizer(document.source, symbols)
        self._linearizer = linearizer
        self.monomials: tuple[Monomial, ...] = ()
        self._expander = Expander(document.source, linearizer, symbols.input_size)
        self._base = _Region()

    def cases(self) -> list[Case]:
        """Every distinct region with its disjuncts; none where the text is plainly false."""
        common: list[Constraint] = []
        regions: list[list[Clause]] = []
        conditions: list[list[Clause]] = []
        for assertion in self._document.assertions:
            clauses = self._expander.clauses(assertion.formula)
            if len(clauses) == 1:
                common.extend(clauses[0])
            elif self._expander.is_region(clauses):
                regions.append(clauses)
            else:
                conditions.append(clauses)
        size = self._symbols.input_size
        self._base.add(constraint for constraint in common if is_input(constraint, size))
        outputs = tuple(constraint for constraint in common if not is_input(constraint, size))
        offset = self._document.assertions[-1].offset if self._document.assertions else 0
        region_clauses = self._expander.product(offset, regions)
        condition_clauses = self._expander.product(offset, [[outputs], *conditions])
        return self._assemble(region_clauses, condition_clauses)

    def _assemble(self, regions: list[Clause], conditions: list[Clause]) -> list[Case]:
        """Group the pairs (region, condition) by what they say about inputs."""
        by_inputs: dict[Clause, dict[Rows, None]] = {}
        split = [_split(condition, self._symbols.input_size) for condition in conditions]
        if self._linearizer.monomials:
            # such conditions are written by cases, y > 0 or y < 0, of which most pairs are void
            split = self._in_order([(inputs, rows) for inputs, rows in split if not contradictory(rows)])
        for (inputs, _), rows in zip(split, pack_all([rows for _, rows in split]), strict=True):
            by_inputs.setdefault(inputs, {})[rows] = None
        self._check_size(len(regions) * len(by_inputs))
        groups: dict[object, tuple[_Region, dict[Rows, None]]] = {}
        for clause in regions:
            for inputs, disjuncts in by_inputs.items():
                region = _Region()
                region.add(clause, self._base)
                region.add(inputs, self._base)
                _, known = groups.setdefault(region.key, (region, {}))
                known.update(disjuncts)
        self._check_size(len(groups) * self._symbols.input_size)
        return self._boxes(list(groups.values()))

    def _in_order(self, split: list[tuple[Clause, list[LinearRow]]]) -> list[tuple[Clause, list[LinearRow]]]:
        """The monomials that are left, sorted, so that equal questions have equal columns."""
        first = self._symbols.input_size + self._symbols.output_size
        named = {column: monomial for monomial, column in self._linearizer.monomials.items()}
        used = {k for _, rows in split for row in rows for k, _ in row.terms if k >= first}
        self.monomials = tuple(sorted(named[k] for k in used))
        place = {self._linearizer.monomials[m]: first + k for k, m in enumerate(self.monomials)}
        return [
            (
                inputs,
                [
                    row._replace(terms=tuple(sorted((place.get(k, k), c) for k, c in row.terms)))
                    for row in rows
                ],
            )
            for inputs, rows in split
        ]

    def _boxes(self, groups: list[tuple[_Region, dict[Rows, None]]]) -> list[Case]:
        """Round all bounds in one go, because files hold thousands of small regions."""
        size = self._symbols.input_size
        lowers: list[Exact] = []
        uppers: list[Exact] = []
        for region, _ in groups:
            lower, upper = self._bounds(region)
            lowers.extend([lower[i] for i in range(size)])
            uppers.extend([upper[i] for i in range(size)])
        pairs = zip(ExactNumbers(lowers).split(size), ExactNumbers(uppers).split(size), strict=True)
        cases = []
        for (region, disjuncts), (exact_lower, exact_upper) in zip(groups, pairs, strict=True):
            rows = {**self._base.rows, **region.rows}
            input_rows = pack_rows(rows) if rows else TRUE
            cases.append(case_of_exact(exact_lower, exact_upper, input_rows, tuple(disjuncts)))
        return cases

    def _bounds(self, region: _Region) -> tuple[dict[int, Exact], dict[int, Exact]]:
        """The bounds of every input; an error where one is missing and no row implies it."""
        lower, upper = {**self._base.lower, **region.lower}, {**self._base.upper, **region.upper}
        size = self._symbols.input_size
        if len(lower) < size or len(upper) < size:
            derive_bounds([*self._base.rows, *region.rows], lower, upper)
        for bounds, side in ((lower, "lower"), (upper, "upper")):
            if len(bounds) < size:
                raise self._unbounded(next(i for i in range(size) if i not in bounds), side)
        return lower, upper

    def _check_size(self, numbers: int) -> None:
        if numbers > MAX_BOX_NUMBERS:
            raise self._document.source.error(
                self._document.assertions[-1].offset,
                expected=f"at most {MAX_BOX_NUMBERS} bounds over all input regions",
                got=str(numbers),
                remedy="split the property",
            )

    def _unbounded(self, column: int, side: str) -> VnnlibError:
        name = self._symbols.name(column)
        article = "an upper" if side == "upper" else "a lower"
        return self._document.source.error(
            self._symbols.declaration(column),
            expected=f"{article} bound for {name}",
            got="none",
            remedy=f"{name} has no {side} bound; every input needs both",
        )


def _split(clause: Clause, input_size: int) -> tuple[Clause, list[LinearRow]]:
    """What a clause says about inputs alone, and its other rows."""
    inputs: list[Constraint] = []
    rows: list[LinearRow] = []
    for constraint in clause:
        if isinstance(constraint, LinearRow) and not is_input(constraint, input_size):
            rows.append(constraint)
        else:
            inputs.append(constraint)
    return tuple(inputs), rows
