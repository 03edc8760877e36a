"""From inputs to verdicts: the one way in which a property is asked around the inputs of a data set."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from verifolio.data import check_range, check_shape
from verifolio.errors import InputError
from verifolio.onnx_import.network import Network
from verifolio.onnx_import.values_at import outputs_at
from verifolio.plugin.data_source import NO_LABEL, Dataset
from verifolio.plugin.estimator import OracleLike
from verifolio.plugin.property import Property, Reference
from verifolio.properties.around import Around
from verifolio.properties.kept import keep_misclassified, misclassified
from verifolio.properties.verdict import Finding, PropertyStatus, decide_many
from verifolio.properties.whole import Whole
from verifolio.results.counterexample import Array, Counterexample
from verifolio.results.robustness import InputVerdict

if TYPE_CHECKING:
    from verifolio.model.answer import Witness

Mode = Literal["label", "predicted"]
TOLD = 0.6  # an accuracy below this share is worth a word about preprocessing


def check_labels(data: Dataset, indices: Sequence[int], reference: Mode) -> None:
    """Refuse inputs without labels where labels must not change."""
    if reference == "label" and (data.labels[list(indices)] == NO_LABEL).any():
        remedy = (
            "give them, or ask about what the network predicts: --reference predicted (reference='predicted')"
        )
        raise InputError(f"data {data.name}", "labels", "none", remedy)


def warn(inputs: Inputs) -> None:
    """Say at once what looks like a mistake: a low accuracy, or a radius in other units than the data's."""
    share, count = inputs.accuracy, len(inputs.indices)
    if share is not None and inputs.network.output_size > 1:
        warn_of_accuracy(share, count, scaled=inputs.data.scale != 1.0)
    around = inputs.around
    width = np.asarray(around.high, np.float64) - np.asarray(around.low, np.float64)
    if around.reach is None and around.epsilon > 0 and bool(np.all(around.epsilon >= width)):
        sys.stderr.write(
            f"warning: a radius of {around.epsilon:g} covers all legal values; it is in the units of the data\n"
        )


def warn_of_accuracy(share: float, count: int, scaled: bool = False) -> None:
    """An accuracy that looks like wrong preprocessing is said at once."""
    if share >= TOLD:
        return
    sys.stderr.write(
        f"warning: the network classifies {round(share * count)} of {count} of these inputs as labelled; "
        "are preprocessing (scale, mean, std, channels, layout) and labels right?\n"
    )
    if scaled:
        sys.stderr.write("bytes are read as 0 to 1; for a network that reads 0 to 255, scale is 1/255\n")


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of a data set on one network, and what is asked around each.

    `reference` says what must not change: the data's label, or what the network predicts.
    """

    network: Network
    data: Dataset
    indices: tuple[int, ...]
    around: Around
    prop: Property
    reference: Mode = "label"
    class_names: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse data that does not belong to the network, or lies outside of the legal range."""
        check_shape(self.data, self.network)
        check_range(self.data, self.indices, self.around.low, self.around.high)
        check_labels(self.data, self.indices, self.reference)

    @cached_property
    def clean(self) -> dict[int, Array]:
        """The network's outputs at the inputs themselves."""
        points = [self.data.image(i) for i in self.indices]
        found = self.network.compute(outputs_at, self.network, points)
        return {i: y.astype(np.float64) for i, y in zip(self.indices, found, strict=True)}

    def predicted(self, index: int) -> int:
        return int(self.clean[index].argmax())

    def label(self, index: int) -> int:
        """What must not change."""
        return int(self.data.labels[index]) if self.reference == "label" else self.predicted(index)

    def named(self, label: int) -> str:
        """A class by its name, where it has one."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)

    @property
    def accuracy(self) -> float | None:
        """The share of inputs whose label is predicted."""
        known = [i for i in self.indices if self.data.labels[i] != NO_LABEL]
        right = sum(self.predicted(i) == int(self.data.labels[i]) for i in known)
        return right / len(known) if known else None

    def references(self) -> dict[int, Reference]:
        """By position in the data set."""
        return {
            i: self.around.reference(self.data.image(i), self.label(i), self.data.origin(i))
            for i in self.indices
        }

    def verdicts(self, oracle: OracleLike) -> Iterator[InputVerdict]:
        """As they are known; misclassified inputs first."""
        prop = Whole(self.prop, self.around.integers) if self.around.integers else self.prop
        waiting: dict[int, Reference] = {}
        for index, reference in self.references().items():
            if misclassified(prop, [self.network], reference, self.clean[index]):
                keep_misclassified(oracle, prop, [self.network], reference)
                yield self._blank(index, "misclassified")
            else:
                waiting[index] = reference
        order = list(waiting)
        for k, finding in decide_many(oracle, prop, [self.network], [waiting[i] for i in order]):
            yield self.verdict(order[k], waiting[order[k]], finding)

    def _blank(self, index: int, status: Literal["open", "misclassified"], reason: str = "") -> InputVerdict:
        label, predicted = self.named(self.label(index)), self.named(self.predicted(index))
        return InputVerdict(index, status, label, predicted, self.around.epsilon, reason=reason)

    def unasked(self, index: int) -> InputVerdict:
        """Of an input that nobody came to."""
        return self._blank(index, "open", "interrupted before it was decided")

    def verdict(self, index: int, reference: Reference, finding: Finding) -> InputVerdict:
        """A finding for people."""
        answer, status = finding.answer, finding.status
        found = finding.witness
        return InputVerdict(
            index,
            "proved" if status is PropertyStatus.PROVED else "open" if found is None else "refuted",
            self.named(reference.label),
            self.named(self.predicted(index)),
            self.around.epsilon,
            answer.verifier,
            round(sum(a.seconds for a in finding.answers) or answer.seconds, 4),
            finding.reason if status is PropertyStatus.OPEN else "",
            tuple(sorted(f.value for f in answer.flags)),
            answer.reused,
            None if found is None else self._counterexample(index, reference, found),
        )

    def _counterexample(self, index: int, reference: Reference, witness: Witness) -> Counterexample:
        shape = self.data.shape
        lower, upper = (side.reshape(shape) for side in self.prop.region(reference))
        return Counterexample(
            index,
            witness.x.astype(np.float64).reshape(shape),
            np.asarray(reference.x, np.float64).reshape(shape),
            self.named(reference.label),
            self.named(int(witness.y.argmax())),
            self.around.distance(reference.x, witness.x),
            witness.y.astype(np.float64),
            lower,
            upper,
            self.data.features,
            self.class_names,
        )
