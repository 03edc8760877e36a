"""The conformance kit on the estimator, and the section on a few records."""

from pathlib import Path

from verifolio_labels import Batch, ByLabel, Count, Counts

from verifolio import Material
from verifolio.testing import EXAMPLES, EstimatorConformance


class TestCount(EstimatorConformance):
    make = Count

    def request(self, folder: Path) -> Batch:
        return Batch(tuple(e.query(folder) for e in EXAMPLES if e.name in ("corner", "peaks")))

    def check(self, result: Counts) -> None:
        assert result.sat + result.unsat + result.undecided == 2


def test_by_label() -> None:
    records = [{"label": 1, "lower": 0.2}, {"label": 1, "lower": 0.4}, {"label": 0, "lower": None}]
    (table,) = ByLabel().make(Material(records, Path())).tables
    assert table.rows == (("1", "2", "0.3"),)
