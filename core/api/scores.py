"""Models whose outputs are probabilities, or one number for two classes, as networks with a score per class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verifolio.encode.scores import with_scores
from verifolio.errors import InputError
from verifolio.plugin.exporter import Array, Export

NOTES = {
    "softmax": "the softmax at its end is cut away: the outputs are scores, in the same order",
    "sigmoid": "the sigmoid of z at its end is cut away: the outputs are -z for class 0 and z for class 1",
    "logit": "its one output z decides between two classes: the outputs are -z for class 0 and z for class 1",
}
NOTES["number"] = NOTES["logit"]
HALF = {"sigmoid": 0.5, "logit": 0.0, "number": 0.0}  # where class 1 begins


def as_scores(found: Export) -> Export:
    """The same model for a question about the order of its classes; unchanged where it has a score for each."""
    model, done = with_scores(found.model)
    if not done:
        return found
    outputs, predict = found.outputs, found.predict
    if outputs is not None:

        def predict(x: Array) -> NDArray[np.int64]:
            return classes(outputs(x), done, found.name)

    note = "; ".join(filter(None, (found.note, NOTES[done])))
    return replace(found, model=model, outputs=None, predict=predict, note=note)


def classes(y: Array, done: str, name: str) -> NDArray[np.int64]:
    """What the model predicts, by its own outputs."""
    if done == "softmax":
        return np.asarray(y.argmax(axis=1), np.int64)
    if done == "number" and len(y) > 1 and bool(((y >= 0) & (y <= 1)).all()):
        got = f"numbers from {y.min():g} to {y.max():g}, which look like probabilities"
        remedy = "return the logit, or end in torch.sigmoid, so that class 1 begins where it does for you"
        raise InputError(f"model {name}", "one logit z, class 1 where z > 0", got, remedy)
    return np.asarray(y.reshape(len(y)) > HALF[done], np.int64)
