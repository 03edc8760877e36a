"""000: the published games, and the way they are solved, on networks of the examples."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verifolio import Network, Reference
from verifolio.data import load_data
from verifolio.plugins.studies.gross import example, tables
from verifolio.plugins.studies.gross.games import HERE, PORTFOLIO, Games, attack, limit_of, unbounded
from verifolio.plugins.studies.gross.members import Group, make_model, shrunk
from verifolio.plugins.studies.sources import published
from verifolio.plugins.studies.study import Place, Size, Tables

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "ensemble"


def test_the_games_are_those_of_the_paper() -> None:
    games = published(HERE, "games")
    assert [int(g["id"]) for g in games] == list(range(1, 30))
    assert sum(g["milp_value"] == "robust" for g in games) == 8
    assert sum(g["ua"] == "0.33" for g in games) == 19
    seventh = next(g for g in games if g["id"] == "7")
    assert (seventh["alpha"], seventh["epsilon"], seventh["milp_time"], seventh["milp_value"]) == (
        *("0.4", "1000"),
        *("0.34", "0.4"),
    )
    for number, ids in tables.EXCERPTS.items():
        assert [int(g["id"]) for g in tables.games(number)] == list(ids)


def test_groups_are_what_the_names_say() -> None:
    assert Group.of("mnist 0 1 2convs", 8, 3) == Group("mnist", (0, 1), 8, 3, "convs")
    assert Group.of("traffic signs", 10, 3) == Group("gtsrb", (13, 12), 10, 3, "pool")
    assert len(Games(("decomposition", "milp")).wanted(Size())) == 58


@pytest.mark.parametrize(
    "group", [Group("digits", (0, 1), s, 3, k) for s, k in ((6, "dense"), (8, "convs"), (8, "pool"))]
)
def test_members_read_pictures_of_their_size(group: Group) -> None:
    import torch

    images, labels = shrunk(load_data("digits:test"), group, 5)
    assert images.shape == (5, 1, group.side, group.side)
    assert set(labels.tolist()) <= {0, 1}
    for number in range(3):
        out = make_model(group, number)(images)
        assert out.shape == (5, 2) and bool((out >= 0).all()), "they end in ReLU"
        assert torch.isfinite(out).all()


@pytest.mark.parametrize("way", ["decomposition", "milp", "uniform", "deterministic"])
def test_a_small_game_in_every_way(way: str) -> None:
    networks = tuple(Network.load(EXAMPLES / f"pair_{k}.onnx") for k in "ab")
    data = load_data(str(EXAMPLES / "pair.npz"))
    references = tuple(
        Reference(data.image(i).astype(np.float32).astype(np.float64), int(data.labels[i]), 2.5, 1.0)
        for i in (0, 1)
    )
    found = attack(networks, references, Fraction(1, 10), way, 2, 30.0)
    assert 0 <= found.value_lower <= found.value_upper <= 1
    if way == "decomposition":
        assert found.value_lower == found.value_upper, "it is exact"


def row(
    game: str, way: str, lower: str, upper: str, verdict: str = "not-robust", **more: str
) -> dict[str, str]:
    base = {"verdict": verdict, "mixed": "2", "cpu": "0.5", "limit": "60", "note": ""}
    return {"id": game, "way": way, "lower": lower, "upper": upper} | base | more


def test_statements_are_judged_by_exact_values() -> None:
    rows = [
        row("7", "decomposition", "1", "1"),
        row("7", "uniform", "1/3", "1", "unknown"),
        row("7", "deterministic", "1", "1"),
        row("2", "decomposition", "1/2", "1/2"),
        row("2", "uniform", "1/4", "1", "unknown"),
        row("2", "deterministic", "1/4", "1", "unknown"),
        row("27", "decomposition", "0", "0", "robust", cpu="12"),
    ]
    found = Tables({"games": rows})
    said = {
        s.text: str(s.judgement)
        for s in (*tables.maximum(found), *tables.weaker(found), *tables.exact_statements(found))
    }
    assert said["Where an attack reaches alpha, the best attack reaches 1"] == "refuted"
    assert said["The uniform attacker never reaches the best value"] == "confirmed"
    assert said["The best deterministic attack never reaches the best value"] == "refuted"
    assert said["A game needs seconds to hours, up to 739 s (here: under 10 s)"] == "confirmed", (
        "one took 12 s"
    )
    assert said["SMT never proves an ensemble robust in time"] == "not decided"
    assert tables.answered(row("7", "milp", "0", "1", "unknown", cpu="59")) == "none in 60 s | 59.00"
    assert tables.answered(row("7", "milp", "0", "1", "unknown", cpu="2")) == "none in 60 s | 2.00", (
        "a busy machine"
    )
    assert tables.answered(row("12", "decomposition", "1/4", "1/4", "robust")) == "1/4, robust | 0.50"
    assert tables.answered(row("4", "decomposition", "0", "1/4", "robust")) == "0 to 1/4, robust | 0.50"
    assert tables.answered(row("22", "smt", "0", "0", "robust")) == "robust | 0.50"


def test_the_portfolio_is_read() -> None:
    from verifolio import parse_portfolio

    assert parse_portfolio(PORTFOLIO).attack is not None


def test_a_quick_run_gives_programs_no_hours() -> None:
    assert limit_of("16", "milp", Size()) == 7200 and limit_of("2", "smt", Size()) == 60
    assert all(limit_of(g, w, Size(quick=True)) < 10 for g in ("2", "16", "21") for w in ("milp", "smt"))


def test_changed_pixels_may_leave_their_range() -> None:
    found = unbounded(np.zeros(3), 1, 2.0)
    assert found.norm == 1 and np.isneginf(found.lower).all() and np.isposinf(found.upper).all()


def test_the_example_of_the_paper_and_its_theorem(tmp_path: Path) -> None:
    rows = list(example.Examples().measure([(g.name,) for g in example.GAMES], Place(tmp_path, Size())))
    assert [(r["lower"], r["upper"]) for r in rows] == [(str(g.value), str(g.value)) for g in example.GAMES]
    assert rows[0]["probabilities"] == "1/2 1/2", "both attacks are needed, each half of the time"
    shown = example.shown(Tables({"examples": rows}))
    assert str(shown.statements[0].judgement) == "confirmed"
    other = [*rows[1:], {**rows[0], "lower": "0"}]
    assert str(example.shown(Tables({"examples": other})).statements[0].judgement) == "refuted"
