"""001, Amir et al. 2022: ensembles of diverse members, selected by verification."""

from __future__ import annotations

from functools import partial

from ..study import Part, Study
from . import curves, tables
from .mutual import Accuracies, Mutual
from .robust import Robust, Whole

ABOUT = """
The paper scores the members of an ensemble by how often two of them can be fooled by one input near a point on which
all agree, and replaces the least unique member. Here ten networks 784-30-10 per data set are trained on the first
50 000 training images; agreement points labelled 0 come from the other 10 000, which nobody was trained on, as in the
paper (validation data). `verifolio ensemble select` decides every mutual error (60 s per question; the paper has two
hours), the paper's gradient attacks run on the same balls, and whole ensembles are verified at random test points.
Swaps follow the mutual errors of all radii found so far; of whole ensembles only rows of the present choice count.
"""
DRAWING = "It is a drawing that explains the method; there is nothing to measure."
SCORES = (Accuracies(), Mutual())
CURVES = (Mutual(), Whole(), Robust())
PARTS = (
    Part("table", 1, "accuracy and uniqueness, MNIST", partial(tables.networks, data="mnist"), SCORES),
    Part(
        "table",
        2,
        "accuracy and uniqueness, Fashion-MNIST",
        partial(tables.networks, data="fashion-mnist"),
        SCORES,
    ),
    Part("table", 3, "mutual errors by attack and by verification", tables.attacks, (Mutual(),)),
    Part("figure", 1, "a toy network", absent=DRAWING),
    Part("figure", 2, "an ensemble of three networks", absent=DRAWING),
    Part(
        "figure",
        3,
        "a mutual error",
        absent="It shows one pair of pictures; `--picture` of the command draws such pairs.",
    ),
    Part(
        *(
            "figure",
            4,
            "robust accuracy of ensembles, MNIST",
            partial(curves.robust_accuracy, data="mnist"),
            CURVES,
        ),
        draw=partial(curves.draw, data="mnist"),
    ),
    Part(
        *("figure", 5, "robust accuracy of ensembles, Fashion-MNIST"),
        *(partial(curves.robust_accuracy, data="fashion-mnist"), CURVES),
        draw=partial(curves.draw, data="fashion-mnist"),
    ),
)
STUDY = Study(
    "001",
    "Verification-aided deep ensemble selection",
    "Amir, Zelazny, Katz, Schapira, 2022 (FMCAD).",
    ABOUT,
    PARTS,
)
