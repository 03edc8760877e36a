"""`critical` and `distribution`: how far around inputs a property holds, for any model and data."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from verifolio.api.ask import ManyOptions, Prepared, chosen_indices, chosen_norm, prepare, with_store
from verifolio.api.data import as_dataset, one_input
from verifolio.api.models import class_positions
from verifolio.api.numbers import chosen_range
from verifolio.api.progress import Counter
from verifolio.cli.common import open_oracle
from verifolio.errors import InputError
from verifolio.plugin.account import Example, InputResult
from verifolio.plugin.data_source import NO_LABEL, Dataset
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.radii import RadiiEstimator, RadiiFound, RadiiRequest
from verifolio.results.counterexample import Counterexample
from verifolio.results.decide import Mode, check_labels, warn_of_accuracy
from verifolio.results.radii import CriticalRadius, Distribution, Kept, RadiusStatus

Radii = float | Sequence[float] | str | None
ESTIMATOR = "distribution"  # who brackets the radii of many inputs
# with their types, so that 20 and 20.0 seconds are one run, as on the command line
SEARCH = {"search": str, "tolerance": float, "k": int, "budget": float}
BOXES = ("fixed", "integers")  # a radius is one number for all features, so these have no place yet


class RadiusOptions(ManyOptions, total=False):
    """What `critical` and `distribution` take besides: how a radius is searched.

    `search` is bracket, binary, k-binary (the default where `epsilon` is a list), closest, or a plugin's, with
    `search_options`. `tolerance`: how narrow a bracket must be. `k`: queries at the same time in k-binary. `budget`:
    seconds per input, 0 for no limit. `timeout` is for single queries; without one only `budget` limits an input.
    """

    search: str
    search_options: Mapping[str, object]
    tolerance: float
    k: int
    budget: float


def critical(
    model: object,
    x: object,
    label: object = None,
    *,
    epsilon: Radii = None,
    **options: Unpack[RadiusOptions],
) -> CriticalRadius:
    """Bracket the critical radius of one input, and give its closest counterexample.

    `x` is one input without a batch axis (or an image file). Without a label, the network's prediction must not
    change. Everything else is as in `distribution`.
    """
    data = one_input(x, label, shape=options.get("shape"), layout=options.get("layout", ""))
    if "indices" in options:
        raise InputError("options", "one input", "indices", "verifolio.distribution is about many")
    found = search({"": model}, data, [0], epsilon, options)
    if not found.radii:
        raise KeyboardInterrupt
    return found[0]


def distribution(
    models: object,
    X: object,
    y: object = None,
    *,
    epsilon: Radii = None,
    **options: Unpack[RadiusOptions],
) -> Distribution:
    """Bracket the critical radius of many inputs: proved below, refuted by a replayed point above.

    `models` is one model, or several by name; models and data are those of `robustness`. `epsilon` is the largest
    radius to look at, or the radii of a search on a grid (a list, or START:STOP:STEP). `range` is one pair for all
    values. Interrupted (Ctrl-C), it returns what is known; with the same `store` it goes on.

    See `RadiusOptions` and `AskOptions` for all other options.
    """
    data = as_dataset(X, y, shape=options.get("shape"), layout=options.get("layout", ""))
    chosen = chosen_indices(options.get("indices"), len(data))
    several = models if isinstance(models, Mapping) else {"": models}
    return search(several, data, chosen, epsilon, options)


def search(
    models: Mapping[str, object],
    data: Dataset,
    indices: Sequence[int],
    epsilon: Radii,
    options: RadiusOptions,
) -> Distribution:
    """Ask the estimator that keeps radii in a store."""
    told: dict[str, Any] = {"timeout": 0.0, **options}
    for name in BOXES:
        if told.get(name):
            remedy = "ask at one radius: verifolio.robustness"
            raise InputError(name, "nothing, where a radius is searched", str(told[name]), remedy)
    made = {name: one_model(name, model, data, told) for name, model in models.items()}
    if not made:
        raise InputError("models", "at least one", "none", "give a model, or several by name")
    first = next(iter(made.values()))
    if any(one.model.categories for one in made.values()):
        remedy = "ask at one radius: verifolio.robustness"
        raise InputError(
            "model", "features that are numbers, where a radius is searched", "categories", remedy
        )
    data = labelled(list(made.values()), data)
    running, folder = with_store(first.running)
    request = make_request(made, data, indices, epsilon, told)
    request = replace(request, store=Path(running.store), jobs=running.jobs, timeout=float(running.timeout))
    estimator = find_estimator()
    with (
        Counter(len(made) * len(indices), bool(told.get("progress", True))) as count,
        open_oracle(running, estimator.lanes(request)) as oracle,
    ):
        found = estimator.run(request, oracle, lambda _done, _total, status: count(status))
    if found.interrupted:
        sys.stderr.write(f"interrupted: {len(found.results)} of {count.total} radii are known\n")
    kept = Kept(
        found.networks, request.norm, request.store, folder, {"run": found.run, "property": request.property}
    )
    return finished(found, kept, request, tuple(map(str, first.model.classes)) or data.class_names)


def one_model(name: str, model: object, data: Dataset, told: Mapping[str, Any]) -> Prepared:
    """The model as a network, under its own name where it has one."""
    named = {**told, "name": name} if name else told
    return prepare(model, data, named, tuple(RadiusOptions.__annotations__))


def labelled(made: Sequence[Prepared], data: Dataset) -> Dataset:
    """The data with labels as positions of outputs, which must be the same for all models."""
    labels = [class_positions(data, one.model.classes) for one in made]
    if any((one != labels[0]).any() for one in labels[1:]):
        raise InputError("models", "the same classes in the same order", "others", "ask about each alone")
    features = data.features or made[0].model.features
    names = tuple(map(str, made[0].model.classes)) or data.class_names
    return replace(data, labels=labels[0], features=features, class_names=names)


def make_request(
    made: Mapping[str, Prepared],
    data: Dataset,
    indices: Sequence[int],
    epsilon: Radii,
    told: Mapping[str, Any],
) -> RadiiRequest:
    """The options in the words of the command."""
    unlabelled: Mode = "predicted" if (data.labels[list(indices)] == NO_LABEL).all() else "label"
    reference: Mode = told.get("reference") or unlabelled
    check_labels(data, indices, reference)
    wanted = told.get("property", "classification")
    if not isinstance(wanted, str):
        raise InputError("property", "a name or a file", type(wanted).__name__, "write a property file")
    search = {name: kind(told[name]) for name, kind in SEARCH.items() if name in told}
    return RadiiRequest(
        {
            name or str(told.get("name") or one.model.network.path.stem): one.model.network
            for name, one in made.items()
        },
        data,
        tuple(indices),
        Path(),
        epsilon=radii_text(epsilon),
        norm=chosen_norm(told),
        range=range_text(told.get("range"), data),
        reference=reference,
        property=wanted,
        property_option=pairs(told.get("property_options")),
        search=search | {"search_option": pairs(told.get("search_options"))},
    )


def pairs(options: Mapping[str, object] | None) -> tuple[str, ...]:
    """Options as the command line has them."""
    return tuple(f"{k}={v}" for k, v in (options or {}).items())


def radii_text(epsilon: Radii) -> str:
    """The radii as `--epsilon` has them; digits are kept."""
    if epsilon is None or isinstance(epsilon, str):
        return epsilon or ""
    if isinstance(epsilon, Mapping):
        remedy = "scale the features, or ask at one radius: verifolio.robustness"
        raise InputError("epsilon", "one radius for all features", "several by name", remedy)
    return ",".join(repr(float(e)) for e in np.atleast_1d(np.asarray(epsilon, np.float64)))


def range_text(wanted: object, data: Dataset) -> str:
    """The legal values as `--range` has them; a table has to say them, because a radius needs an end."""
    if wanted is None and len(data.shape) == 1:
        raise InputError("range", "the legal values of a table", "none", "say it: range=(0, 1)")
    if wanted is None:
        return "0,1"
    if isinstance(wanted, Mapping):
        raise InputError("range", "one pair (low, high) for all values", str(wanted), "range=(0, 1)")
    low, high = cast(tuple[float, float], chosen_range(wanted))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError("range", "two finite numbers", str(wanted), "a search over radii needs an end")
    return f"{low!r},{high!r}"


def find_estimator() -> RadiiEstimator:
    """Who brackets the radii of many inputs."""
    cls = current_plugins().estimators.get(ESTIMATOR)
    if not issubclass(cls, RadiiEstimator):
        raise InputError(f"estimator {ESTIMATOR}", "one that brackets critical radii", cls.__module__)
    return cls()


def finished(found: RadiiFound, kept: Kept, request: RadiiRequest, classes: tuple[str, ...]) -> Distribution:
    """The results for people; refuses where no input could be measured, and says a low accuracy."""
    failed = [r for r in found.results if r.status == "error"]
    if failed and len(failed) == len(found.results):
        raise InputError("distribution", "at least one input that can be measured", failed[0].reason)
    examples = {e.place: e for e in found.examples}
    radii = [radius_of(r, examples.get(r.place), kept, request, classes) for r in found.results]
    for name, networks in found.networks.items():
        mine = [r for r in radii if r.network == name and r.status != "error"]
        if request.reference == "label" and mine and networks[0].output_size > 1:
            warn_of_accuracy(sum(r.label == r.predicted for r in mine) / len(mine), len(mine))
    return Distribution(tuple(radii), kept, found.interrupted)


def radius_of(
    result: InputResult, example: Example | None, kept: Kept, request: RadiiRequest, classes: tuple[str, ...]
) -> CriticalRadius:
    """One input's bracket, with the names of the classes."""

    def named(number: str) -> str:
        return classes[int(number)] if number.isdigit() and int(number) < len(classes) else number

    label = named(result.predicted if request.reference == "predicted" else result.label)
    near = None
    if example is not None and example.near is not None and example.distance is not None:
        near = counterexample(example, kept, request, label, named(example.becomes), classes)
    return CriticalRadius(
        result.network,
        int(result.index),
        cast(RadiusStatus, result.status),
        result.lower,
        result.upper,
        label,
        named(result.predicted),
        kept,
        result.verifier,
        result.seconds,
        result.reused,
        result.reason,
        near,
    )


def counterexample(
    example: Example, kept: Kept, request: RadiiRequest, label: str, becomes: str, classes: tuple[str, ...]
) -> Counterexample:
    """The closest one, inside the box of its own distance."""
    shape, distance = request.data.shape, float(example.distance or 0.0)
    original = np.asarray(example.near, np.float64).reshape(shape)
    network = kept.networks[example.network][0]
    return Counterexample(
        int(example.index),
        example.x.reshape(shape),
        original,
        label,
        becomes,
        distance,
        network.replay(example.x).astype(np.float64),
        np.maximum(original - distance, example.low),
        np.minimum(original + distance, example.high),
        request.data.features,
        classes,
    )
