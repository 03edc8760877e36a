"""From words to regimes: what the options of the commands mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import nn

from verifolio.encode.torch_export import export_onnx
from verifolio.errors import InputError
from verifolio.files.arrays import read_arrays
from verifolio.onnx_import.network import Compute, Network
from verifolio.onnx_import.values_at import outputs_at
from verifolio.plugin.bounder import Bounder
from verifolio.plugin.property import Property
from verifolio.plugin.regime import Regime

from .attacks import Ball
from .regimes import Baseline

FINETUNE = "finetune"  # rounds of attack and training, whose loss is the baseline's
CLOSE = 1e-5  # relative to the largest output: some hundred roundings of float32


@dataclass(frozen=True)
class Choices:
    """The regime and what it can be told."""

    regime: str = "baseline"
    epsilon: float = 0.1
    attack: str = ""
    steps: int = 10
    prop: str = "classification"
    options: tuple[str, ...] = ()
    data_weight: float = 1.0
    property_weight: float = 0.2
    bounder: str = "interval"
    share: float = 0.7
    copies: int = 2
    low: float = 0.0
    high: float = 1.0
    more: tuple[str, ...] = ()  # options of the regime, key=value

    def ball(self) -> Ball:
        if not (np.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InputError("--epsilon", "a finite number, not negative", repr(self.epsilon))
        return Ball(self.epsilon, self.low, self.high)


def make_regime(c: Choices) -> Regime:
    """The regime that the choices describe; `finetune` starts as the baseline."""
    from verifolio.plugin.manager import current_plugins
    from verifolio.plugin.options import build_options, split_pairs

    known = current_plugins().regimes
    if c.regime != FINETUNE and c.regime not in known:
        names = ", ".join([*(r.name for r in known), FINETUNE])
        raise InputError("--regime", f"one of {names}", repr(c.regime))
    cls = Baseline if c.regime == FINETUNE else known.get(c.regime)
    named = {f.name for f in fields(cls)} & FLAGS.keys()
    given = {name: FLAGS[name](c) for name in sorted(named)} | {"ball": c.ball()}
    given = {name: value for name, value in given.items() if value != ""}  # the regime's own default
    return build_options(cls, given | split_pairs(c.more), f"regime {cls.name}")


def _property(c: Choices) -> Property:
    from verifolio.plugin.options import split_pairs
    from verifolio.properties.file import choose_property

    prop = choose_property(c.prop, split_pairs(c.options))
    if prop.networks != 1:
        raise InputError("--property", "a property of one network", prop.name)
    return prop


def find_bounder(name: str) -> Bounder:
    """A bounder that can be differentiated, by name."""
    from verifolio.plugin.manager import current_plugins

    bounder = current_plugins().bounders.get(name)()
    if not bounder.differentiable:
        able = ", ".join(b.name for b in current_plugins().bounders if b.differentiable)
        raise InputError("--bounder", f"a differentiable one: {able}", repr(name))
    return bounder


# What fields of a regime get from the options of the command, by their names.
FLAGS: Mapping[str, Callable[[Choices], object]] = {
    "attack": lambda c: c.attack,
    "steps": lambda c: c.steps,
    "prop": _property,
    "alpha": lambda c: c.data_weight,
    "beta": lambda c: c.property_weight,
    "bounder": lambda c: find_bounder(c.bounder),
    "share": lambda c: c.share,
    "copies": lambda c: c.copies,
}


def save(model: nn.Sequential, path: Path, shape: tuple[int, ...], compute: Compute | None = None) -> float:
    """Write the ONNX file and compare it with torch, here or where `compute` is; gives the largest difference."""
    export_onnx(model, path, shape, name=path.stem)
    network = Network.load(path) if compute is None else Network.load(path).computed_by(compute)
    x = torch.rand((16, *shape), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = model(x).numpy()
    got = np.stack(network.compute(outputs_at, network, [p.numpy() for p in x]))
    difference = float(np.abs(got - wanted).max())
    if not difference <= CLOSE * max(1.0, float(np.abs(wanted).max())):
        raise InputError(str(path), "what torch computes", f"a difference of {difference:.3g}", "report this")
    return difference


def save_weights(model: nn.Sequential, path: Path) -> None:
    """All parameters and buffers as plain arrays."""
    arrays = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    np.savez(path, **arrays)


def load_weights(model: nn.Sequential, path: Path) -> None:
    """Parameters and buffers from plain arrays of the same names and shapes."""
    arrays = read_arrays(path, "weights saved by `verifolio train`")
    plain = {
        name: value for name, value in arrays.items() if value.dtype.kind in "fi" and value.dtype.isnative
    }
    found = {name: torch.from_numpy(value) for name, value in plain.items()}
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if wanted != {name: tuple(value.shape) for name, value in found.items()}:
        raise InputError(
            str(path), "weights of this architecture", "others", "use the same --arch and --data"
        )
    model.load_state_dict(found)
