"""Networks that are trained once and loaded afterwards, so that long studies can be stopped and resumed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from torch import nn

from verifolio.plugin.data_source import Dataset

from .architectures import build
from .setup import Choices, load_weights, make_regime, save, save_weights
from .trainer import Say, Schedule, fit, tensors


def train_once(
    path: Path, arch: str, learn: Dataset, choices: Choices, plan: Schedule, say: Say
) -> nn.Sequential:
    """The network of `path` (an ONNX file; its weights and settings lie beside it).

    It is trained if the files are missing or were made with other settings; the settings are written last.
    """
    weights, settings = path.with_suffix(".npz"), path.with_suffix(".json")
    data = {"name": learn.name, "split": learn.split, "images": len(learn)}
    parts = {"arch": arch, "data": data, "choices": asdict(choices), "plan": asdict(plan)}
    wanted = json.dumps(parts, indent=1, sort_keys=True)
    model = build(arch, learn.shape, learn.classes, plan.seed)
    if path.is_file() and weights.is_file() and settings.is_file() and settings.read_text() == wanted:
        load_weights(model, weights)
        model.eval()
        return model
    settings.unlink(missing_ok=True)
    fit(model, *tensors(learn), make_regime(choices), plan, say)
    keep(model, path, learn)
    settings.write_text(wanted)
    return model


def keep(model: nn.Sequential, path: Path, data: Dataset) -> None:
    """The ONNX file and, beside it, the weights as plain arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, path, data.shape)
    save_weights(model, path.with_suffix(".npz"))
