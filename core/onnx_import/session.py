"""ONNX Runtime on the original file: the referee of concrete values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verifolio.errors import InputError
from verifolio.onnx_import.lower import lower_network
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.reader import EXPORT_AGAIN, parse_model


def open_session(network: Network, optimised: bool = True) -> Any:
    """A session with default options (one thread, quiet).

    The file is lowered first: ONNX Runtime folds constants while it loads, without a limit on memory, so
    it only sees files whose tensors have been counted.
    """
    lower_network(network)
    return _session(network, network.model(), optimised)


def open_traced(network: Network, names: Sequence[str]) -> Any:
    """A session, not optimised, that also returns the named tensors of the file."""
    model = parse_model(network)  # names are those after local functions are written out
    for name in names:
        model.graph.output.add().name = name
    return _session(network, model.SerializeToString(), optimised=False)


def _session(network: Network, model: bytes, optimised: bool = True) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # the runtime raises a dozen unrelated types for a bad file
        got = " ".join(str(error).split())[:300]
        raise InputError(str(network.path), "a model that ONNX Runtime loads", got, EXPORT_AGAIN) from error
