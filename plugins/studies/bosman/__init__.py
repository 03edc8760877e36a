"""004, Bosman et al. 2025: robustness distributions on MNIST, CIFAR-10 and GTSRB."""

from __future__ import annotations

from functools import partial

from ..study import Part, Study
from . import boxes, figures, searches, tables
from .accuracy import CLEAN, RADII, SMALL, Accuracy
from .architectures import Architectures
from .brackets import Brackets
from .kbinary import KBinary
from .records import Boxes, Larger, Pairs, Recomputed, SameImages
from .refuted import Refuted
from .subjects import ALL, CIFAR, CONVOLUTIONAL, DENSE, FIRST, SIGNS

MNIST = (*FIRST, *DENSE, *CONVOLUTIONAL)
RECORDS = Recomputed()
BOXES = Boxes()
# what figures 8 to 10 show of the other data sets
SIGNS_DENSE = tuple(s for s in SIGNS if "cnn" not in s.network)
SIGNS_CNN = tuple(s for s in SIGNS if "cnn" in s.network)
CIFAR_DENSE, CIFAR_CNN = CIFAR[:3], CIFAR[3:]
FROM_RECORDS = (
    "Ours is empty where a network or its images are not public; the middle numbers come from the records."
)
ABOUT = """
The paper estimates, for every image, the largest radius without a counterexample (its critical epsilon), by binary
search over a grid with a complete verifier, and studies the distribution of these radii over images: on twelve MNIST
networks, after adversarial training, and on CIFAR-10 and GTSRB. Here the same networks, as far as they are public
(`relu_4_1024`, `convMedG`, `cifar_7_1024`, `conv_big` and all GTSRB networks are not; two of the latter are trained
again), and the same images get
brackets by `verifolio distribution`: tolerance 0.001, at most 60 s on the wall per image (300 s for CIFAR-10), one
core of a busy machine.
CIFAR-10's and GTSRB's image ids in the authors' records do not follow the official order, so those can only be
compared as distributions.
"""


def _table(number: int, title: str, show: object, *needs: object) -> Part:
    return Part("table", number, title, show, needs)  # type: ignore[arg-type]


def _figure(number: int, title: str, show: object, needs: tuple[object, ...], draw: object = None) -> Part:
    return Part("figure", number, title, show, needs, draw=draw)  # type: ignore[arg-type]


