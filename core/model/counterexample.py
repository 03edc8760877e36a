"""Counterexamples in the text form of VNN-COMP, one for each version of VNN-LIB."""

from __future__ import annotations

import math

from verifolio.model.answer import Witness
from verifolio.model.query import Query


def counterexample_text(query: Query, witness: Witness) -> str:
    """For 1.0 ((X_0 value) ... (Y_0 value) ...), for 2.0 tensor after tensor, a value per line.

    Digits are enough to read the same float32 back.
    """
    if query.specification.version != "1.0":
        return assignment_text(query, witness)
    names = element_names(query)
    values = [*witness.x.tolist(), *witness.y.tolist()]
    lines = [f"({name} {value:.17g})" for name, value in zip(names, values, strict=True)]
    return "(" + "\n".join(lines) + ")\n"


def assignment_text(query: Query, witness: Witness) -> str:
    """Each tensor as `name type [shape]`, then its values; networks in the order of their declarations."""
    lines: list[str] = []
    for network in query.specification.networks:
        for values, tensors in ((witness.x, network.inputs), (witness.y, network.results)):
            for tensor in tensors:
                size = math.prod(tensor.shape)
                lines.append(f"{tensor.name} {tensor.dtype} [{','.join(str(n) for n in tensor.shape)}]")
                lines += [f"{v:.17g}" for v in values[tensor.offset : tensor.offset + size].tolist()]
    return "\n".join(lines) + "\n"


def element_names(query: Query) -> list[str]:
    """The names the property file gives to inputs and outputs."""
    from verifolio.vnnlib.symbols import element_name

    spec = query.specification
    columns = range(spec.input_size + spec.output_size)
    return [element_name(spec.networks, spec.input_size, c, spec.version) for c in columns]
