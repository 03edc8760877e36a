"""Counterexamples in the text form of VNN-COMP: ((X_0 value) ... (Y_0 value) ...)."""

from __future__ import annotations

from verifolio.answer import Witness
from verifolio.query import Query


def counterexample_text(query: Query, witness: Witness) -> str:
    """One pair per line, inputs then outputs, with digits enough to read the same float32 back."""
    names = element_names(query)
    values = [*witness.x.tolist(), *witness.y.tolist()]
    lines = [f"({name} {value:.17g})" for name, value in zip(names, values, strict=True)]
    return "(" + "\n".join(lines) + ")\n"


def element_names(query: Query) -> list[str]:
    """The names the property file gives to inputs and outputs."""
    from verifolio.vnnlib.symbols import element_name

    spec = query.specification
    columns = range(spec.input_size + spec.output_size)
    return [element_name(spec.networks, spec.input_size, c, spec.version) for c in columns]
