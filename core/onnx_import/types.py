"""Which variables are of an integer type or bool, and what may be done with them."""

from __future__ import annotations

from dataclasses import replace

import onnx

from verifolio.onnx_import.call import Call
from verifolio.onnx_import.values import Known, Refused, Value, View

SMALL = 1024  # with arguments of casts below 2^20 (int32) and 2^50 (int64), products stay far inside
_WHOLE = {
    *("ArgMax", "ArgMin", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    *("And", "Or", "Xor", "Not"),
}
_QUANTISED = {
    "QuantizeLinear",
    "QLinearMatMul",
    "QLinearConv",
    "MatMulInteger",
    "ConvInteger",
    "QGemm",
    "QLinearAdd",
}
_FLOAT_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
# operators that do with integers what they do with floats; division, powers and bits are others
_SAME = {
    *(
        "Add",
        "Sub",
        "Mul",
        "Neg",
        "Abs",
        "Sum",
        "Max",
        "Min",
        "Sign",
        "Relu",
        "Clip",
        "ReduceMax",
        "ReduceMin",
    ),
    *(
        "Identity",
        "Reshape",
        "Flatten",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Gather",
        "Split",
        "Expand",
    ),
    *("Tile", "Concat", "Where", "Shape", "Size", "Cast", "ScatterND", "MaxPool", "GlobalMaxPool"),
}


def check_types(call: Call) -> None:
    """Refuse what would compute with integers in another way than with floats."""
    whole = any(isinstance(v, View) and v.whole for v in call.inputs)
    if whole and call.op not in _SAME | _WHOLE | _QUANTISED | {"DequantizeLinear"}:
        raise Refused(f"{call.op} of a variable of an integer type")
    if whole and call.op == "Mul" and not _small(call):
        raise Refused("Mul of variables of an integer type, which may leave it")


def _small(call: Call) -> bool:
    """Whether one factor is a constant that leaves integers in the range of their type."""
    constants = [v for v in call.inputs if isinstance(v, Known)]
    return any(bool((abs(k.value.astype(float)) <= SMALL).all()) for k in constants)


def _of_whole(value: Value | None) -> bool:
    """Whether a tensor is of an integer type or bool."""
    return value.whole if isinstance(value, View) else isinstance(value, Known) and not value.is_float


def typed(call: Call, made: list[Value]) -> list[Value]:
    """The results, marked where they are of an integer type or bool."""
    whole = any(isinstance(v, View) and v.whole for v in call.inputs) or call.op in _WHOLE | _QUANTISED
    if call.op == "DequantizeLinear":
        whole = False
    elif call.op == "Cast":
        whole = call.integer("to", 0) not in _FLOAT_TYPES
    elif call.op in ("Where", "Gather", "Slice", "ScatterND"):  # what is picked has the type of the data
        picked = call.inputs[1:] if call.op == "Where" else call.inputs[:1]
        whole = any(_of_whole(v) for v in picked)
    return [replace(v, whole=whole) if isinstance(v, View) else v for v in made]
