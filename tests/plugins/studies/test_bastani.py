"""003: both estimators on a network of the examples, and judgements on made-up rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifolio import Dataset, Network
from verifolio.data import load_data
from verifolio.plugins.studies.bastani import networks, tables
from verifolio.plugins.studies.bastani.closest import LEVELS, WAYS, Nearest, nearest
from verifolio.plugins.studies.bastani.measure import Distances
from verifolio.plugins.studies.bastani.networks import NAMES, keep, lenet, load
from verifolio.plugins.studies.study import Size, Tables

NETWORK = Path(__file__).resolve().parents[3] / "examples" / "networks" / "digits_dense.onnx"


@pytest.mark.parametrize("way", WAYS)
def test_counterexamples_are_where_they_are_said_to_be(way: str) -> None:
    network, data = Network.load(NETWORK), load_data("digits:test")
    found = list(nearest(network, data, range(6), way, 0.0, 20.0))
    assert len(found) == 6
    seen = [(k, one) for k, one in enumerate(found) if one.point is not None]
    assert seen
    for k, one in seen:
        assert one.point is not None and one.distance is not None
        assert one.distance == pytest.approx(LEVELS * np.abs(one.point - data.image(k)).max())
        assert int(network.replay(one.point.astype(np.float32)).argmax()) != one.predicted
        assert one.near == (one.distance <= 20)


def test_networks_are_loaded_as_they_were_kept(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(1)
    model, x = lenet(), torch.rand(8, 1, 28, 28)
    keep(model, tmp_path / "a.onnx", x)
    other = lenet()
    load(other, tmp_path / "a.npz")
    with torch.no_grad():
        wanted = model(x).numpy()
        assert np.array_equal(other(x).numpy(), wanted)
    got = Network.load(tmp_path / "a.onnx").replay(x[0].numpy())
    assert got == pytest.approx(wanted[0], abs=1e-4)


def test_a_round_is_attacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round learns from the counterexamples of the first, too, and does not look for them again."""
    import torch

    drawn = np.random.default_rng(0).integers(0, 256, (3, 784)).astype(np.uint8)
    data = Dataset("mnist", "train", drawn, np.array([4, 7, 9]), (1, 28, 28), 10, scale=255.0)
    family = networks.Family(tmp_path, networks.Training(3, 1, 3, 1.0))
    for name in ("lenet", "lp-1"):
        keep(lenet(), family.path(name), torch.rand(8, 1, 28, 28))
    asked = []

    def some(network: Network, data: Dataset, images: range, *_more: object) -> list[Nearest]:
        asked.append(network.path.name)
        distances = (3.0, 21.0, None)
        return [
            Nearest(0, d, None if d is None else data.image(i), True, 0.1)
            for i, d in zip(images, distances, strict=True)
        ]

    monkeypatch.setattr(networks, "dataset", lambda _name, _split: data)
    monkeypatch.setattr(networks, "nearest", some)
    for _ in range(2):
        points, labels = family.found("lp", 2)
        assert labels.tolist() == [4, 4], "one of three is within 20 levels, in both rounds"
        assert np.allclose(points[0].numpy().ravel(), drawn[0] / 255)
    assert asked == [family.path("lenet").name, family.path("lp-1").name]


def row(network: str, way: str, image: int, distance: float | None) -> dict[str, str]:
    text = "" if distance is None else str(distance)
    base = {"network": network, "way": way, "image": str(image), "predicted": "1", "distance": text}
    return base | {"rounded": "" if distance is None else "no" if image == 0 else "yes", "seconds": "1"}


def rows(network: str, way: str, near: int, n: int = 200) -> list[dict[str, str]]:
    return [row(network, way, k, 10.0 if k < near else 30.0 if k % 2 else None) for k in range(n)]


def test_frequency_and_severity() -> None:
    found = Tables({"distances": rows("lenet", "lp", 5, 100)})
    assert tables.frequency(found, "lenet", "lp") == 5.0
    assert tables.severity(found, "lenet", "lp") == 10.0
    assert tables.frequency(found, "lenet", "baseline") is None
    assert tables.count_within(found.of("distances"), 40) == "53"


@pytest.mark.parametrize(("near", "said"), [(60, "confirmed"), (12, "not decided"), (1, "refuted")])
def test_a_difference_must_be_larger_than_chance(near: int, said: str) -> None:
    every = [*rows("lenet", "baseline", 10), *rows("lenet", "lp", near)]
    found = tables.statements(Tables({"distances": every}))
    assert str(found[0].judgement) == said
    assert {str(s.judgement) for s in found[1:]} == {"not decided"}


def test_every_network_gets_some_rows_before_any_has_all() -> None:
    keys = Distances().wanted(Size())
    assert len(set(keys)) == len(keys) == 1000 * 2 * 5
    assert {network for network, _, _ in keys[:1000]} == set(NAMES)
