"""004, Bosman et al. 2025: robustness distributions on MNIST, CIFAR-10 and GTSRB."""

from __future__ import annotations

from functools import partial

from ..study import Part, Study
from . import figures, searches, tables
from .accuracy import CLEAN, RADII, Accuracy
from .architectures import Architectures
from .brackets import Brackets
from .kbinary import KBinary
from .records import Larger, Pairs, Recomputed, SameImages
from .refuted import Refuted
from .subjects import ALL, CIFAR, CONVOLUTIONAL, DENSE, FIRST, SIGNS

MNIST = (*FIRST, *DENSE, *CONVOLUTIONAL)
RECORDS = Recomputed()
FROM_RECORDS = (
    "Ours is empty where a network or its images are not public; the middle numbers come from the records."
)
ABOUT = """
The paper estimates, for every image, the largest radius without a counterexample (its critical epsilon), by binary
search over a grid with a complete verifier, and studies the distribution of these radii over images: on twelve MNIST
networks, after adversarial training, and on CIFAR-10 and GTSRB. Here the same networks, as far as they are public
(`relu_4_1024`, `convMedG`, `cifar_7_1024`, `conv_big` and all GTSRB networks are not), and the same images get
brackets by `verifolio distribution`: tolerance 0.001, at most 60 s on the wall per image, one core of a busy machine.
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
        Accuracy(DENSE),
        Brackets(DENSE),
    ),
    _table(
        3,
        "quality of the distributions, convolutional networks",
        partial(tables.quality, number=3),
        RECORDS,
        Accuracy(CONVOLUTIONAL),
        Brackets(CONVOLUTIONAL),
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
    _table(9, "radii, CIFAR-10", partial(tables.radii, number=9), RECORDS),
    _table(10, "radii, GTSRB", partial(tables.radii, number=10), RECORDS),
    _table(
        11,
        "running time after adversarial training, MNIST",
        partial(tables.times, number=11),
        RECORDS,
        Brackets((*DENSE, *CONVOLUTIONAL)),
    ),
    _table(12, "running time, CIFAR-10", partial(tables.times, number=12), RECORDS),
    _table(13, "running time, GTSRB", partial(tables.times, number=13), RECORDS),
    _table(
        14,
        "accuracy under attack, MNIST",
        partial(tables.accuracies, number=14),
        Accuracy((*DENSE, *CONVOLUTIONAL), (CLEAN, *RADII)),
    ),
    _table(15, "accuracy under attack, CIFAR-10", partial(tables.accuracies, number=15)),
    _table(16, "accuracy under attack, GTSRB", partial(tables.accuracies, number=16)),
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
        (RECORDS, Brackets(FIRST)),
        figures.box_picture(FIRST, ("train",), (0.012, 0.04)),
    ),
    _figure(
        3,
        "networks with the highest and lowest medians",
        figures.highest,
        (Brackets(FIRST),),
        figures.curve_picture(FIRST, "train"),
    ),
    _figure(
        4,
        "training beside test images",
        figures.splits,
        (RECORDS, Brackets(FIRST)),
        figures.box_picture(FIRST, ("train", "test")),
    ),
    _figure(
        5,
        "training and test images of two networks",
        figures.box_figure((FIRST[0], FIRST[-1]), ("train", "test")),
        (Brackets(FIRST),),
        figures.curve_picture((FIRST[0], FIRST[-1])),
    ),
    _figure(
        6,
        "correlation of the networks' radii",
        figures.heat_map,
        (Pairs(), Brackets(FIRST)),
        figures.draw_heat,
    ),
    _figure(7, "pairs of networks", figures.pairs_shown, (Brackets(FIRST),), figures.draw_scatter),
    _figure(
        8,
        "distributions after adversarial training",
        figures.box_figure(DENSE, ("test",)),
        (Brackets(DENSE),),
        figures.curve_picture(DENSE),
    ),
    _figure(
        9,
        "boxes after adversarial training",
        figures.box_figure(DENSE, ("train", "test")),
        (Brackets(DENSE),),
        figures.box_picture(DENSE, ("train", "test")),
    ),
    _figure(
        10,
        "distributions of convolutional networks",
        figures.box_figure(CONVOLUTIONAL, ("test",)),
        (Brackets(CONVOLUTIONAL),),
        figures.curve_picture(CONVOLUTIONAL),
    ),
    _figure(
        11,
        "boxes of convolutional networks",
        figures.box_figure(CONVOLUTIONAL, ("train", "test")),
        (Brackets(CONVOLUTIONAL),),
        figures.box_picture(CONVOLUTIONAL, ("train", "test")),
    ),
    _figure(
        12,
        "100 and 400 images, with fitted log-normal distributions",
        figures.larger,
        (Larger(),),
        figures.curve_picture(FIRST, "test", overlay=True),
    ),
    _figure(
        13,
        "gaps, MNIST, and refuted radii",
        figures.mnist_gaps,
        (RECORDS, Refuted(MNIST), Brackets(MNIST)),
        figures.gap_picture(MNIST),
    ),
    _figure(14, "gaps, CIFAR-10", figures.gaps(CIFAR), (RECORDS,)),
    _figure(15, "gaps, GTSRB", figures.gaps(SIGNS), (RECORDS,)),
)
STUDY = Study(
    "004",
    "Robustness distributions in neural network verification",
    "Bosman, Berger, Hoos, van Rijn, 2025 (Journal of Artificial Intelligence Research).",
    ABOUT + "\n" + FROM_RECORDS,
    PARTS,
)
