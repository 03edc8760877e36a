"""Families of inputs of a data set: their labels, and the classes that a worker computes for all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from verifolio.data import check_range, check_shape
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values_at import classes_at
from verifolio.plugin.data_source import Dataset
from verifolio.plugin.property import check_networks

from .family import Family, per_input

if TYPE_CHECKING:
    from .run import Setting


def make_families(
    setting: Setting, networks: Sequence[Network], data: Dataset, named: Mapping[int, str]
) -> list[Family]:
    """The families of inputs by index; their labels are the data's, or what the (first) network says."""
    check_networks(setting.prop, networks)
    for network in networks:
        check_shape(data, network)
    check_range(data, list(named), setting.low, setting.high)
    families = [_family(setting, networks, data, index, name) for index, name in named.items()]
    first = networks[0]
    classes = first.compute(classes_at, first, [f.clean for f in families])
    for k, found in enumerate(classes):
        label = found if setting.reference == "predicted" else families[k].label
        families[k] = replace(families[k], label=label, known_class=found)
        setting.prop.query(families[k].networks, families[k].at(0.0))  # says what does not fit
    return families


def make_family(
    setting: Setting, networks: Sequence[Network], data: Dataset, index: int, name: str
) -> Family:
    """The family of one input."""
    (family,) = make_families(setting, networks, data, {index: name})
    return family


def _family(setting: Setting, networks: Sequence[Network], data: Dataset, index: int, name: str) -> Family:
    shape = data.shape if len(data.shape) == 3 else (1, *data.shape)
    mean, std = per_input(setting.mean, shape, "mean"), per_input(setting.std, shape, "std")
    x, label = data.image(index), int(data.labels[index])
    place = (networks[0], x, label, setting.norm, setting.low, setting.high, mean, std)
    return Family(*place, name=name, prop=setting.prop, partners=tuple(networks[1:]))
