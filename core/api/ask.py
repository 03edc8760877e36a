"""`verify`, `robustness`, `attack` and `compare`: properties of any model around inputs of any kind."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from verifolio.api.data import as_dataset, one_input, recoded
from verifolio.api.models import ExportedModel, class_positions, exported
from verifolio.api.numbers import Epsilon, Radius, Range, check_least, chosen_epsilon, chosen_range
from verifolio.api.progress import Counter
from verifolio.cli.bundles import RunningMany
from verifolio.cli.common import open_oracle
from verifolio.cli.parse import NORMS
from verifolio.data import parse_indices
from verifolio.encode.preprocessing import Channels, preprocessing_of
from verifolio.errors import InputError, near
from verifolio.plugin.data_source import NO_LABEL, Dataset
from verifolio.plugin.property import Property
from verifolio.properties.around import Features
from verifolio.properties.file import choose_property
from verifolio.results.comparison import Comparison
from verifolio.results.decide import Inputs, Mode, warn
from verifolio.results.robustness import InputVerdict, Robustness

Norm = Literal["l1", "l2", "linf"]
Indices = Sequence[int] | slice | str | None


class AskOptions(TypedDict, total=False):
    """What all functions take: about the model, the data, the property, and what runs.

    `norm`: of the radius, linf unless told. `scale`, `mean`, `std`, `channels`: what your program does before it
    calls the model. `layout`: `hwc` where images have their channels last and the model wants them first. `shape`:
    of one input, where the data is flat. `range`: legal values; by default 0 to 1 for images and none for tables.
    `fixed` and `integers`: features, by name or position, that may not change or are whole numbers. `property`: a
    property's name, file or object. `reference`: what must not change, the data's label or what the network
    predicts. The rest is as on the command line: seconds per query, a verifier or portfolio, options of the
    verifier, queries at a time, a store, where verifiers run.
    """

    name: str
    norm: Norm
    scale: float
    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    channels: Channels
    layout: str
    shape: Sequence[int] | None
    range: Range
    fixed: Sequence[str | int]
    integers: Sequence[str | int]
    property: str | Property
    property_options: Mapping[str, object]
    reference: Literal["label", "predicted"]
    timeout: float
    verifier: str
    portfolio: str
    options: Mapping[str, object]
    jobs: int
    cores: int
    memory: float
    seed: int
    store: str | Path
    executor: str
    progress: bool


class ManyOptions(AskOptions, total=False):
    """What functions about many inputs take besides.

    `indices`: which inputs, as positions, a slice, a mask, or text such as 0:20; all where it is left out.
    """

    indices: Indices


RUNNING = ("timeout", "verifier", "portfolio", "jobs", "cores", "memory", "seed", "executor")
EXPORT = ("scale", "mean", "std", "channels")
ALL_OPTIONS = tuple(ManyOptions.__annotations__)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model and data that fit together, and what runs."""

    model: ExportedModel
    data: Dataset
    running: RunningMany
    told: Mapping[str, Any]

    def inputs(self, indices: Sequence[int], epsilon: Epsilon) -> Inputs:
        """The question around these inputs."""
        data = replace(self.data, features=self.data.features or self.model.features)
        radius = chosen_epsilon(epsilon)
        fixed = (*self.told.get("fixed", ()), *still(data, radius))
        wanted = chosen_range(self.told.get("range"))
        if wanted is None:
            wanted = (-math.inf, math.inf) if len(data.shape) == 1 else (0.0, 1.0)
        features = Features(
            data.features,
            data.size,
            fixed,
            self.told.get("integers", ()),
            radius,
            wanted,
        )
        names = tuple(map(str, self.model.classes)) or data.class_names
        labels = class_positions(data, self.model.classes)
        unlabelled: Mode = "predicted" if (labels == NO_LABEL).all() else "label"
        made = Inputs(
            self.model.network,
            replace(data, labels=labels, class_names=names),
            tuple(indices),
            features.around(NORMS[chosen_norm(self.told)]),
            chosen_property(self.told),
            self.told.get("reference") or unlabelled,
            names,
        )
        made.check()
        return made


