"""Random networks of any size as recipes: a list of layers, each with its own random numbers.

A layer's weights depend on its own seed alone, so that a recipe stays much the same network when a layer is
taken out. That is how findings are made smaller.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from verifolio.onnx_import.network import Network
from verifolio.testing.draft import BENDS, OPSET, Draft
from verifolio.testing.operators import LAYERS, OPSETS

Style = Literal[
    "small",
    "chain",
    "deep",
    "constants",
    "residual",
    "conv",
    "smooth",
    "operator",
    "quadratic",
    "image",
    "regions",
    "quantised",
]
STYLES: tuple[Style, ...] = get_args(Style)
# in which a campaign takes them; bounds have more special cases for chains with constants than for anything else
TURNS: tuple[Style, ...] = (*STYLES[:4], "constants", *STYLES[4:], "constants", "constants")
DENSE, SKIP, PRODUCT = "dense", "skip", "product"
IMAGE, WINDOW, BESIDE = "image", "window", "beside"
MAX_WEIGHTS = 60_000  # exact evaluation of more takes seconds
ACTIVATIONS = ("Relu", "Clip", "Clip", "LeakyRelu", "PRelu", "Abs", "HardSigmoid", "Max", "Min")
BETWEEN = ("BatchNormalization", "Mul", "Add", "Sub", "Div", "Max", "Min", "Clip")
SMOOTH = (
    "Sigmoid",
    "Tanh",
    "Erf",
    "Softplus",
    "Exp",
    "Sin",
    "Cos",
    "Gelu",
    "Mish",
    "Elu",
    "HardSwish",
    "Pow",
)
IMAGES = ("Conv", "Conv", "BatchNormalization", "MaxPool", "AveragePool", "ConvTranspose", "Pad")
QUANTISED = ("QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger")


@dataclass(frozen=True)
class RecipeStep:
    """One layer: an operator of `LAYERS`, `dense`, or a dense layer of an earlier tensor, added or multiplied.

    `image` makes a square image of that width; `window` is a convolution with so many channels that keeps the size,
    and `beside` adds one of the image itself.
    """

    op: str
    seed: int
    width: int = 0
    bend: str = ""


@dataclass(frozen=True)
class Recipe:
    """A network: layers between an input and a dense layer of `outputs` neurons; `scale` is that of weights."""

    inputs: int
    outputs: int
    steps: tuple[RecipeStep, ...]
    scale: float = 1.0
    seed: int = 0

    def write(self, path: Path) -> Network:
        """The network as a file."""
        rng = np.random.default_rng(self.seed)
        opset = next((OPSETS[s.op] for s in self.steps if s.op in OPSETS), OPSET)
        draft = Draft(rng, self.inputs, self.scale, opset)
        x, earlier = "x", "x"
        for step in self.steps:
            draft.rng = np.random.default_rng(step.seed)
            before = x
            x = _layer(draft, x, earlier, step)
            earlier = before if step.op == DENSE else earlier
        draft.rng = rng
        draft.save(draft.dense(x, self.outputs), path)
        return Network.load(path)

    @property
    def weights(self) -> int:
        """About how many weights the dense layers have."""
        widths = [self.inputs, *(s.width for s in self.steps if s.op == DENSE), self.outputs]
        widths = widths[1:] if any(s.op == IMAGE for s in self.steps) else widths
        return sum(a * b for a, b in itertools.pairwise(widths))


def _layer(draft: Draft, x: str, earlier: str, step: RecipeStep) -> str:
    if step.op == DENSE:
        return draft.dense(x, step.width, bend=step.bend)
    if step.op == SKIP:
        x = draft.flat(x)
        same = draft.size(earlier) == draft.size(x) and draft.rng.random() < 0.5
        other = draft.flat(earlier) if same else draft.dense(earlier, draft.size(x))
        return draft.add("Add" if draft.rng.random() < 0.7 else "Sub", x, other)
    if step.op == PRODUCT:
        x = draft.flat(x)
        source = str(draft.rng.choice([x, x, earlier, "x"]))
        return draft.add("Mul", x, x if draft.rng.random() < 0.3 else draft.dense(source, draft.size(x)))
    if step.op == IMAGE:
        return draft.image(x, max(1, draft.size(x) // step.width**2), step.width, step.width)
    if step.op in (WINDOW, BESIDE):
        x = draft.image(x)
        other = _window(draft, x, step.width if step.op == WINDOW else draft.shapes[x][1])
        return other if step.op == WINDOW else draft.add("Add", x, other)
    return LAYERS[step.op](draft, x)


def _window(draft: Draft, x: str, channels: int) -> str:
    """A convolution that keeps the size of an image."""
    rng, before = draft.rng, draft.shapes[x][1]
    reach, apart = int(rng.integers(0, 3)), int(rng.choice([1, 1, 1, 2]))
    weight = rng.normal(size=(channels, before, 2 * reach + 1, 3))
    weight *= 1.4 * draft.scale / np.sqrt(weight[0].size)
    pads = [reach * apart, apart] * 2
    bias = draft.draw(channels, least=-0.4, most=0.4)
    return draft.add("Conv", x, draft.constant(weight), bias, pads=pads, dilations=[apart, apart])


def random_recipe(rng: np.random.Generator, style: Style, operator: str = "") -> Recipe:
    """A network of a style; `operator` names one that it uses (for the style `operator`)."""
    outputs, scale = int(rng.integers(1, 6)), float(rng.choice([1.0, 1.0, 1.0, 0.5, 3.0]))
    inputs = int(rng.choice([1, 2, 3, 5, 10, 30, 100])) if style != "small" else int(rng.integers(1, 4))
    if style in ("chain", "deep", "constants", "residual", "small"):
        recipe = Recipe(inputs, outputs, _stack(rng, style, ACTIVATIONS), scale, _seed(rng))
    elif style == "smooth":
        inputs = min(inputs, 30)
        recipe = Recipe(inputs, outputs, _stack(rng, "smooth", SMOOTH), scale, _seed(rng))
    elif style == "quadratic":
        recipe = Recipe(min(inputs, 10), outputs, _quadratic(rng), scale, _seed(rng))
    elif style == "conv":
        recipe = Recipe(inputs, outputs, _convolutions(rng), scale, _seed(rng))
    elif style == "image":
        side = int(rng.integers(6, 13))
        recipe = Recipe(int(rng.integers(1, 3)) * side**2, outputs, _image(rng, side), scale, _seed(rng))
    elif style == "regions":
        recipe = Recipe(min(inputs, 10), outputs, _stack(rng, "constants", ACTIVATIONS), scale, _seed(rng))
    elif style == "quantised":
        recipe = Recipe(min(inputs, 30), outputs, _quantised(rng), scale, _seed(rng))
    else:
        recipe = Recipe(min(inputs, 10), outputs, _around(rng, operator), 1.0, _seed(rng))
    return _affordable(recipe)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))


def _width(rng: np.random.Generator, least: int, most: int) -> int:
    """Narrow ones more often: they are quick, and wide ones find little that narrow ones do not."""
    return int(np.exp(rng.uniform(np.log(least), np.log(most))))


def _stack(rng: np.random.Generator, style: str, activations: tuple[str, ...]) -> tuple[RecipeStep, ...]:
    """Dense layers with activations; constants between them in every second network."""
    depth = {"small": (1, 4), "deep": (5, 13), "smooth": (1, 4), "constants": (3, 6)}.get(style, (1, 6))
    width = {"small": (2, 6), "deep": (4, 60), "smooth": (3, 24), "constants": (8, 50)}.get(style, (20, 301))
    layers, size = int(rng.integers(*depth)), _width(rng, *width)
    # few kinds of layers per network: code for special structures is only reached by networks that have them
    other = str(rng.choice(activations))
    palette = (["Relu"], ["Relu", other], ["Relu", other], [other])[int(rng.integers(4))]
    constants = list(rng.choice(BETWEEN, int(rng.integers(1, 3))))
    between, special = float(rng.choice([0.0, 0.5, 1.0])), rng.random() < 0.5
    if style == "constants":
        palette, between = ["Relu"] if rng.random() < 0.6 else ["Relu", "Clip"], 0.5
    steps: list[RecipeStep] = []
    for _ in range(layers):
        this = size if rng.random() < 0.6 else _width(rng, *width)
        bend = str(rng.choice(BENDS)) if special else ""
        steps.append(RecipeStep(DENSE, _seed(rng), this, bend))
        steps.append(RecipeStep(str(rng.choice(palette)), _seed(rng)))
        if rng.random() < between:
            steps.append(RecipeStep(str(rng.choice(constants)), _seed(rng)))
        if style == "residual":
            steps.append(RecipeStep(SKIP, _seed(rng)))
    return tuple(steps)


def _quadratic(rng: np.random.Generator) -> tuple[RecipeStep, ...]:
    """Layers of ReLUs, sometimes with a shortcut, and products last: a network and a Lyapunov function."""
    steps: list[RecipeStep] = []
    for _ in range(int(rng.integers(0, 4))):
        steps += [RecipeStep(DENSE, _seed(rng), _width(rng, 2, 40)), RecipeStep("Relu", _seed(rng))]
    steps += [RecipeStep(DENSE, _seed(rng), _width(rng, 1, 12))]
    steps += [RecipeStep(SKIP, _seed(rng))] if rng.random() < 0.5 else []
    return (*steps, RecipeStep(PRODUCT, _seed(rng)))


def _convolutions(rng: np.random.Generator) -> tuple[RecipeStep, ...]:
    steps = [RecipeStep("Conv", _seed(rng)), RecipeStep("Relu", _seed(rng))]
    for _ in range(int(rng.integers(1, 4))):
        steps.append(RecipeStep(str(rng.choice(IMAGES)), _seed(rng)))
        steps.append(RecipeStep(str(rng.choice(("Relu", "Relu", "LeakyRelu", "Clip", "PRelu"))), _seed(rng)))
    if rng.random() < 0.5:
        steps += [RecipeStep(DENSE, _seed(rng), int(rng.integers(5, 40))), RecipeStep("Relu", _seed(rng))]
    return tuple(steps)


def _image(rng: np.random.Generator, side: int) -> tuple[RecipeStep, ...]:
    """Convolutions of an image that is large beside their kernels, some with a shortcut, and a dense layer."""
    steps = [RecipeStep(IMAGE, _seed(rng), side)]
    for _ in range(int(rng.integers(2, 4))):
        steps.append(RecipeStep(WINDOW, _seed(rng), int(rng.integers(2, 6))))
        between = str(
            rng.choice(["", "", "BatchNormalization", BESIDE, "MaxPool", "AveragePool", "Pad", "Conv"])
        )
        steps += [RecipeStep(between, _seed(rng))] if between else []
        steps.append(RecipeStep(str(rng.choice(("Relu", "Relu", "Relu", "LeakyRelu", "Clip"))), _seed(rng)))
    return (*steps, RecipeStep(DENSE, _seed(rng), int(rng.integers(5, 30))), RecipeStep("Relu", _seed(rng)))


def _quantised(rng: np.random.Generator) -> tuple[RecipeStep, ...]:
    """Layers between quantisations, as a quantiser writes them; mostly the input is quantised too."""
    steps = [RecipeStep("QuantizeLinear", _seed(rng))] if rng.random() < 0.8 else []
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.3:
            steps.append(RecipeStep(str(rng.choice(QUANTISED)), _seed(rng)))
        else:
            steps.append(RecipeStep(DENSE, _seed(rng), _width(rng, 2, 40), str(rng.choice(["", "grid"]))))
        steps += [RecipeStep("Relu", _seed(rng))] if rng.random() < 0.8 else []
        steps += [RecipeStep("QuantizeLinear", _seed(rng))] if rng.random() < 0.8 else []
    return tuple(steps)


def _around(rng: np.random.Generator, operator: str) -> tuple[RecipeStep, ...]:
    """An operator behind a layer of ReLUs and before another, sometimes with a second operator."""
    width = int(rng.integers(3, 25))
    names = [operator, *([str(rng.choice(sorted(LAYERS)))] if rng.random() < 0.4 else [])]
    if any(name in OPSETS for name in names):
        names = [operator]
    steps = [RecipeStep(DENSE, _seed(rng), width), RecipeStep("Relu", _seed(rng))]
    for name in names:
        steps.append(RecipeStep(name, _seed(rng)))
        if rng.random() < 0.7:
            steps += [RecipeStep(DENSE, _seed(rng), width), RecipeStep("Relu", _seed(rng))]
    return tuple(steps)


def _affordable(recipe: Recipe) -> Recipe:
    """Narrower where it has too many weights."""
    while recipe.weights > MAX_WEIGHTS:
        steps = [replace(s, width=s.width * 3 // 4) for s in recipe.steps]
        recipe = replace(recipe, steps=tuple(steps))
    return recipe


def smaller(recipe: Recipe) -> list[Recipe]:
    """Recipes with fewer layers, neurons, inputs or outputs, the boldest first."""
    steps = recipe.steps
    found = [
        replace(recipe, steps=steps[:k] + steps[k + size :]) for size in (4, 2, 1) for k in range(len(steps))
    ]
    for factor in (4, 2):
        for k, step in enumerate(steps):
            if step.width > 1:
                narrow = replace(step, width=max(1, step.width // factor))
                found.append(replace(recipe, steps=(*steps[:k], narrow, *steps[k + 1 :])))
        if recipe.inputs > 1:
            found.append(replace(recipe, inputs=max(1, recipe.inputs // factor)))
    for k, step in enumerate(steps):
        if step.bend:
            found.append(replace(recipe, steps=(*steps[:k], replace(step, bend=""), *steps[k + 1 :])))
        if 1 < step.width < 12:
            found.append(
                replace(recipe, steps=(*steps[:k], replace(step, width=step.width - 1), *steps[k + 1 :]))
            )
    if recipe.outputs > 1:
        found.append(replace(recipe, outputs=recipe.outputs - 1))
    if recipe.scale != 1.0:
        found.append(replace(recipe, scale=1.0))
    return found
