"""ONNX Runtime on the original file: the referee of concrete values."""

from __future__ import annotations

from typing import Any

from verifolio.errors import InputError
from verifolio.network import Network, TensorSignature
from verifolio.onnx_import.lower import lower_network
from verifolio.onnx_import.reader import EXPORT_AGAIN

Signature = tuple[TensorSignature, ...]


def open_session(network: Network) -> tuple[Any, Signature, Signature]:
    """A session with default options (one thread, quiet), and the signature of the file.

    The file is lowered first: ONNX Runtime folds constants while it loads, without a limit on memory, so
    it only sees files whose tensors have been counted.
    """
    import onnxruntime as ort

    lowered = lower_network(network)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    model = network.model()
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # the runtime raises a dozen unrelated types for a bad file
        got = " ".join(str(error).split())[:300]
        raise InputError(str(network.path), "a model that ONNX Runtime loads", got, EXPORT_AGAIN) from error
    return session, lowered.inputs, lowered.outputs