def still(data: Dataset, epsilon: Radius) -> tuple[int, ...]:
    """The features that are categories, which do not change; refuses a radius for one."""
    named = set(epsilon) if isinstance(epsilon, Mapping) else set()
    for k, name in enumerate(data.features):
        if name in named and k in data.categories:
            got = f"categories {', '.join(map(str, data.categories[k][:5]))}"
            raise InputError(f"epsilon of {name}", "a feature of numbers", got, "leave it out")
    return tuple(data.categories)


def chosen_norm(told: Mapping[str, Any]) -> Norm:
    """The norm of the radius."""
    given = told.get("norm", "linf")
    if given not in NORMS:
        raise InputError("norm", f"one of {', '.join(NORMS)}", repr(given), "linf is the maximum norm")
    found: Norm = given
    return found


def chosen_indices(given: Indices, count: int) -> list[int]:
    """Positions of inputs, however they are given."""
    if isinstance(given, str):
        return parse_indices(given, count)
    if isinstance(given, slice):
        given = range(count)[given]
    array = np.arange(count) if given is None else np.asarray(given)
    if array.dtype == bool and array.shape == (count,):
        array = np.flatnonzero(array)
    whole = array.ndim == 1 and array.dtype.kind in "iu" and len(array) > 0
    if not whole or not ((array >= 0) & (array < count)).all():
        got = str(array.ravel()[:5].tolist())
        raise InputError("indices", f"positions from 0 to {count - 1}", got, "such as range(20) or '0:20'")
    return [int(i) for i in array]


def chosen_property(told: Mapping[str, Any]) -> Property:
    """A property's object, or the one of a name or file."""
    given = told.get("property", "classification")
    if isinstance(given, Property):
        return given
    return choose_property(given, told.get("property_options"))


