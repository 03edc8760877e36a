"""The metrics against what is known about a network, and the command line around them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from verifolio import Network, Oracle, Reference
from verifolio.cli.main import run
from verifolio.encode.onnx_writer import write_onnx
from verifolio.encode.torch_export import export_onnx
from verifolio.plugins.measure.metrics import Item, Row, Sampling, accuracy, satisfaction, security, summarise
from verifolio.plugins.measure.sample import draw, folded, in_unit_ball, share_interval, walk
from verifolio.portfolio.tree import single_verifier
from verifolio.properties.file import choose_property
from verifolio.properties.verdict import PropertyStatus, decide
from verifolio.testing.networks import dense_graph

SAMPLING = Sampling(samples=4000)
Sampler = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    """y = (x0, x1, 0.1): class 0 wins where x0 > x1 (and x0 > 0.1)."""
    path = tmp_path_factory.mktemp("net") / "compare.onnx"
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        layer.bias.copy_(torch.tensor([0.0, 0.0, 0.1]))
    export_onnx(layer, path, (2,))
    return Network.load(path)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle(executor="inline", timeout=5.0) as found:
        yield found


def silent(done: int, total: int, message: str) -> None:
    """Progress nobody looks at."""


def test_the_three_metrics(network: Network, oracle: Oracle) -> None:
    prop = choose_property("classification")
    references = [Reference(np.array([0.6, 0.4]), 0, radius) for radius in (0.05, 0.2)]
    items = [Item(0, 0), Item(1, 0)]
    items = satisfaction(oracle, prop, [network], references, items, silent)
    assert [i.csat for i in items] == ["proved", "refuted"]
    with Oracle(single_verifier("pgd"), "inline", timeout=1.0) as attacker:
        items = security(attacker, prop, [network], references, items, silent)
    assert [i.csec for i in items] == ["survived", "violated"]
    items = accuracy(prop, [network], references, items, SAMPLING, silent)
    # with u, v uniform in [-0.2, 0.2]: P(0.6 + u > 0.4 + v) = 1 - P(v - u > 0.2) = 1 - 1/8
    assert items[0].passed == 4000
    assert items[1].passed / 4000 == pytest.approx(7 / 8, abs=0.03)
    summary = summarise(Row("net", prop.name, 0.2, tuple(items)), SAMPLING)
    assert (summary["proved"], summary["refuted"], summary["open"]) == (1, 1, 0)
    assert summary["csat_low"] == summary["csat_high"] == summary["csec"] == 50.0
    assert float(str(summary["cacc_low"])) < 100 * (1 + 7 / 8) / 2 < float(str(summary["cacc_high"]))


def test_open_is_neither_proved_nor_refuted(network: Network) -> None:
    prop = choose_property("classification")
    with Oracle(single_verifier("pgd", {"rounds": 1, "samples": 100}), "inline", timeout=2.0) as attacker:
        finding = decide(attacker, prop, [network], Reference(np.array([0.6, 0.4]), 0, 0.05))
    assert finding.status is PropertyStatus.OPEN
    summary = summarise(Row("net", "p", 0.1, (Item(0, 0, csat="open"),)), SAMPLING)
    assert (summary["csat_low"], summary["csat_high"]) == (0.0, 100.0)


@pytest.mark.parametrize(
    ("eta", "status"), [(0.44, "proved"), (0.47, "open"), (0.55, "refuted"), (0.7, "refuted")]
)
def test_the_softmax_sandwich(eta: float, status: str, network: Network, oracle: Oracle) -> None:
    """Scores (0.9, 0.4, 0.1): the probability is 0.486, the linear bounds meet it at 0.452 and 0.622.

    Between 0.452 and 0.486 the property is true and out of reach of both queries; between 0.486 and 0.622 the
    counterexample of the first query violates it at sight.
    """
    prop = choose_property("strong-classification", {"eta": eta})
    finding = decide(oracle, prop, [network], Reference(np.array([0.9, 0.4]), 0, 0.0))
    assert finding.status.value == status


def test_samples_lie_in_their_sets() -> None:
    rng = np.random.default_rng(0)
    prop = choose_property("classification")
    for norm in (1.0, 2.0, np.inf):
        reference = Reference(np.array([0.1, 0.5, 0.95]), 0, 0.3, norm)
        x = draw(prop, reference, 500, rng)
        assert bool((x >= 0).all()) and bool((x <= 1).all())
        assert float(np.linalg.norm(x - reference.x, ord=norm, axis=1).max()) <= 0.3 + 1e-12
    for norm in (1.0, 2.0):  # half the volume lies within 2^(-1/n) of the radius
        lengths = np.linalg.norm(in_unit_ball(5, 20000, norm, rng), ord=norm, axis=1)
        assert (lengths < 0.5 ** (1 / 5)).mean() == pytest.approx(0.5, abs=0.02)


def test_intervals_of_shares() -> None:
    low, high = share_interval(0, 100, 0.95, "exact")
    assert low == 0 and high == pytest.approx(1 - 0.025 ** (1 / 100), rel=1e-6)
    low, high = share_interval(50, 100, 0.95, "wilson")
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-3)
    assert share_interval(0, 0, 0.95, "wilson") == (0.0, 1.0)


def command(network: Network, folder: Path, *more: str) -> list[str]:
    np.savez(folder / "points.npz", images=np.array([[0.6, 0.4], [0.9, 0.1]]), labels=np.array([0, 0]))
    start = ["measure", str(network.path), "--data", str(folder / "points.npz"), "--indices", "0:2"]
    return [*start, "--executor", "inline", "--timeout", "2", "--attack-timeout", "1", *more]


def test_misclassified_inputs_are_counted_as_verify_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    network = str(Path(__file__).resolve().parents[3] / "examples/networks/digits_dense.onnx")
    ask = [network, "--data", "digits", "--indices", "0:4", "--epsilon", "0.05", "--json", "--timeout", "60"]
    ask += ["--executor", "inline", "--verifier", "crown"]
    assert run(["verify", *ask]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert run(["measure", *ask, "--metrics", "csat,csec", "--attack", "pgd"]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["rows"]
    assert {name: row[name] for name in counts} == counts and counts["misclassified"] == 1
    assert (row["csat_low"], row["csat_high"]) == (50.0, 50.0)  # in shares it counts against the network
    assert row["csec"] == 50.0
    assert [i["csec"] for i in told["items"][0]] == ["survived", "violated", "survived", "misclassified"]


def test_the_command_resumes_and_writes(
    network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        "--csv",
        str(tmp_path / "s.csv"),
        "--items",
        str(tmp_path / "i.csv"),
        "--picture",
        str(tmp_path / "c.svg"),
    ]
    arguments = command(network, tmp_path, "--epsilon", "0.05,0.2", "--store", str(tmp_path / "db"), *files)
    assert run([*arguments, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [(r["proved"], r["refuted"]) for r in first["rows"]] == [(2, 0), (1, 1)]
    assert run([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == first["rows"]  # times too: nothing was run again
    with (tmp_path / "i.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert (tmp_path / "c.svg").stat().st_size > 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--epsilon", "-1"), "epsilon"),
        (("--epsilon", "0.1", "--norm", "3"), "--norm"),
        (("--epsilon", "0.1", "--metrics", "speed"), "csat, csec, cacc"),
        (("--epsilon", "0.1", "--property", "magic"), "magic"),
        (("--epsilon", "0.1", "--property", "equivalence"), "multiple of 2"),
        (("--epsilon", "0.1", "--attack", "magic"), "magic"),
        (("--epsilon", "0.1", "--interval", "magic"), "wilson"),
        (("--epsilon", "0.1", "--range", "0"), "LOW,HIGH"),
        (("--epsilon", "0.1", "--indices", "7"), "positions below 2"),
    ],
)
def test_bad_options_give_clear_errors(
    more: tuple[str, ...], words: str, network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(network, tmp_path, *more)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("sampler", [folded, walk])
@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_samples_of_a_cut_ball_are_uniform(norm: float, sampler: Sampler) -> None:
    """Against rejection from the box, which needs no idea: shares of points below several planes."""
    rng = np.random.default_rng(1)
    below, above = np.array([0.0, 0.05, 0.4, 0.0]), np.array([0.4, 0.4, 0.1, 0.4])
    found = sampler((below, above), 0.4, norm, 4000, rng)
    assert len(found) == 4000
    plain = rng.uniform(-below, above, (400_000, 4))
    plain = plain[np.linalg.norm(plain, ord=norm, axis=1) <= 0.4]
    for direction in (np.ones(4), np.array([1.0, -1.0, 2.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])):
        limit = float(np.median(plain @ direction))
        assert (found @ direction <= limit).mean() == pytest.approx(0.5, abs=0.035)


def test_accuracy_in_a_corner_is_that_of_the_cut_ball(tmp_path: Path) -> None:
    """Ten dark pixels, class 0 wins while their sum is below 0.35: (0.35 / 0.4)^10 of the L1 ball of 0.4."""
    layer = nn.Linear(10, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([-torch.ones(10), torch.zeros(10)]))
        layer.bias.copy_(torch.tensor([0.35, 0.0]))
    export_onnx(layer, tmp_path / "sum.onnx", (10,))
    nets, prop = [Network.load(tmp_path / "sum.onnx")], choose_property("classification")
    (item,) = accuracy(prop, nets, [Reference(np.zeros(10), 0, 0.4, 1.0)], [Item(0, 0)], SAMPLING, silent)
    assert item.passed / item.samples == pytest.approx((0.35 / 0.4) ** 10, abs=0.03)


def test_inputs_that_cannot_move_have_no_volume() -> None:
    prop = choose_property("monotonic", {"features": "0"})
    x = draw(prop, Reference(np.array([0.5, 0.5]), 0, 0.2, 2.0), 2000, np.random.default_rng(0))
    assert bool((x[:, 1] == 0.5).all())
    assert (x[:, 0] < 0.6).mean() == pytest.approx(
        0.5, abs=0.04
    )  # uniform on a line, not the shadow of a disc


def test_an_attack_that_refuses_was_not_survived(network: Network, tmp_path: Path) -> None:
    smooth = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 2))
    export_onnx(smooth, tmp_path / "smooth.onnx", (2,))
    nets, prop = [Network.load(tmp_path / "smooth.onnx")], choose_property("classification")
    around, items = [Reference(np.array([0.5, 0.5]), 0, 0.1)], [Item(0, 0)]
    with Oracle(single_verifier("smt"), "inline", timeout=2.0) as attacker:
        items = security(attacker, prop, nets, around, items, silent)
    assert items[0].csec == "refused" and items[0].reason
    summary = summarise(Row("net", prop.name, 0.1, tuple(items)), SAMPLING)
    assert np.isnan(float(str(summary["csec"]))) and summary["not_attacked"] == 1


def test_a_softmax_is_attacked_where_it_is_broken(network: Network) -> None:
    """Scores (0.9, 0.4, 0.1) around x: the probability is below 0.55 at every point, far from a linear proof."""
    prop = choose_property("strong-classification", {"eta": 0.55})
    around = [Reference(np.array([0.9, 0.4]), 0, 0.01)]
    with Oracle(single_verifier("pgd"), "inline", timeout=1.0) as attacker:
        items = security(attacker, prop, [network], around, [Item(0, 0)], silent)
    assert items[0].csec == "violated"


@pytest.mark.parametrize("size", [0.0, 1e-7])
def test_what_the_sampled_outputs_are_compared_with_is_as_exact_as_they_are(
    size: float, tmp_path: Path
) -> None:
    """Within rounding of the input itself, sums of many terms in single precision break any Lipschitz constant."""
    rng = np.random.default_rng(0)
    wide = write_dense(tmp_path / "wide.onnx", rng.normal(size=(40, 50)), rng.normal(size=(3, 40)) / 40)
    prop = choose_property("lipschitz", {"constant": "1e3"})
    around = [Reference(rng.normal(size=50).astype(np.float32).astype(np.float64), 0, size)]
    (item,) = accuracy(prop, [wide], around, [Item(0, 0)], Sampling(samples=64), silent)
    assert item.passed == 64


def write_dense(path: Path, *weights: np.ndarray) -> Network:
    single = [w.astype(np.float32).astype(np.float64) for w in weights]
    write_onnx(dense_graph([(w, np.zeros(len(w))) for w in single]), path)
    return Network.load(path)


@pytest.mark.parametrize("metrics", ["csat", "csec", "cacc"])
@pytest.mark.parametrize(
    ("outputs", "label", "chosen", "said"),
    [
        (2, -1, [], "expected a label from 0 to 1"),
        (1, 0, ["--property", "targeted"], "expected at least 2 outputs"),
        (2, 0, ["--property", "top-k", "--property-option", "k=5"], "expected a number from 1 to 1"),
    ],
)
def test_questions_that_do_not_fit_the_network_are_refused(
    metrics: str,
    outputs: int,
    label: int,
    chosen: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_dense(tmp_path / "n.onnx", np.ones((outputs, 1)))
    labels = {} if label < 0 else {"labels": np.array([label])}
    np.savez(tmp_path / "d.npz", images=np.array([[0.5]]), **labels)  # type: ignore[arg-type]
    arguments = ["measure", str(tmp_path / "n.onnx"), "--data", str(tmp_path / "d.npz"), "--indices", "0:1"]
    arguments += ["--epsilon", "0.1", "--metrics", metrics, "--executor", "inline", *chosen]
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("metrics", ["csat", "csec", "cacc"])
def test_pixels_outside_the_range_are_refused(
    metrics: str, network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "raw.npz", images=np.array([[1.0, 0.0], [3.0, 16.0]]), labels=np.array([0, 1]))
    arguments = ["measure", str(network.path), "--data", str(tmp_path / "raw.npz"), "--indices", "0:2"]
    assert run([*arguments, "--epsilon", "0.1", "--metrics", metrics, "--executor", "inline"]) == 2
    said = capsys.readouterr().err
    assert "raw.npz:all, input 1" in said and "--range 0,16" in said
