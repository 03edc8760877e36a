"""Data sets: digits (always there), MNIST, Fashion-MNIST, CIFAR-10 and GTSRB where their files are, plain files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifolio.plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from verifolio.plugin.data_source import DataSource
    from verifolio.plugin.registry import Registry


@hookimpl
def register_datasets(registry: Registry[DataSource]) -> None:
    from .cifar import Cifar10
    from .digits import Digits
    from .files import Csv, Npy, Npz
    from .gtsrb import Gtsrb
    from .idx import FashionMnist, Mnist
    from .pictures import Pictures

    for source in (Digits, Mnist, FashionMnist, Cifar10, Gtsrb, Npz, Npy, Csv, Pictures):
        registry.add(source)
