"""A specification: the normal form of a property file, and the referee of concrete points."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from verifolio.vnnlib.case import Case
from verifolio.vnnlib.check import Check, check_cases, flat_doubles
from verifolio.vnnlib.symbols import NetworkDeclaration, column_name
from verifolio.vnnlib.tree import Version


@dataclass(frozen=True, eq=False)
class Specification:
    """Is there an x in some case's region whose y satisfies one of that case's disjuncts?

    x is the concatenation of all networks' inputs in declaration order, y of each network's outputs and then its
    hidden tensors. After their columns come those of `monomials`, each the columns that it multiplies; a row that
    has one counts among the rows over outputs. `sha256` is the hash of the decompressed text.
    """

    version: Version
    input_size: int
    output_size: int
    cases: tuple[Case, ...]
    networks: tuple[NetworkDeclaration, ...]
    sha256: str
    monomials: tuple[tuple[int, ...], ...] = ()
    warnings: tuple[str, ...] = ()

    def check(self, x: ArrayLike, y: ArrayLike, *, ulp: bool = False) -> Check:
        """Decide a concrete point in exact arithmetic on the text's own decimals.

        With `ulp`, a coordinate may lie outside where its interval contains no float32 and it is the nearest.
        """
        point = flat_doubles(x, self.input_size, "input")
        outputs = flat_doubles(y, self.output_size, "output")
        return check_cases(self.cases, point, outputs, self.monomials, ulp=ulp)

    def name(self, column: int) -> str:
        """A column as text of VNN-LIB, in the dialect of the specification."""
        return column_name(
            self.networks, self.input_size, self.output_size, self.monomials, column, self.version
        )