def check_options(told: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a name that is not known, with the one that may be meant."""
    unknown = sorted(set(told) - set(known))
    if unknown:
        listed = f"options are {', '.join(known)}"
        raise InputError("options", "a known name", unknown[0], listed + near(unknown[0], known))


def prepare(
    model: object, data: Dataset, told: Mapping[str, Any], known: Collection[str] = ALL_OPTIONS
) -> Prepared:
    """Export, fold and compare the model, and read the options."""
    check_options(told, known)
    given = {k: told[k] for k in EXPORT if k in told}
    chosen_norm(told)
    by_order = chosen_property(told).by_order
    name = str(told.get("name", ""))
    made = exported(model, data, preprocessing_of(**given), name=name, by_order=by_order)
    check_least(RunningMany, told)
    running = {k: told[k] for k in RUNNING if k in told}
    options = tuple(f"{k}={v}" for k, v in dict(told.get("options", {})).items())
    store = str(told.get("store", ""))
    if made.note:
        sys.stderr.write(f"note: {made.note}\n")
    what = RunningMany(**running, option=options, store=store)
    return Prepared(made, recoded(data, made.categories), what, told)


def robustness(
    model: object,
    X: object,
    y: object = None,
    *,
    epsilon: Epsilon,
    **options: Unpack[ManyOptions],
) -> Robustness:
    """Around which inputs is the property proved, refuted with a counterexample, or open?

    `model` is a torch module, a scikit-learn or Keras model, an ONNX file or its bytes. `X` and `y` are arrays,
    tensors, a data frame, a data set of torch, or what `--data` takes; labels may be names. `epsilon` is a radius, or
    one for each feature (by name; features that are not named do not change). Without labels, the network's
    predictions must not change. Interrupted (Ctrl-C), it returns what is known.

    See `AskOptions` and `ManyOptions` for all other options.
    """
    data = as_dataset(X, y, shape=options.get("shape"), layout=options.get("layout", ""))
    chosen = chosen_indices(options.get("indices"), len(data))
    prepared = prepare(model, data.take(chosen), options)
    return decide(prepared, prepared.inputs(range(len(chosen)), epsilon), chosen)


def decide(prepared: Prepared, inputs: Inputs, numbers: Sequence[int]) -> Robustness:
    """Ask about all inputs; an interruption ends with what is known."""
    known: dict[int, InputVerdict] = {}
    shown = bool(prepared.told.get("progress", True))
    interrupted = False
    warn(inputs)
    running, folder = with_store(prepared.running)
    with Counter(len(inputs.indices), shown) as count:
        try:
            with open_oracle(running, running.jobs) as oracle:
                for verdict in inputs.verdicts(oracle):
                    known[verdict.index] = verdict
                    count(verdict.status)
        except KeyboardInterrupt:
            interrupted = True
            sys.stderr.write(f"interrupted: {len(known)} of {len(inputs.indices)} inputs are decided\n")
    verdicts = [known[i] if i in known else inputs.unasked(i) for i in inputs.indices]
    places = dict(enumerate(numbers))
    return Robustness(
        prepared.model.network,
        tuple(numbered(v, places[v.index]) for v in verdicts),
        epsilon_text(inputs),
        {v: k for k, v in NORMS.items()}[inputs.around.norm],
        inputs.accuracy,
        running.timeout or math.inf,
        interrupted,
        Path(running.store),
        {"property": inputs.prop.name, "exported": prepared.model.text()},
        folder,
    )


class Kept:
    """A folder that lives as long as somebody holds this; that it goes then is no news."""

    def __init__(self, path: str) -> None:
        self.path = path
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)


def with_store(running: RunningMany) -> tuple[RunningMany, object]:
    """With a store of its own where none was asked for, so that a result can be saved; and what keeps its folder."""
    if running.store:
        return running, None
    folder = Kept(tempfile.mkdtemp(prefix="verifolio-"))
    return replace(running, store=str(Path(folder.path) / "store.db")), folder


def numbered(verdict: InputVerdict, index: int) -> InputVerdict:
    """The verdict with the position that the caller knows its input by."""
    found = verdict.counterexample
    moved = None if found is None else replace(found, index=index)
    return replace(verdict, index=index, counterexample=moved)


def epsilon_text(inputs: Inputs) -> str:
    """The radius for people; where features have their own, those of the ones that move."""
    around = inputs.around
    if around.reach is None:
        return f"{around.epsilon:g}"
    names = inputs.data.features or tuple(f"x[{k}]" for k in range(inputs.data.size))
    moving = [f"{n} {around.epsilon * r:g}" for n, r in zip(names, around.reach, strict=True) if r > 0]
    return ", ".join(moving[:6]) + (f" and {len(moving) - 6} more" if len(moving) > 6 else "")


def verify(
    model: object,
    x: object,
    label: object = None,
    *,
    epsilon: Epsilon,
    **options: Unpack[AskOptions],
) -> InputVerdict:
    """Is the property proved around one input, refuted with a counterexample, or open?

    `x` is one input without a batch axis (or an image file). Without a label, the network's prediction must not
    change. The answer is true where the property is proved. Everything else is as in `robustness`.
    """
    data = one_input(x, label, shape=options.get("shape"), layout=options.get("layout", ""))
    prepared = prepare(model, data, options, tuple(AskOptions.__annotations__))
    return decide(prepared, prepared.inputs([0], epsilon), [0])[0]


def attack(
    model: object,
    X: object,
    y: object = None,
    *,
    epsilon: Epsilon,
    **options: Unpack[ManyOptions],
) -> Robustness:
    """Look for counterexamples by an attack alone: `refuted` inputs have one, all others stay `open`.

    A failed attack proves nothing. `verifier` names the attack; by default it is the portfolio's. An attack gets
    1 second per input unless `timeout` says otherwise.
    """
    if "verifier" not in options and "portfolio" not in options:
        options["verifier"] = default_attack()
    options.setdefault("timeout", 1.0)
    return robustness(model, X, y, epsilon=epsilon, **options)


def default_attack() -> str:
    """Who attacks in the portfolio that is used where none is named."""
    from verifolio.plugin.manager import current_plugins
    from verifolio.portfolio.chooser import find_chooser

    member = find_chooser(plugins=current_plugins()).for_batches.able("attack", current_plugins())
    if member is None:
        raise InputError("attack", "a verifier that attacks", "none", "name one: verifier=...")
    return member.name


def compare(
    models: Mapping[str, object],
    X: object,
    y: object = None,
    *,
    epsilon: Epsilon,
    **options: Unpack[ManyOptions],
) -> Comparison:
    """The same question of several models, by name: which are proved where, and for which others fail."""
    if not isinstance(models, Mapping) or not models:
        remedy = 'compare({"first": model, "second": other}, X, y, epsilon=0.05)'
        raise InputError("models", "models by name", type(models).__name__, remedy)
    found = {}
    for name, model in models.items():
        named: ManyOptions = {**options, "name": name}
        found[name] = robustness(model, X, y, epsilon=epsilon, **named)
        if found[name].interrupted:
            break
    return Comparison(found)
