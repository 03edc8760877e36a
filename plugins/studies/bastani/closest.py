"""The two estimators of the paper: L-BFGS-B with a penalty, and linear programs in the region of an input."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio import Ball, Dataset, Network, Oracle, Reference, current_plugins, single_verifier

LEVELS = 255.0  # of a pixel
EPSILON = 20.0  # levels: the paper's threshold
WAYS = {"baseline": "lbfgs", "lp": "pointwise-lp"}  # who estimates
# The baseline looks anywhere and counts if it ends within the threshold, as in the paper: confined to it, it would
# end at its border. The linear programs minimise the distance itself.
REACH = {"baseline": 1.0, "lp": EPSILON / LEVELS}


@dataclass(frozen=True, eq=False)
class Nearest:
    """The closest counterexample that was found: how far it is in levels, and whether rounding keeps it one."""

    predicted: int
    distance: float | None
    point: NDArray[np.float64] | None
    rounded: bool | None
    seconds: float

    @property
    def near(self) -> bool:
        """Whether it counts at the paper's threshold."""
        return self.distance is not None and self.distance <= EPSILON


def nearest(
    network: Network,
    data: Dataset,
    images: Sequence[int],
    way: str,
    margin: float,
    timeout: float,
    more: Mapping[str, object] | None = None,
) -> Iterator[Nearest]:
    """Around every image, for the label that the network predicts, so misclassified images count."""
    prop = current_plugins().properties.get("classification")()
    options = {"alpha": margin, **(more or {})}
    with Oracle(single_verifier(WAYS[way], options), timeout=timeout) as oracle:
        for image in images:
            x = data.image(image)
            predicted = int(network.replay(x.astype(np.float32)).argmax())
            query = prop.query([network], Reference(x, predicted, REACH[way], math.inf, 0.0, 1.0))
            started = time.monotonic()
            found = oracle.closest(query, Ball(x, REACH[way], math.inf))
            seconds = time.monotonic() - started
            if found.witness is None:
                yield Nearest(predicted, None, None, None, seconds)
                continue
            point = np.asarray(found.witness.x, np.float64).ravel()
            wide = prop.query([network], Reference(x, predicted, 1.0, math.inf, 0.0, 1.0))
            kept = oracle.judge(wide, np.round(point * LEVELS) / LEVELS) is not None
            yield Nearest(predicted, LEVELS * float(np.abs(point - x).max()), point, kept, seconds)
