"""Large networks: time and peak memory of look-alikes of VGG16, TinyYOLO and a CIFAR ResNet, with random weights.

    python benchmarks/large.py [--only vgg16 yolo resnet] [--folder DIR] [--timeout 300] [--memory 16]

Further options go to `verifolio verify`. The networks are written to a folder (VGG16: 553 MB), then one query on each
is decided in a process of its own: VGG16 with few perturbed pixels, TinyYOLO and the ResNet with all of them. Printed
are the verdict or what was reached, seconds, processor seconds and the peak memory of all processes together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from verifolio.onnx_import.network import Network

Array = NDArray[Any]
PAUSE = 0.2  # seconds between two looks at the memory
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0: a pool


class Builder:
    """An ONNX model with random weights (He et al. 2015)."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.shape, self.rng = shape, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def weight(self, shape: tuple[int, ...], reads: int) -> str:
        value = self.rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / reads))
        self.tensors.append(numpy_helper.from_array(value, f"w{len(self.tensors)}"))
        return str(self.tensors[-1].name)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
        weight = self.weight((outputs, inputs, kernel, kernel), inputs * kernel**2)
        bias = self.weight((outputs,), 200)
        return self.op("Conv", x, weight, bias, pads=[kernel // 2] * 4, strides=[stride, stride])

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        weight = self.weight((outputs, inputs), inputs)
        return self.op("Gemm", x, weight, self.weight((outputs,), 200), transB=1)

    def save(self, output: str, size: tuple[int, ...], path: Path) -> None:
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
            for name, shape in (("x", self.shape), ("y", size))
        ]
        graph = helper.make_graph(self.nodes, "net", *ends, self.tensors)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def vgg16(path: Path) -> None:
    """13 convolutions, 5 maximum pools and 3 dense layers: 138 million parameters."""
    model, x, channels = Builder((1, 3, 224, 224), 16), "x", 3
    for width in VGG16:
        if width:
            x, channels = model.op("Relu", model.conv(x, channels, width)), width
        else:
            x = model.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = model.op("Flatten", x)
    for inputs in (25088, 4096):
        x = model.op("Relu", model.dense(x, inputs, 4096))
    model.save(model.dense(x, 4096, 1000), (1, 1000), path)


def yolo(path: Path) -> None:
    """TinyYOLO of VNN-COMP 2023: residual blocks on 52 x 52 pixels, 125 numbers for each of 13 x 13 cells."""
    model = Builder((1, 3, 52, 52), 52)

    def block(x: str, inputs: int, outputs: int, skip: bool) -> str:
        inner = model.op("Relu", model.conv(x, inputs, outputs))
        side = model.conv(x, inputs, outputs, 1) if skip else x
        return model.op("Add", side, model.conv(inner, outputs, outputs))

    def pool(x: str) -> str:
        return model.op("AveragePool", model.op("Relu", x), kernel_shape=[2, 2], strides=[2, 2])

    x = pool(block(block("x", 3, 16, True), 16, 16, False))
    x = block(pool(block(x, 16, 16, False)), 16, 32, True)
    model.save(model.conv(block(x, 32, 64, True), 64, 125, 1), (1, 125, 13, 13), path)


def resnet(path: Path) -> None:
    """A CIFAR ResNet: four blocks, 8 to 16 channels, as resnet_4b of VNN-COMP 2021."""
    model = Builder((1, 3, 32, 32), 32)
    x, channels = model.op("Relu", model.conv("x", 3, 8, stride=2)), 8
    for width, stride in ((16, 2), (16, 1), (16, 1), (16, 1)):
        inner = model.op("Relu", model.conv(x, channels, width, stride=stride))
        side = model.conv(x, channels, width, 1, stride) if (stride > 1 or channels != width) else x
        x, channels = model.op("Relu", model.op("Add", side, model.conv(inner, width, width))), width
    x = model.op("Relu", model.dense(model.op("Flatten", x), 16 * 8 * 8, 100))
    model.save(model.dense(x, 100, 10), (1, 10), path)


MAKERS: dict[str, Callable[[Path], None]] = {"vgg16": vgg16, "yolo": yolo, "resnet": resnet}
# perturbed pixels (None: all) and the radius, for inputs of about unit size
SETS: dict[str, tuple[int | None, float]] = {
    "vgg16": (5, 1 / 255),
    "yolo": (None, 1e-4),
    "resnet": (None, 1 / 255),
}


def property_of(name: str, network: Network, path: Path) -> None:
    """No other class (for TinyYOLO: no sign of one number) within the set around a random image."""
    pixels, radius = SETS[name]
    shape = network.inputs[0].shape
    rng = np.random.default_rng(7)
    image = rng.random(shape).astype(np.float32)
    outputs = network.replay(image)
    mask = np.ones(shape[2:], bool)
    if pixels is not None:
        mask[:] = False
        mask.ravel()[rng.choice(mask.size, pixels, replace=False)] = True
    reach = radius * np.broadcast_to(mask, shape).ravel()
    lines = [f"(declare-const X_{i} Real)" for i in range(image.size)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs.size)]
    for i, (value, r) in enumerate(zip(image.ravel().astype(np.float64), reach, strict=True)):
        lines += [f"(assert (>= X_{i} {float(value - r)!r}))", f"(assert (<= X_{i} {float(value + r)!r}))"]
    label = int(np.abs(outputs).argmax()) if name == "yolo" else int(outputs.argmax())
    if name == "yolo":
        lines.append(f"(assert ({'<=' if outputs[label] > 0 else '>='} Y_{label} 0))")
    else:
        rivals = " ".join(f"(and (>= Y_{i} Y_{label}))" for i in range(outputs.size) if i != label)
        lines.append(f"(assert (or {rivals}))")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def prepare(name: str, folder: Path) -> tuple[Path, Path]:
    """The network and its property, made unless they are there."""
    network, query = folder / f"{name}.onnx", folder / f"{name}.vnnlib"
    if not network.exists():
        MAKERS[name](network)
    if not query.exists():
        command = [sys.executable, __file__, "--only", name, "--folder", str(folder), "--property"]
        subprocess.run(command, check=True)  # its memory is not this process's
    return network, query


