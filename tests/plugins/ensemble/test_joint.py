"""The joint query: both forms, ties, norms, files for other tools, the property's loss."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verifolio.errors import InputError
from verifolio.model.answer import Verdict
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.manager import current_plugins
from verifolio.plugin.property import Points, Reference
from verifolio.plugins.ensemble.compose import headed, merge
from verifolio.plugins.ensemble.joint import JointOptions, SimultaneousMisclassification, average_query
from verifolio.plugins.ensemble.keep import keep_query
from verifolio.vnnlib import load

EXAMPLES = Path(__file__).parents[3] / "examples" / "ensemble"


def pair(tiny: Any, folder: Path, classes: int = 3, seed: int = 1) -> tuple[Network, ...]:
    found: tuple[Network, ...] = tiny.random_ensemble(np.random.default_rng(seed), folder, 2, classes)
    return found


def query(networks: tuple[Network, ...], reference: Reference, form: str) -> Query:
    return SimultaneousMisclassification(JointOptions(form=form)).query(networks, reference)  # type: ignore[arg-type]


def test_the_property_is_registered() -> None:
    assert current_plugins().properties.get("simultaneous-misclassification") is SimultaneousMisclassification


def test_both_forms_agree(tiny: Any, tmp_path: Path) -> None:
    """The disjunction over labels, and one margin per network."""
    seen = set()
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        networks = pair(tiny, folder, 3, seed)
        rng = np.random.default_rng(seed)
        for reference in tiny.random_points(rng, 2, 3, math.inf):
            with tiny.inline() as oracle:
                dnf = oracle.ask(query(networks, reference, "dnf")).verdict
                margin = oracle.ask(query(networks, reference, "margin")).verdict
            assert dnf is margin
            seen.add(dnf)
            truth = tiny.true_sets(networks, reference)
            assert (dnf is Verdict.SAT) == (0b11 in truth)
    assert seen == {Verdict.SAT, Verdict.UNSAT}


def test_the_form_follows_the_size(tiny: Any, tmp_path: Path) -> None:
    networks = pair(tiny, tmp_path)
    reference = Reference(np.zeros(2), 0, 0.5)
    small = SimultaneousMisclassification().query(networks, reference)
    assert len(small.specification.cases[0].disjuncts) == 4
    large = SimultaneousMisclassification(JointOptions(limit=3)).query(networks, reference)
    assert len(large.specification.cases[0].disjuncts) == 1
    assert large.graph.output_size == 2


def test_a_headed_network_computes_the_margin(tmp_path: Path) -> None:
    network = Network.load(EXAMPLES / "digits_a.onnx")
    rng = np.random.default_rng(0)
    for label in (0, 9):
        head = headed(network, label, str(tmp_path))
        assert headed(network, label, str(tmp_path)).sha256 == head.sha256
        for x in rng.uniform(0, 1, (5, 64)).astype(np.float32):
            y = network.replay(x)
            assert head.replay(x)[0] == np.delete(y, label).max() - y[label]


def test_merged_networks_compute_what_they_did(tmp_path: Path) -> None:
    networks = [Network.load(EXAMPLES / f"digits_{n}.onnx") for n in "ad"]
    centre = np.full(64, 0.25)
    merge(networks, tmp_path / "joint.onnx", centre)
    joint = Network.load(tmp_path / "joint.onnx")
    x = np.random.default_rng(0).uniform(0, 1, 64).astype(np.float32)
    y = joint.replay(x)
    assert y[:20].tolist() == [*networks[0].replay(x), *networks[1].replay(x)]
    assert abs(y[20] - np.abs(x - 0.25).sum()) < 1e-4
    assert joint.graph.output_size == 21
    with pytest.raises(InputError, match="float32"):
        merge(networks, tmp_path / "bad.onnx", np.full(64, 0.1))


@pytest.mark.parametrize("norm", [math.inf, 1.0])
def test_kept_queries_mean_the_same(tiny: Any, tmp_path: Path, norm: float) -> None:
    """The 1.0 file on the merged network, and the 2.0 file on the networks, answered like the query."""
    seen = set()
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        networks = pair(tiny, folder, 3, seed)
        reference = tiny.random_points(np.random.default_rng(seed), 1, 3, norm)[0]
        one, two, merged = keep_query(folder / "kept", "q", networks, reference)
        more = sorted((folder / "kept").glob("distance-*.onnx"))
        with tiny.inline() as oracle:
            asked = oracle.ask(query(networks, reference, "dnf")).verdict
            first = oracle.ask(Query((Network.load(merged),), load(one))).verdict
            several = (*networks, *(Network.load(d) for d in more))
            second = oracle.ask(Query(several, load(two))).verdict
        assert len(more) == (norm == 1.0)
        assert first is asked
        assert second in (asked, Verdict.UNKNOWN)
        seen.add(asked)
    assert seen == {Verdict.SAT, Verdict.UNSAT}


def test_an_l2_ball_has_no_file(tiny: Any, tmp_path: Path) -> None:
    networks = pair(tiny, tmp_path)
    (note,) = keep_query(tmp_path / "kept", "q", networks, Reference(np.zeros(2), 0, 0.5, 2.0))
    assert "no form" in note.read_text()


def test_the_loss_is_nought_exactly_where_the_property_holds() -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy(np.round(rng.normal(size=(400, 6)) * 2) / 2)  # coarse, so that ties occur
    labels = torch.from_numpy(rng.integers(0, 3, 400))
    x = torch.zeros(400, 1)
    points = Points(x, y, x, y, labels, 0.1)
    prop = SimultaneousMisclassification()
    satisfied = prop.satisfied(points)
    assert ((prop.loss(points) == 0) == satisfied).all()
    for k in range(400):
        right = []
        for block in (y[k, :3], y[k, 3:]):
            own = block[labels[k]]
            right.append(all(own > v for j, v in enumerate(block) if j != labels[k]))
        assert bool(satisfied[k]) == any(right)


def test_the_average_is_that_of_the_outputs(tiny: Any, tmp_path: Path) -> None:
    left = tiny.linear(tmp_path / "l.onnx", [[0, 0], [-1, 0]], [0.0, -1.0])
    right = tiny.linear(tmp_path / "r.onnx", [[0, 0], [2, 0]], [0.0, -1.0])
    near = Reference(np.zeros(2), 0, 1.5, math.inf, -math.inf, math.inf)
    far = Reference(np.zeros(2), 0, 2.5, math.inf, -math.inf, math.inf)
    with tiny.inline() as oracle:
        assert oracle.ask(average_query((left, right), near)).verdict is Verdict.UNSAT
        assert oracle.ask(average_query((left, right), far)).verdict is Verdict.SAT


def test_networks_must_fit(tiny: Any, tmp_path: Path) -> None:
    networks = pair(tiny, tmp_path)
    prop = SimultaneousMisclassification()
    for reference, message in (
        (Reference(np.zeros(2), 7, 0.1), "label 7"),
        (Reference(np.zeros(3), 0, 0.1), "3 inputs"),
    ):
        with pytest.raises(InputError, match=message):
            prop.query(networks, reference)
    with pytest.raises(InputError, match="at least one"):
        prop.query((), Reference(np.zeros(2), 0, 0.1))
