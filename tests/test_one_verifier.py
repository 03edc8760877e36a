"""With --verifier X nobody but X works on a question, in any command, and every fact says where it came from."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NETWORKS, ENSEMBLE = ROOT / "examples" / "networks", ROOT / "examples" / "ensemble"
DIGITS = str(NETWORKS / "digits_dense.onnx")
PLUGIN = '''
import os
import sys

import onnxruntime

from verifolio import hookimpl
from verifolio.attacks import search
from verifolio.graph import enclosure, exact
from verifolio.graph.module import GraphModule
from verifolio.plugin import registry
from verifolio.plugins.attack.falsifiers import Pgd
from verifolio.plugins.crown.propagate.program import Program
from verifolio.plugins.crown.verifier import Crown
from verifolio.plugins.milp.verifier import Milp
from verifolio.plugins.properties import affine
from verifolio.trust import referee


def note(*words):
    with open(os.environ["CALLS"], "a") as file:
        file.write(" ".join((str(os.getpid()), *words)) + "\\n")


class Bare(Crown):
    """Decides queries and has no batch ability."""

    name = "bare"
    can_bound_many = False

    def run(self, problem, context):
        note(self.name, "run")
        return super().run(problem, context)


class Able(Bare):
    """The same with every batch ability, all of them its own as far as core can tell."""

    name = "able"
    can_bound_many = can_attack_many = can_approach_many = True

    def bound_many(self, problems, context):
        note(self.name, "bound_many")
        return super().bound_many(problems, context)

    def attack_many(self, questions, context):
        note(self.name, "attack_many")
        Pgd().attack_many(questions, context)

    def approach_many(self, spots, gain, context):
        note(self.name, "approach_many")
        Pgd().approach_many(spots, gain, context)


class Near(Milp):
    """Finds closest counterexamples."""

    name = "near"

    def minimise(self, problem, ball, context):
        note(self.name, "minimise")
        return super().minimise(problem, ball, context)


def get(self, name, original=registry.Registry.get):
    if self.kind == "verifier":
        note(name, "lookup")
    return original(self, name)


def run_networks(query, x, original=referee.run_networks):
    note("referee", "replay")
    return original(query, x)


registry.Registry.get = get
referee.run_networks = run_networks


def watch(owner, name):
    """Note, once per process, that something by which a network is run or bounded was called."""
    original, seen = getattr(owner, name), []

    def noted(*args, **kwargs):
        if os.getpid() not in seen:
            seen.append(os.getpid())
            note("network", f"{owner.__name__}.{name}")
        return original(*args, **kwargs)

    setattr(owner, name, noted)
    for module in list(sys.modules.values()):
        if getattr(module, name, None) is original:
            setattr(module, name, noted)


watch(onnxruntime.InferenceSession, "run")
watch(GraphModule, "forward")
watch(enclosure, "enclose")
watch(exact, "evaluate")
watch(affine, "affine_piece")
watch(search, "attack_many")
watch(Program, "__init__")


@hookimpl
def register_verifiers(registry):
    registry.add(Bare)
    registry.add(Able)
    registry.add(Near)
'''
MANY = "import json, sys; from verifolio.cli.main import run; print([run(c) for c in json.load(sys.stdin)])"
PAPER = ["--epsilon", "2.5", "--norm", "l1", "--range=-inf,inf"]  # as in the paper on attacks
SMALL = ["--timeout", "60", "--executor", "inline"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return made_place(tmp_path)


def made_place(folder: Path) -> Path:
    info = folder / "site" / "counting-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verifolio]\ncounting = counting\n")
    (folder / "site" / "counting.py").write_text(PLUGIN)
    return folder


def environment_of(place: Path) -> dict[str, str]:
    """By which every process finds the plugin, and the file that it writes to."""
    site, calls = str(place / "site"), str(place / "calls")
    return {"PYTHONPATH": site, "CALLS": calls, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


def run_all(place: Path, commands: list[list[str]]) -> tuple[list[int], Counter[tuple[str, str]], set[str]]:
    """The exit codes, how often who did what, and what was done in the driver itself."""
    environment = os.environ | environment_of(place)
    calls = Path(environment["CALLS"])
    calls.write_text("")
    with subprocess.Popen(
        [sys.executable, "-c", MANY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env=environment,
    ) as driver:
        out, err = driver.communicate(json.dumps(commands), timeout=1700)
    assert driver.returncode == 0, err
    print(err)
    lines = [tuple(line.split()) for line in calls.read_text().splitlines()]
    own = {what for pid, _, what in lines if int(pid) == driver.pid and what != "lookup"}
    return json.loads(out.splitlines()[-1]), Counter((who, what) for _, who, what in lines), own


def sources(store: Path, sql: str) -> set[str]:
    with closing(sqlite3.connect(store)) as connection:
        return {str(row[0]) for row in connection.execute(sql)}


def commands_of(name: str, place: Path) -> list[list[str]]:
    store = ["--store", str(place / "facts.db"), "--verifier", name, *SMALL]
    prop = str(NETWORKS / "properties" / "digits_dense_45_0.01.vnnlib")
    (place / "instances.csv").write_text(f"{DIGITS},{prop},5\n")
    digits = [DIGITS, "--data", "digits:test"]
    pairs = [str(ENSEMBLE / f"pair_{n}.onnx") for n in "ab"]
    three = [str(ENSEMBLE / f"digits_{n}.onnx") for n in "abe"]
    grid = ["--epsilon", "0.01:0.05:0.01"]
    points = [
        "--data",
        str(ENSEMBLE / "pair.npz"),
        "--indices",
        "0:2",
        "--epsilon",
        "2.5",
        "--norm",
        "l1",
        "--range=-inf,inf",
    ]
    chosen = ["--data", "digits:train", "--size", "2", "--epsilon", "0.05", "--points", "3"]
    cycle = ["--data", "digits", "--output", str(place / "cycle"), "--rounds", "1", "--epochs", "1"]
    return [
        ["verify", DIGITS, prop, *store],
        ["bench", str(place / "instances.csv"), "--output", str(place / "bench"), "--verifier", name, *SMALL],
        ["critical", *digits, "--index", "1", "--tolerance", "0.01", "--budget", "20", *store],
        *(
            ["distribution", *digits, "--indices", "1:3", "--search", search, *more, "--budget", "20", *store]
            for search, more in (
                ("bracket", ["--tolerance", "0.01"]),
                ("binary", grid),
                ("k-binary", grid),
            )
        ),
        ["measure", *digits, "--indices", "0:2", "--epsilon", "0.02", "--metrics", "csat,csec", *store],
        ["ensemble", "attack", *pairs, *points, *store],
        ["ensemble", "select", *three, *chosen, "--test-points", "2", *store],
        [
            "cycle",
            "--arch",
            "dense:8",
            *cycle,
            "--indices",
            "0:2",
            "--attack-points",
            "4",
            "--limit",
            "200",
            *store,
        ],
    ]


@pytest.mark.parametrize("name", ["able", pytest.param("bare", marks=pytest.mark.slow)])
def test_nobody_else_works(place: Path, name: str) -> None:
    codes, calls, own = run_all(place, commands_of(name, place))
    assert set(codes) <= {0, 3}, codes
    assert own >= {"replay", "run", "InferenceSession.run", "Program.__init__"}  # inline, so that it is seen
    who = {person for person, _ in calls} - {"network"}
    assert who == {name, "referee"}
    abilities = {what for person, what in calls if person == name} - {"lookup"}
    batches = {"bound_many", "attack_many", "approach_many"}
    assert abilities == ({"run"} | batches if name == "able" else {"run"})
    store = place / "facts.db"
    asked = "SELECT DISTINCT verifier FROM answers WHERE verdict IN ('sat', 'unsat')"
    assert sources(store, asked) == {name}
    steps = "SELECT DISTINCT verifier FROM distribution_steps WHERE verdict IN ('sat', 'unsat') OR proved > 0"
    assert sources(store, steps) <= {name, "inference"}
    proofs = "SELECT DISTINCT source FROM joint_facts WHERE verdict = 'unsat'"
    assert sources(store, proofs) == {name}
    points = "SELECT DISTINCT source FROM joint_facts WHERE verdict = 'sat'"
    assert sources(store, points) <= {name, "clean"}


def test_who_does_not_minimise_is_not_helped_out(place: Path) -> None:
    command = ["distribution", DIGITS, "--data", "digits:test", "--indices", "1", "--search", "closest"]
    codes, calls, _ = run_all(place, [[*command, "--verifier", "able", *SMALL]])
    assert codes == [2]
    assert not [what for who, what in calls if what != "lookup" and who != "network"]  # the input has a class


def test_who_minimises_is_the_only_one(place: Path) -> None:
    command = ["distribution", DIGITS, "--data", "digits:test", "--indices", "1", "--search", "closest"]
    store = ["--store", str(place / "facts.db"), "--budget", "20"]
    codes, calls, _ = run_all(place, [[*command, *store, "--verifier", "near", *SMALL]])
    assert codes == [0]
    assert {who for who, _ in calls} - {"network"} == {"near", "referee"}
    assert {what for who, what in calls if who == "near"} == {"lookup", "minimise"}
    steps = "SELECT DISTINCT verifier FROM distribution_steps WHERE verdict IN ('sat', 'unsat') OR proved > 0"
    assert sources(place / "facts.db", steps) == {"near"}


def elsewhere(place: Path, executor: str) -> list[list[str]]:
    """All commands with workers of their own, and properties that want outputs, slopes and suggested points."""
    slower = {"inline": executor, "60": "600"}  # on a busy machine the first worker alone may take a minute
    commands = [[slower.get(w, w) for w in c] for c in commands_of("able", place)]
    around = ["measure", DIGITS, "--data", "digits:test", "--indices", "0:1", "--epsilon", "0.01"]
    more = ["--metrics", "csat,cacc", "--reference", "predicted", "--verifier", "able", "--timeout", "600"]
    more += ["--executor", executor]
    inputs = ["verify", *around[1:], "--verifier", "able", "--executor", executor]
    asked = [[*around, "--property", p, *more] for p in ("lipschitz", "targeted", "standard")]
    return [*asked, inputs, *commands]


def check_driver(place: Path, commands: list[list[str]]) -> None:
    codes, calls, own = run_all(place, commands)
    assert set(codes) <= {0, 3}, codes
    assert calls["referee", "replay"] > 0
    assert {what for who, what in calls if who == "network"} >= {"InferenceSession.run", "Program.__init__"}
    assert own == set()


def test_the_driver_runs_no_network(place: Path) -> None:
    """Nothing is bounded, attacked, replayed or evaluated there, clean inputs and suggested points included."""
    everything = elsewhere(place, "process")
    by_name = {tuple(c[:2]): c for c in everything}
    chosen = [by_name["measure", DIGITS], by_name["ensemble", "attack"], by_name["distribution", DIGITS]]
    check_driver(place, [everything[0], everything[3], *chosen])


@pytest.fixture(scope="module")
def cluster_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes of the cluster, which all tests share, find the plugin and write to."""
    return made_place(tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def on_cluster(cluster_place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cluster's place, and a Ray cluster that commands find."""
    for name, value in environment_of(cluster_place).items():  # the nodes have it from their start on
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("cluster").address)
    return cluster_place


@pytest.mark.timeout(900)  # a cluster on a busy machine takes minutes to start
def test_nor_does_it_with_a_cluster(on_cluster: Path, place: Path) -> None:
    """One query and one game; all other commands have a slow test."""
    by_name = {tuple(c[:2]): c for c in elsewhere(place, "ray")}
    check_driver(on_cluster, [by_name[n] for n in (("verify", DIGITS), ("ensemble", "attack"))])


@pytest.mark.slow
@pytest.mark.timeout(1800)  # seventeen commands, each with workers of its own: 15 minutes on a busy machine
@pytest.mark.parametrize("executor", ["process", "ray"])
def test_the_driver_runs_no_network_in_any_command(
    place: Path, executor: str, request: pytest.FixtureRequest
) -> None:
    running = request.getfixturevalue("on_cluster") if executor == "ray" else place
    check_driver(running, elsewhere(place, executor))
