"""003, Bastani et al. 2016: adversarial frequency and severity by linear programs."""

from __future__ import annotations

from ..study import Part, Study
from . import tables
from .measure import Accuracies, Distances, Lazy

ABOUT = """
The paper estimates how often (frequency) and how closely (severity) a network fails within 20 levels of a pixel, by
linear programs in the region where the network is linear, beside the L-BFGS-B attack of Szegedy et al., and
fine-tunes networks on what either finds. Here LeNet (ReLU, max-pooling) is trained on MNIST; `pointwise-lp` and
`lbfgs` look for the closest counterexamples, every one replayed; fine-tuning attacks the first 1 000 training images,
where the paper attacks all of them, so an effect of fine-tuning can be expected to be smaller.
"""
DRAWING = "It explains the method on a toy network; there is nothing to measure."
PARTS = (
    Part(
        "table",
        1,
        "frequency and severity of fine-tuned networks",
        tables.table,
        (Accuracies(), Distances(), Lazy()),
    ),
    Part("figure", 1, "a network of eight neurons", absent=DRAWING),
    Part(
        "figure",
        2,
        "two counterexamples",
        absent="Pictures of an input and its counterexample at 17 levels (MNIST) and 3 (CIFAR-10); "
        "`verifolio critical --picture` draws such.",
    ),
    Part("figure", 3, "counterexamples by distance", tables.figure, (Distances(),), draw=tables.draw),
)
STUDY = Study(
    "003",
    "Measuring neural net robustness with constraints",
    "Bastani, Ioannou, Lampropoulos, Vytiniotis, Nori, Criminisi, 2016 (NIPS).",
    ABOUT,
    PARTS,
)
