"""The 8 x 8 handwritten digits that come with scikit-learn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from verifolio.plugin.data_source import Dataset, DataSource

TEST_EVERY = 5  # every fifth image is for testing: the data has no split of its own


class Digits(DataSource):
    """1797 images with 17 grey levels; every fifth one is a test image."""

    name: ClassVar[str] = "digits"
    splits: ClassVar[tuple[str, ...]] = ("train", "test", "all")

    def load(self, split: str) -> Dataset:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        position = np.arange(len(labels)) % TEST_EVERY
        chosen = {"train": position != TEST_EVERY - 1, "test": position == TEST_EVERY - 1}
        keep = chosen.get(split, np.ones(len(labels), bool))
        raw = images.astype(np.uint8)[keep]
        return Dataset(self.name, split, raw, labels[keep].astype(np.int64), (1, 8, 8), 10, scale=16.0)
