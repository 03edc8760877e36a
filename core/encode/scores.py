"""Classifiers whose outputs are scores: the softmax or sigmoid at the end is cut away, one score becomes two."""

from __future__ import annotations

from typing import Any

SOFT = ("Softmax", "LogSoftmax")
AFFINE = ("Gemm", "MatMul", "Add", "Sub", "Conv", "Reshape", "Squeeze", "Flatten")  # at the end of logits


def without_head(data: bytes) -> tuple[bytes, str]:
    """A model of one output without the softmax or sigmoid at its end, and which it was.

    The order of the scores stays the same.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    done = cut_head(model.graph) if len(model.graph.output) == 1 else ""
    keep_live(model.graph)
    return bytes(model.SerializeToString(deterministic=True)), done


def with_scores(data: bytes) -> tuple[bytes, str]:
    """A classifier of one output tensor with a score for each class, and what was done to it.

    That is `softmax` or `sigmoid` where one was cut away; `logit` where a single output became two, or `number` where
    that is no affine function of what is before it; else nothing.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    if len(model.graph.output) != 1:
        return data, ""
    done = cut_head(model.graph)
    shape = model.graph.output[0].type.tensor_type.shape.dim
    if not done and len(shape) == 2 and shape[1].dim_value == 1:
        makers = {name: node for node in model.graph.node for name in node.output}
        last = behind(makers, model.graph.output[0].name)
        two_scores(model.graph, model.graph.output[0].name)
        done = "logit" if last is not None and last.op_type in AFFINE else "number"
    keep_live(model.graph)
    return (bytes(model.SerializeToString(deterministic=True)), done) if done else (data, "")


def cut_head(graph: Any) -> str:
    """The output of a graph becomes the scores below its softmax, or -z and z for a sigmoid of z; says which."""
    makers = {name: node for node in graph.node for name in node.output}
    output = graph.output[0]
    last = behind(makers, output.name)
    if last is None:
        return ""
    if last.op_type in SOFT and _last_axis(last, len(output.type.tensor_type.shape.dim)):
        output.name = last.input[0]
        return "softmax"
    if (z := _sigmoid(makers, last)) is not None and _classes(last, output) <= 2:
        two_scores(graph, z)
        return "sigmoid"
    return ""


def two_scores(graph: Any, z: str) -> None:
    """The output of a graph becomes -z and z, of a value z of shape (1, 1)."""
    from onnx import helper

    graph.node.append(helper.make_node("Neg", [z], ["negative_score"]))
    graph.node.append(helper.make_node("Concat", ["negative_score", z], ["scores"], axis=1))
    output = graph.output[0]
    output.name = "scores"
    del output.type.tensor_type.shape.dim[:]
    for size in (1, 2):
        output.type.tensor_type.shape.dim.add().dim_value = size


def _last_axis(node: Any, rank: int) -> bool:
    """Whether a softmax is over the last axis: over another one it changes the order of the scores."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    return axis in (-1, rank - 1)


def _classes(last: Any, output: Any) -> int:
    """How many classes a sigmoid at the end stands for; with several outputs each is a question of its own."""
    shape = output.type.tensor_type.shape.dim
    return 2 if last.op_type == "Concat" or not shape else int(shape[-1].dim_value or 2)


def behind(makers: dict[str, Any], name: str) -> Any:
    """The node that makes a value, copies left out."""
    node = makers.get(name)
    while node is not None and node.op_type in ("Identity", "Cast"):
        node = makers.get(node.input[0])
    return node


def _sigmoid(makers: dict[str, Any], last: Any) -> str | None:
    """z where the node is a sigmoid of z, or the pair of 1 - p and p of such a p."""
    if last.op_type == "Sigmoid":
        return str(last.input[0])
    if last.op_type != "Concat" or len(last.input) != 2:
        return None
    first, second = behind(makers, last.input[0]), behind(makers, last.input[1])
    pair = first is not None and second is not None and first.op_type == "Sub" and second.op_type == "Sigmoid"
    return str(second.input[0]) if pair and behind(makers, first.input[1]) is second else None


def keep_live(graph: Any) -> None:
    """Without the nodes and weights that the outputs do not need, in an order in which they can run."""
    needed = {o.name for o in graph.output}
    makers = {name: node for node in graph.node for name in node.output}
    todo, live = list(needed), set()
    while todo:
        node = makers.get(todo.pop())
        if node is not None and id(node) not in live:
            live.add(id(node))
            todo += node.input
            needed.update(node.input)
    known = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {""}
    waiting, ordered = [n for n in graph.node if id(n) in live], []
    while waiting:
        ready = [n for n in waiting if known.issuperset(n.input)]
        if not ready:
            raise ValueError("a graph with a cycle")
        ordered += ready
        known.update(name for n in ready for name in n.output)
        waiting = [n for n in waiting if not known.issuperset(n.output)]
    weights = [t for t in graph.initializer if t.name in needed]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(ordered)
    graph.initializer.extend(weights)