class Usage:
    """Processor seconds and peak memory of a process and all that descend from it, looked at again and again."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.root = psutil.Process(process.pid)
        self.processor: dict[int, float] = {}
        self.peak = 0

    def look(self) -> None:
        held = 0
        with contextlib.suppress(psutil.Error):
            for one in [self.root, *self.root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    self.processor[one.pid] = times.user + times.system
                    held += one.memory_info().rss
        self.peak = max(self.peak, held)


def measure(name: str, folder: Path, timeout: float, memory: float, more: Sequence[str]) -> str:
    """One line of the table."""
    network, query = prepare(name, folder)
    command = [sys.executable, "-m", "verifolio", "verify", str(network), str(query), "--json"]
    command += ["--timeout", str(timeout), "--memory", str(memory), *more]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        usage = Usage(process)
        while process.poll() is None:
            usage.look()
            time.sleep(PAUSE)
        seconds = time.monotonic() - began
        output.seek(0)
        errors.seek(0)
        said = describe(output.read()) or f"failed: {errors.read().strip()[-300:]}"
    spent = sum(usage.processor.values())
    return f"| {name} | {said} | {seconds:.0f} | {spent:.0f} | {usage.peak / 2**30:.1f} |"


def describe(output: str) -> str:
    """The verdict, and what is known where there is none."""
    try:
        answer = json.loads(output)
    except json.JSONDecodeError:
        return ""
    bound = answer.get("bound")
    known = f" (bound {bound:.4g})" if bound is not None else ""
    reason = "" if answer["verdict"] in ("sat", "unsat") else f": {answer.get('reason', '')}"
    return f"{answer['verdict']}{known}{reason}".replace("|", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "verifolio_large")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--memory", type=float, default=16.0)
    parser.add_argument("--property", action="store_true", help="only write the property")
    given, more = parser.parse_known_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.property:
        for name in given.only:
            network = Network.load(given.folder / f"{name}.onnx")
            property_of(name, network, given.folder / f"{name}.vnnlib")
        return
    print("| network | answer | seconds | processor seconds | peak GB |\n|---|---|---|---|---|")
    for name in given.only:
        print(measure(name, given.folder, given.timeout, given.memory, more), flush=True)


if __name__ == "__main__":
    main()