PARTS = (
    _table(1, "efficiency of k-binary search", partial(searches.k_search, number=1), KBinary()),
    _table(
        2,
        "quality of the distributions, fully connected networks",
        partial(tables.quality, number=2),
        RECORDS,
        Accuracy((*DENSE, *SIGNS)),
        Brackets((*DENSE, *SIGNS)),
    ),
    _table(
        3,
        "quality of the distributions, convolutional networks",
        partial(tables.quality, number=3),
        RECORDS,
        Accuracy((*CONVOLUTIONAL, *CIFAR)),
        Brackets((*CONVOLUTIONAL, *CIFAR)),
    ),
    _table(4, "queries of k-binary search", partial(searches.k_search, number=4), KBinary()),
    _table(
        5,
        "radii of the twelve MNIST networks",
        partial(tables.radii, number=5),
        RECORDS,
        Accuracy(FIRST),
        Brackets(FIRST),
    ),
    _table(6, "100 and 400 images", tables.samples, Larger()),
    _table(7, "running time, MNIST", partial(tables.times, number=7), RECORDS, Brackets(FIRST)),
    _table(
        8,
        "radii after adversarial training, MNIST",
        partial(tables.radii, number=8),
        RECORDS,
        SameImages(),
        Accuracy((*DENSE, *CONVOLUTIONAL)),
        Brackets((*DENSE, *CONVOLUTIONAL)),
    ),
    _table(9, "radii, CIFAR-10", partial(tables.radii, number=9), RECORDS, Accuracy(CIFAR), Brackets(CIFAR)),
    _table(10, "radii, GTSRB", tables.signs, RECORDS, Accuracy(SIGNS), Brackets(SIGNS)),
    _table(
        11,
        "running time after adversarial training, MNIST",
        partial(tables.times, number=11),
        RECORDS,
        Brackets((*DENSE, *CONVOLUTIONAL)),
    ),
    _table(12, "running time, CIFAR-10", partial(tables.times, number=12), RECORDS, Brackets(CIFAR)),
    _table(13, "running time, GTSRB", partial(tables.times, number=13), RECORDS, Brackets(SIGNS)),
    _table(
        14,
        "accuracy under attack, MNIST",
        partial(tables.accuracies, number=14),
        Accuracy((*DENSE, *CONVOLUTIONAL), (CLEAN, *RADII)),
    ),
    _table(
        15,
        "accuracy under attack, CIFAR-10",
        partial(tables.accuracies, number=15),
        Accuracy(CIFAR, (CLEAN, *SMALL)),
    ),
    _table(
        16,
        "accuracy under attack, GTSRB",
        partial(tables.accuracies, number=16),
        Accuracy(SIGNS, (CLEAN, *SMALL)),
    ),
    _table(17, "sizes of the MNIST networks", partial(tables.sizes, number=17), Architectures(ALL)),
    _table(18, "sizes of the CIFAR-10 networks", partial(tables.sizes, number=18), Architectures(ALL)),
    _table(19, "sizes of the GTSRB networks", partial(tables.sizes, number=19), Architectures(ALL)),
    _table(20, "training of the MNIST networks", partial(tables.training, number=20)),
    _table(21, "training of the CIFAR-10 networks", partial(tables.training, number=21)),
    _table(22, "training of the GTSRB networks", partial(tables.training, number=22)),
    _table(
        23, "verified against falsified radii", tables.two_sides, RECORDS, Brackets((*DENSE, *CONVOLUTIONAL))
    ),
    _figure(1, "time of k-binary search", searches.clocks, (KBinary(),), searches.draw_clocks),
    _figure(
        2,
        "radii of training images",
        figures.robust_accuracy,
        (RECORDS, BOXES, Brackets(FIRST)),
        boxes.box_picture(FIRST, ("train",), (0.012, 0.04)),
    ),
    _figure(
        3,
        "networks with the highest and lowest medians",
        figures.highest,
        (BOXES, Brackets(FIRST)),
        boxes.curve_picture(FIRST, "train"),
    ),
    _figure(
        4,
        "training beside test images",
        figures.splits,
        (RECORDS, BOXES, Brackets(FIRST)),
        boxes.box_picture(FIRST, ("train", "test")),
    ),
    _figure(
        5,
        "training and test images of relu_4_1024 and nn",
        boxes.box_figure((FIRST[4], FIRST[-1]), ("train", "test")),
        (BOXES, Brackets(FIRST)),
        boxes.curve_picture((FIRST[4], FIRST[-1])),
    ),
    _figure(
        6,
        "correlation of the networks' radii",
        figures.heat_map,
        (Pairs(), Brackets(FIRST)),
        figures.draw_heat,
    ),
    _figure(7, "pairs of networks", figures.pairs_shown, (Pairs(), Brackets(FIRST)), figures.draw_scatter),
    _figure(
        8,
        "distributions after adversarial training",
        boxes.box_figure((*DENSE, *CIFAR_DENSE, *SIGNS_DENSE), ("test",)),
        (BOXES, Brackets((*DENSE, *SIGNS))),
        boxes.curve_picture(DENSE),
    ),
    _figure(
        9,
        "boxes after adversarial training",
        boxes.box_figure((*DENSE, *SIGNS_DENSE), ("train", "test")),
        (BOXES, Brackets(DENSE)),
        boxes.box_picture(DENSE, ("train", "test")),
    ),
    _figure(
        10,
        "distributions of convolutional networks",
        boxes.box_figure((*CONVOLUTIONAL, *CIFAR_CNN, *SIGNS_CNN), ("test",)),
        (BOXES, Brackets((*CONVOLUTIONAL, *CIFAR))),
        boxes.curve_picture(CONVOLUTIONAL),
    ),
    _figure(
        11,
        "boxes of convolutional networks",
        boxes.box_figure(CONVOLUTIONAL, ("train", "test")),
        (BOXES, Brackets(CONVOLUTIONAL)),
        boxes.box_picture(CONVOLUTIONAL, ("train", "test")),
    ),
    _figure(
        12,
        "100 and 400 images, with fitted log-normal distributions",
        figures.larger,
        (Larger(),),
        boxes.curve_picture(FIRST, "test", overlay=True),
    ),
    _figure(
        13,
        "gaps, MNIST, and refuted radii",
        figures.mnist_gaps,
        (RECORDS, BOXES, Refuted(MNIST), Brackets(MNIST)),
        boxes.gap_picture(MNIST),
    ),
    _figure(14, "gaps, CIFAR-10", boxes.gaps(CIFAR), (RECORDS, BOXES, Brackets(CIFAR))),
    _figure(15, "gaps, GTSRB", boxes.gaps(SIGNS), (RECORDS, BOXES, Brackets(SIGNS))),
)
STUDY = Study(
    "004",
    "Robustness distributions in neural network verification",
    "Bosman, Berger, Hoos, van Rijn, 2025 (Journal of Artificial Intelligence Research).",
    ABOUT + "\n" + FROM_RECORDS,
    PARTS,
)
