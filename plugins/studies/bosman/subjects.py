"""The networks of the paper, which of them are public, and what its authors call them in their records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verifolio import current_plugins

from ..sources import shared

HERE = Path(__file__).resolve().parent
STEP = {"mnist": 0.002, "cifar10": 0.0039, "gtsrb": 0.0039}  # of the grids of radii, as the paper has them
# why ours is missing, or compared as distributions only, in the tables and figures of a data set
MISSING = {
    "cifar10": "Of these networks only resnet_4b is public. Ours are the first 50 official test images; the records "
    "number images in another order, so only distributions can be compared.",
    "gtsrb": "These networks are not public. Ours are the two dense ones, trained again by table 22 on every fifth "
    "frame (7 842 of 39 209), and the first 50 test images, so only distributions can be compared; the layers of the "
    "two convolutional ones are not in the paper.",
}


@dataclass(frozen=True)
class Subject:
    """A network: its name and training in the tables, its ONNX file (empty: there is none), and its records."""

    network: str
    training: str
    file: str
    records: str
    path: str  # of the network in the records
    data: str = "mnist"

    @property
    def key(self) -> str:
        """What rows call it."""
        return self.file.removesuffix(".onnx")

    @property
    def onnx(self) -> Path:
        return shared("jair", self.file)


def _first(name: str, path: str, public: bool = True) -> Subject:
    return Subject(name, "standard", path if public else "", "results_JAIR_fomlas.csv", path)


def _later(network: str, training: str, path: str, file: str = "") -> Subject:
    return Subject(network, training, file, "results_MNIST_JAIR.csv", path)


def _other(data: str, network: str, training: str, path: str, file: str = "") -> Subject:
    records = {"cifar10": "results_CIFAR_JAIR.csv", "gtsrb": "results_GTSRB_JAIR.csv"}[data]
    return Subject(network, training, file, records, path, data)


# section 4, in the order of table 5
FIRST = (
    _first("net", "mnist-net.onnx"),
    _first("net_256x2", "mnist-net_256x2.onnx"),
    _first("relu_6_100", "mnist_relu_6_100.onnx"),
    _first("relu_3_50", "mnist_relu_3_50.onnx"),
    _first("relu_4_1024", "mnist_relu_4_1024.onnx", public=False),
    _first("relu_9_100", "mnist_relu_9_100.onnx"),
    _first("relu_3_100", "mnist_relu_3_100.onnx"),
    _first("relu_9_200", "mnist_relu_9_200.onnx"),
    _first("net_256x4", "mnist-net_256x4.onnx"),
    _first("net_256x6", "mnist-net_256x6.onnx"),
    _first("relu_6_200", "mnist_relu_6_200.onnx"),
    _first("nn", "mnist_nn.onnx"),
)
# sections 5 and 6: MNIST
DENSE = (
    _later("mnist_nn", "standard", "mnist_nn_standard.onnx", "mnist_nn.onnx"),
    _later("mnist_nn", "fgsm", "mnist_nn_fgsm.onnx", "mnist_nn_fgsm_02.onnx"),
    _later("mnist_nn", "pgd", "mnist_nn_pgd.onnx", "mnist_nn_pgd.onnx"),
    _later("mnist_relu_4_1024", "standard", "mnist_relu_4_1024_standard.onnx"),
    _later("mnist_relu_4_1024", "fgsm", "mnist_relu_4_1024_fgsm_02.onnx"),
    _later("mnist_relu_4_1024", "pgd", "mnist_relu_4_1024_pgd.onnx"),
)
CONVOLUTIONAL = (
    _later("convSmall", "standard", "convSmallRELU__Point.onnx", "convSmallRELU__Point.onnx"),
    _later("convSmall", "diffai", "convSmallRELU__DiffAI.onnx", "convSmallRELU__DiffAI.onnx"),
    _later("convSmall", "pgdk", "convSmallRELU__PGDK.onnx", "convSmallRELU__PGDK.onnx"),
    _later("convMedG", "standard", "convMedGRELU__Point.onnx"),
    _later("convMedG", "pgdk_0.1", "convMedGRELU__PGDK_w_0.1.onnx"),
    _later("convMedG", "pgdk_0.3", "convMedGRELU__PGDK_w_0.3.onnx"),
)
CIFAR = tuple(
    _other("cifar10", name, how, f"{name}_{how}.onnx", f"{name}_{how}.onnx" if name == "resnet_4b" else "")
    for name in ("cifar_7_1024", "conv_big", "resnet_4b")
    for how in ("standard", "fgsm", "pgd")
)
SIGNS = tuple(
    _other("gtsrb", name, how, f"{path}_{how}.onnx", "" if "cnn" in name else f"{path}_{how}.onnx")
    for name, path in (
        ("gtsrb_6_256", "gtsrb_6_256"),
        ("gtsrb_7_1024", "gtsrb_7_1024"),
        ("gtsrb_cnn_deep_game", "gtsrb_cnn_deep_game"),
        ("gtsrb_cnn_vnncomp23", "gtsrb_cnn_vnncomp23_relu"),
    )
    for how in ("standard", "fgsm", "pgd")
)
ALL = (*FIRST, *DENSE, *CONVOLUTIONAL, *CIFAR, *SIGNS)


def subject(network: str, training: str = "standard", among: tuple[Subject, ...] = ALL) -> Subject | None:
    """The one that a table means."""
    return next((s for s in among if (s.network, s.training) == (network, training)), None)


def measurable(subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
    """Those that can be measured: with a file, and images that are there."""
    there = {d: current_plugins().datasets.unavailable(d) is None for d in {s.data for s in subjects}}
    return tuple(s for s in subjects if s.file and (s.data == "mnist" or there[s.data]))
