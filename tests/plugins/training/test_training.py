"""Training: what each regime does, that seeds decide everything, and that files compute what torch does."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from verifolio import Network, Regime, Registry, current_plugins, hookimpl
from verifolio.cli.main import run
from verifolio.data import load_data
from verifolio.errors import InputError
from verifolio.plugins.training.architectures import PRESETS, build, clamp
from verifolio.plugins.training.attacks import Ball, fgsm, pgd, points_of, violate
from verifolio.plugins.training.counterexamples import Hunt, hunt
from verifolio.plugins.training.keep import train_once
from verifolio.plugins.training.regimes import Augment, label_rows
from verifolio.plugins.training.setup import Choices, load_weights, make_regime, save, save_weights
from verifolio.plugins.training.trainer import (
    Schedule,
    accuracy,
    attacked_accuracy,
    fit,
    tensors,
)
from verifolio.properties.file import choose_property

IMAGE, CLASSES = (1, 8, 8), 10
QUICK = Schedule(epochs=8, rate=3e-3, batch=64)


def silent(text: str) -> None:
    """Progress nobody reads."""


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    torch.set_num_threads(1)
    return tensors(load_data("digits:train"))


@pytest.fixture(scope="module")
def unseen() -> tuple[Tensor, Tensor]:
    return tensors(load_data("digits:test"))


@pytest.fixture(scope="module")
def ordinary(digits: tuple[Tensor, Tensor]) -> nn.Sequential:
    model = build("dense:24", IMAGE, CLASSES)
    fit(model, *digits, make_regime(Choices()), QUICK, silent)
    return model


def trained(choices: Choices, digits: tuple[Tensor, Tensor], plan: Schedule = QUICK) -> nn.Sequential:
    model = build("dense:24", IMAGE, CLASSES)
    fit(model, *digits, make_regime(choices), plan, silent)
    return model


@pytest.mark.parametrize("name", [*PRESETS, "dense:20,10"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28)])
def test_exported_networks_compute_what_torch_does(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    if shape[1] == 28 and name in ("casadio-conv18", "mnist-relu-4-1024"):
        pytest.skip("large, and the small image covers the layers")
    model = build(name, shape, CLASSES, seed=3)
    model.eval()
    assert save(model, tmp_path / "net.onnx", shape) <= 1e-5
    x = torch.rand((4, *shape))
    with torch.no_grad():
        wanted = model(x).numpy()
    network = Network.load(tmp_path / "net.onnx")
    got = np.stack([network.replay(p.numpy()) for p in x])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert network.graph.input_size == np.prod(shape)


def test_the_clamp_is_a_clamp() -> None:
    v = torch.tensor([[-250.0, -100.0, -1.5, 0.0, 99.0, 100.0, 1e4]])
    torch.testing.assert_close(clamp(7)(v), v.clamp(-100, 100))
    assert not any(p.requires_grad for p in clamp(3).parameters())


def test_the_same_seed_gives_the_same_network(digits: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    plan = replace(QUICK, epochs=1)
    for regime in ("baseline", "augment", "adversarial", "constraint", "certified"):
        files = []
        for k, seed in enumerate((0, 0, 1)):
            torch.manual_seed(1000 + k)  # whatever the world does
            model = build("dense:12", IMAGE, CLASSES, seed)
            fit(model, *digits, make_regime(Choices(regime, steps=2)), replace(plan, seed=seed), silent)
            save(model, tmp_path / "net.onnx", IMAGE)
            files.append((tmp_path / "net.onnx").read_bytes())
        assert files[0] == files[1] != files[2], regime


def test_attacks_stay_in_the_ball_and_hurt(ordinary: nn.Sequential, unseen: tuple[Tensor, Tensor]) -> None:
    x, y = unseen
    ball = Ball(0.1)
    random = torch.Generator().manual_seed(0)
    points = {"pgd": pgd(ordinary, x, y, ball, random, 10), "fgsm": fgsm(ordinary, x, y, ball, random)}
    for z in points.values():
        assert float((z - x).abs().max()) <= 0.1 + 1e-6
        assert float(z.min()) >= 0 and float(z.max()) <= 1
    clean, one, many = (accuracy(ordinary, z, y) for z in (x, points["fgsm"], points["pgd"]))
    assert clean > one + 0.05 and one >= many


@pytest.mark.parametrize("name", ["standard", "strong-classification", "lipschitz"])
def test_the_property_attack_finds_violations(
    name: str, ordinary: nn.Sequential, unseen: tuple[Tensor, Tensor]
) -> None:
    known: dict[str, dict[str, object]] = {"standard": {"delta": 1.0}, "lipschitz": {"constant": 12.0}}
    prop, ball = choose_property(name, known.get(name)), Ball(0.1)
    x, y = unseen[0][:100], unseen[1][:100]
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        before = ordinary(x)
        sampled = ball.uniform(x, random)
        blind = prop.loss(points_of(ordinary(sampled), sampled, before, x, y, ball)).mean()
    z = violate(prop, ordinary, x, y, ball, random, 10)
    with torch.no_grad():
        aimed = prop.loss(points_of(ordinary(z), z, before, x, y, ball)).mean()
    assert float(aimed) > float(blind)


def test_adversarial_training_helps_against_the_attack(
    ordinary: nn.Sequential, digits: tuple[Tensor, Tensor], unseen: tuple[Tensor, Tensor]
) -> None:
    ball = Ball(0.1)
    before = attacked_accuracy(ordinary, *unseen, ball)
    for attack in ("fgsm", "pgd"):
        model = trained(Choices("adversarial", 0.1, attack, steps=5), digits, replace(QUICK, epochs=12))
        assert attacked_accuracy(model, *unseen, ball) > before + 0.1


@pytest.mark.parametrize(("name", "options"), [("standard", "delta=2"), ("lipschitz", "constant=10")])
def test_constraint_training_lowers_the_constraint_loss(
    name: str,
    options: str,
    ordinary: nn.Sequential,
    digits: tuple[Tensor, Tensor],
    unseen: tuple[Tensor, Tensor],
) -> None:
    choices = Choices("constraint", 0.1, prop=name, options=(options,), steps=4, beta=1.0)
    prop, x, y = choose_property(name, dict([options.split("=")])), *unseen

    def violated(model: nn.Sequential) -> float:
        z = violate(prop, model, x, y, Ball(0.1), torch.Generator().manual_seed(0), 10)
        with torch.no_grad():
            return float(prop.loss(points_of(model(z), z, model(x), x, y, Ball(0.1))).mean())

    assert violated(trained(choices, digits)) < 0.5 * violated(ordinary)


def test_adversarial_training_against_a_property(
    ordinary: nn.Sequential, digits: tuple[Tensor, Tensor], unseen: tuple[Tensor, Tensor]
) -> None:
    """Cross-entropy where outputs moved most: they move less afterwards, and the classes are still learned."""
    choices = Choices("adversarial", 0.1, "property", steps=4, prop="standard", options=("delta=2",))
    prop, x, y = choose_property("standard", {"delta": 2.0}), *unseen

    def kept(model: nn.Sequential) -> float:
        z = violate(prop, model, x, y, Ball(0.1), torch.Generator().manual_seed(0), 10)
        with torch.no_grad():
            there = points_of(model(z), z, model(x), x, y, Ball(0.1))
            return float(prop.satisfied(there).float().mean())

    model = trained(choices, digits)
    assert kept(model) > kept(ordinary) + 0.1
    assert accuracy(model, x, y) > 0.8


def test_augmentation_uses_training_images_only(digits: tuple[Tensor, Tensor]) -> None:
    x, y = digits[0][:50], digits[1][:50]
    model = build("dense:8", IMAGE, CLASSES)
    for kind in ("uniform", "fgsm"):
        regime = Augment(Ball(0.1), kind, 2)
        more, labels = regime.prepare(x, y, torch.Generator().manual_seed(0), lambda a, b: model)
        assert more.shape[0] == 150 and labels.tolist() == y.tolist() * 3
        assert float((more[50:100] - x).abs().max()) <= 0.1 + 1e-6
        assert float((more[100:] - x).abs().max()) > 0


def proved_share(model: nn.Sequential, x: Tensor, y: Tensor, ball: Ball, path: Path, bounder: str) -> float:
    """How many images a bounder proves at once, rounding included."""
    save(model, path, IMAGE)
    network, prop = Network.load(path), choose_property("classification")
    pairs = zip(x, y, strict=True)
    problems = [prop.query([network], ball.reference(a, int(b))).problems[0] for a, b in pairs]
    found = current_plugins().all_bounders()[bounder].bound(problems)
    return float(np.mean([b.least_margin(p) > 0 for b, p in zip(found, problems, strict=True)]))


def test_certified_training_raises_verified_accuracy(
    digits: tuple[Tensor, Tensor], unseen: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    """At the same radius and as many epochs, bounds prove much more of a network trained for them."""
    ball, plan = Ball(0.15), Schedule(epochs=25, rate=3e-3, batch=64)
    x, y = unseen[0][:100], unseen[1][:100]
    shares: dict[str, dict[str, float]] = {}
    for choices in (Choices("adversarial", 0.15, steps=5), Choices("certified", 0.15, share=0.9)):
        model = build("dense:64,64", IMAGE, CLASSES)
        fit(model, *digits, make_regime(choices), plan, silent)
        path = tmp_path / f"{choices.regime}.onnx"
        shares[choices.regime] = {
            name: proved_share(model, x, y, ball, path, name) for name in ("interval", "crown")
        }
        upper = attacked_accuracy(model, x, y, ball)
        assert max(shares[choices.regime].values()) <= upper + 1e-9, "proved more than an attack leaves"
    for name in ("interval", "crown"):
        assert shares["certified"][name] > shares["adversarial"][name] + 0.1, shares


def test_label_rows() -> None:
    rows = label_rows(torch.tensor([2]), 3, torch.zeros(1))
    torch.testing.assert_close(rows[0], torch.tensor([[-1.0, 0, 1], [0, -1, 1], [0, 0, 0]]))


@pytest.mark.parametrize("falsifier", ["pgd", "pointwise-lp", "lbfgs"])
def test_counterexamples_come_from_any_falsifier(
    falsifier: str, ordinary: nn.Sequential, digits: tuple[Tensor, Tensor]
) -> None:
    if falsifier not in current_plugins().verifiers:
        pytest.skip(f"{falsifier} is not installed")
    x, y = digits[0][:12], digits[1][:12]
    plan = Hunt(falsifier, ball=Ball(0.15), timeout=0.5, executor="inline")
    found = hunt(ordinary, x, y, choose_property("classification"), plan)
    assert 0 < len(found) <= 12 == found.asked
    with torch.no_grad():
        predicted, now = ordinary(x).argmax(1), ordinary(found.x).argmax(1)
    assert accuracy(ordinary, found.x, found.y) < accuracy(ordinary, x, y)
    assert set(found.y.tolist()) <= set(y.tolist()) and len(predicted) >= len(now)


def test_weights_travel_as_plain_arrays(ordinary: nn.Sequential, tmp_path: Path) -> None:
    save_weights(ordinary, tmp_path / "w.npz")
    other = build("dense:24", IMAGE, CLASSES, seed=9)
    load_weights(other, tmp_path / "w.npz")
    x = torch.rand(3, *IMAGE)
    torch.testing.assert_close(other(x), ordinary(x))
    with pytest.raises(InputError, match="this architecture"):
        load_weights(build("dense:25", IMAGE, CLASSES), tmp_path / "w.npz")
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="weights saved"):
        load_weights(other, tmp_path / "bad.npz")


def base(folder: Path, *more: str) -> list[str]:
    start = ["train", "--arch", "dense:12", "--data", "digits", "-o", str(folder / "net.onnx")]
    return [*start, "--epochs", "2", "--limit", "200", "--quiet", *more]


def test_the_train_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(base(tmp_path, "--json", "--weights", str(tmp_path / "w.npz"))) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["onnx_difference"] < 1e-5 and 0 <= told["test_accuracy"] <= 1
    more = ("--start", str(tmp_path / "w.npz"), "--regime", "finetune", "--points", "8", "--rounds", "1")
    assert run(base(tmp_path, "--json", "--executor", "inline", "--attack-timeout", "0.2", *more)) == 0
    assert len(json.loads(capsys.readouterr().out)["counterexamples"]) == 1


def test_the_cycle_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["cycle", "--arch", "dense:12", "--data", "digits", "-o", str(tmp_path), "--limit", "300"]
    arguments += ["--epochs", "6", "--rounds", "1", "--points", "10", "--indices", "0:4", "--timeout", "1"]
    assert (
        run([*arguments, "--rate", "0.005", "--attack-timeout", "0.2", "--executor", "inline", "--json"]) == 0
    )
    rounds = json.loads(capsys.readouterr().out)["rounds"]
    assert [r["number"] for r in rounds] == [0, 1]
    for r in rounds:
        assert r["proved"] + r["refuted"] + r["open"] == pytest.approx(100)
        assert (tmp_path / r["network"]).is_file()
    assert rounds[1]["training_images"] == 300 + rounds[1]["counterexamples"]
    assert (tmp_path / "cycle.csv").read_text().count("\n") == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--regime", "magic"), "one of baseline"),
        (("--arch", "magic"), "one of casadio-30"),
        (("--arch", "dense:0"), "positive widths"),
        (("--data", "magic"), "magic"),
        (("--regime", "adversarial", "--attack", "magic"), "fgsm, pgd, property"),
        (("--regime", "adversarial", "--attack", "property", "--property", "equivalence"), "one network"),
        (("--regime", "constraint", "--property", "magic"), "magic"),
        (("--regime", "constraint", "--property", "equivalence"), "one network"),
        (("--regime", "certified", "--bounder", "magic"), "magic"),
        (("--regime", "certified", "--share", "2"), "from 0 to 1"),
        (("--epsilon", "-1"), "not negative"),
        (("--rate", "0"), "positive rate"),
        (("--regime", "certified", "--arch", "casadio-conv18"), "Residual"),
        (("--regime", "finetune", "--attack", "magic", "--executor", "inline"), "magic"),
        (("--regime", "finetune", "--attack-option", "magic=1"), "magic"),
        (("--start", "missing.npz"), "missing.npz"),
        (("--output", "."), "a file"),
    ],
)
def test_bad_options_give_clear_errors(
    more: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(base(tmp_path, *more)) == 2
    assert words in capsys.readouterr().err


@dataclass(frozen=True)
class Doubled(Regime):
    """Cross-entropy, many times."""

    name: ClassVar[str] = "doubled"
    steps: int = 1
    factor: float = 2.0

    def loss(
        self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, part: float, random: torch.Generator
    ) -> torch.Tensor:
        return self.factor * torch.nn.functional.cross_entropy(model(x), y)


class Plugin:
    @hookimpl
    def register_regimes(self, registry: Registry[Regime]) -> None:
        registry.add(Doubled)


def test_register_regimes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A regime of somebody else's: by name, with its own options and those it shares with ours."""
    with current_plugins().plus(Plugin()).in_use():
        made = make_regime(Choices("doubled", 0.2, steps=7, more=("factor=3",)))
        assert made == Doubled(Ball(0.2), 7, 3.0)
        assert run(base(tmp_path, "--regime", "doubled", "--regime-option", "factor=0.5", "--json")) == 0
        assert json.loads(capsys.readouterr().out)["regime"] == "doubled"
        assert run(base(tmp_path, "--regime", "doubled", "--regime-option", "magic=1")) == 2
        assert "one of the options" in capsys.readouterr().err


def test_a_network_is_trained_once(tmp_path: Path) -> None:
    """The second call loads; other settings train again; the loaded network is the trained one."""
    learn, told = load_data("digits:train").take(range(200)), list[str]()
    path, plan = tmp_path / "kept" / "net.onnx", Schedule(epochs=1)
    first = train_once(path, "dense:8", learn, Choices(), plan, told.append)
    assert len(told) == 1 and path.is_file()
    again = train_once(path, "dense:8", learn, Choices(), plan, told.append)
    x = torch.rand(3, *IMAGE)
    torch.testing.assert_close(again(x), first(x), rtol=0, atol=0)
    assert len(told) == 1
    train_once(path, "dense:8", learn, Choices("adversarial"), plan, told.append)
    assert len(told) == 2
