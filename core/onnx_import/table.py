"""Which function lowers which ONNX operator; what is not listed is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verifolio.onnx_import import (
    activations,
    arithmetic,
    attention,
    choice,
    linear,
    logic,
    normal,
    plumbing,
    pooling,
    quantised,
    rearrange,
    reductions,
    resize,
)
from verifolio.onnx_import.call import Call
from verifolio.onnx_import.lowering import Lowering
from verifolio.onnx_import.values import Value

Handler = Callable[[Lowering, Call], Value | Sequence[Value]]

HANDLERS: Mapping[str, Handler] = {
    **plumbing.HANDLERS,
    **linear.HANDLERS,
    **arithmetic.HANDLERS,
    **activations.HANDLERS,
    **logic.HANDLERS,
    **reductions.HANDLERS,
    **pooling.HANDLERS,
    **normal.HANDLERS,
    **resize.HANDLERS,
    **choice.HANDLERS,
    **quantised.HANDLERS,
    **rearrange.HANDLERS,
    **attention.HANDLERS,
}

# operators of other domains
FOREIGN: Mapping[tuple[str, str], Handler] = {
    ("com.microsoft", name): handler for name, handler in quantised.MICROSOFT.items()
}
