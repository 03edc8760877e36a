"""002, Casadio et al. 2022: four definitions of robustness, trained for and measured."""

from __future__ import annotations

from ..study import Part, Study
from . import tables
from .measure import Accuracies, Satisfaction, Security
from .networks import REGIMES, VERIFIED
from .sampled import Sampled
from .tables import Pair

ABOUT = """
The paper compares classification (CR), strong classification (SCR), standard (SR) and Lipschitz robustness (LR) as
properties to train for, to attack and to verify, on Fashion-MNIST and on ten classes of traffic signs. Here its
networks (one hidden layer, outputs clamped to 100) are trained by `verifolio train` with the paper's parameters, with
a tenth of its epochs at ten times its rate; every question of table 1 is decided by the default portfolio (60 s; the
paper has Marabou), and curves come from projected gradients on the property itself, with every violation replayed.
Earlier results on Fashion-MNIST, also with the authors' program followed where it differs from the paper, and on the
18-layer network are on [the page of training](../measurements/training.md#casadio-et-al-2022).
"""
ALL = tuple(REGIMES)
FIGURES: dict[int, tuple[str, list[Pair]]] = {
    2: (
        "SR and LR training under three attacks",
        [(a, n) for n in ("SR", "LR") for a in ("SR", "SCR", "LR")],
    ),
    3: (
        "adversarial training, augmentation and constraint loss",
        [(a, n) for a in ("SR", "SCR") for n in ALL[:6]],
    ),
    5: ("constraint losses under SR attacks", [("SR", n) for n in VERIFIED]),
    6: ("all regimes under SR attacks", [("SR", n) for n in ALL]),
    7: ("all regimes under LR attacks", [("LR", n) for n in ALL]),
    8: ("all regimes under SCR attacks", [("SCR", n) for n in ALL]),
    9: ("constraint losses under SR attacks", [("SR", n) for n in VERIFIED]),
    10: ("constraint losses under LR attacks", [("LR", n) for n in VERIFIED]),
    11: ("constraint losses under SCR attacks", [("SCR", n) for n in VERIFIED]),
    12: ("adversarial training under three attacks", [(a, "Adv") for a in ("SR", "SCR", "LR")]),
    13: ("SR training under three attacks", [(a, "SR") for a in ("SR", "SCR", "LR")]),
    14: ("LR training under three attacks", [(a, "LR") for a in ("SR", "SCR", "LR")]),
}
MORE = {3: tables.large}
CLAIMS = {2: tables.figure2, 3: tables.figure3, 5: tables.figure5}
ABSENT = {
    1: ("the cycle of training and verification", "It is a drawing; `verifolio cycle` runs such a cycle."),
    4: ("pictures of MNIST", "It shows pictures of the data; there is nothing to measure."),
}


def _figure(number: int) -> Part:
    if number in ABSENT:
        return Part("figure", number, ABSENT[number][0], absent=ABSENT[number][1])
    title, pairs = FIGURES[number]
    needs = Security(tuple(dict.fromkeys(a for a, _ in pairs)), tuple(dict.fromkeys(n for _, n in pairs)))
    return Part(
        *("figure", number, title, tables.curves(pairs, CLAIMS.get(number), MORE.get(number)), (needs,)),
        draw=tables.drawn(pairs),
    )


PARTS = (
    Part("table", 1, "constraint satisfaction", tables.satisfaction, (Satisfaction(), Sampled())),
    Part(
        "table",
        2,
        "a comparison of the definitions",
        absent="It compares definitions; nothing is measured.",
    ),
    Part("table", 3, "accuracy", tables.accuracy, (Accuracies(),)),
    *(_figure(number) for number in range(1, 15)),
)
STUDY = Study(
    "002",
    "Neural network robustness as a verification property",
    "Casadio, Komendantskaya, Daggitt, Kokke, Katz, Amir, Refaeli, 2022 (CAV).",
    ABOUT,
    PARTS,
)
