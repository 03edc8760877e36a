"""External tools: well-behaved ones are heard, liars and wrecks are contained."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from verifolio.errors import InputError
from verifolio.model.answer import Answer, Flag, Verdict
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugin.executor import Executor
from verifolio.plugin.manager import current_plugins
from verifolio.plugins.command.description import VARIABLE, described, parse_description, read_description
from verifolio.plugins.command.files import read_point, write_files
from verifolio.plugins.command.verdict import read_verdict
from verifolio.plugins.command.verifier import Tool, make_class
from verifolio.portfolio.tree import Member, Portfolio, Race
from verifolio.run.settings import Settings
from verifolio.solve.walk import Walk
from verifolio.testing.hostile_verifiers import Corners
from verifolio.testing.samples import reaches, write_sum

RIGHT = "((X_0 1.0)\n(X_1 1.0)\n(Y_0 2.0))"
WRONG = "((X_0 0.0)\n(X_1 0.0)\n(Y_0 9.0))"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    """y = x0 + x1 on the unit square: y >= 1.5 is reachable, y >= 2.5 is not."""
    return write_sum(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def place() -> Iterator[Executor]:
    with current_plugins().executors.get("process")(2) as executor:
        executor.warm(wait=True)
        yield executor


def script(folder: Path, body: str, name: str = "tool.py") -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable} -P\nimport os, sys, time\nresults = sys.argv[-1]\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def make(folder: Path, body: str, **more: Any) -> Any:
    """A member that runs a Python script; the path of the results file is its last argument."""
    command = [str(script(folder, body)), "{onnx}", "{vnnlib}", "{timeout}", "{results}"]
    data = {"name": "fake", "command": command, "unsat": "trusted", "grace": 0.3, **more}
    import yaml

    folder.joinpath("fake.yaml").write_text(yaml.safe_dump(data))
    return read_description(folder / "fake.yaml")


def ask(
    place: Executor,
    network: Network,
    tool: Any,
    monkeypatch: pytest.MonkeyPatch,
    threshold: float,
    **more: Any,
) -> Answer:
    """Ask in this process's own thread: classes made here are not known to workers."""
    walk = Walk(
        reaches(network, threshold),
        Portfolio(more.pop("root", None) or Member(make_class(tool)())),
        place,
        Settings(timeout=more.pop("timeout", 10.0), grace=0.3),
    )
    return walk.run()


@pytest.fixture
def inline() -> Iterator[Executor]:
    with current_plugins().executors.get("inline")(1) as executor:
        yield executor


def say(text: str) -> str:
    return f"open(results, 'w').write({text!r})"


@pytest.mark.parametrize(
    ("body", "threshold", "verdict", "reason"),
    [
        (say("sat\n" + RIGHT), 1.5, Verdict.SAT, ""),
        (say("unsat\n"), 2.5, Verdict.UNSAT, ""),
        (say("sat\n" + WRONG), 1.5, Verdict.UNKNOWN, "claimed a counterexample"),
        (say("sat\n" + WRONG), 2.5, Verdict.UNKNOWN, "claimed a counterexample"),
        (say("sat\n"), 1.5, Verdict.UNKNOWN, "without a complete counterexample"),
        (say("sat\n((X_0 nan)\n(X_1 1.0))"), 1.5, Verdict.UNKNOWN, "without a complete counterexample"),
        (say("timeout\n"), 1.5, Verdict.TIMEOUT, "says timeout"),
        (say("\x00\xff{{%s unsatisfying"), 1.5, Verdict.UNKNOWN, "no verdict"),
        ("os.write(1, os.urandom(1000)); sys.exit(3)", 2.5, Verdict.UNKNOWN, "exit code 3"),
        ("os.kill(os.getpid(), 11)", 2.5, Verdict.UNKNOWN, "exit code -11"),
        ("pass", 2.5, Verdict.UNKNOWN, "it said: nothing"),
    ],
)
def test_what_a_tool_says(
    inline: Executor,
    network: Network,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    threshold: float,
    verdict: Verdict,
    reason: str,
) -> None:
    answer = ask(inline, network, make(tmp_path, body), monkeypatch, threshold)
    assert answer.verdict is verdict, answer.reason
    assert reason in answer.reason


POINTS = "\n((X_0 1.0)\n(X_1 1.0)\n(Y_0 2.0))\n"


@pytest.mark.parametrize("answer", ["results", "output"])
@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        ("Verified: False\n", Verdict.UNKNOWN, "no verdict"),
        ("unsat leaf 1\nunsat leaf 2\n", Verdict.UNKNOWN, "no verdict"),
        ("unsat-core: disabled\nunknown\n", Verdict.UNKNOWN, "no verdict"),
        ("holds? checking ...\nunknown\n", Verdict.UNKNOWN, "no verdict"),
        ("verified 3 of 10\nunknown\n", Verdict.UNKNOWN, "no verdict"),
        ("unsat\nsat" + POINTS, Verdict.ERROR, "contradicts itself: unsat | sat"),
        ("verified\nunknown\n", Verdict.ERROR, "contradicts itself: verified | unknown"),
        ("sat" + POINTS + "UNSAT\n", Verdict.ERROR, "contradicts itself: sat | UNSAT"),
        ("X_" + "9" * 5000 + "\n", Verdict.UNKNOWN, "no verdict"),
        ("sat\n((X_" + "9" * 5000 + " 1.0))\n", Verdict.UNKNOWN, "without a complete counterexample"),
        ("\nHOLDS \r\n", Verdict.UNSAT, ""),
    ],
)
def test_a_verdict_is_a_whole_line(
    inline: Executor,
    network: Network,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    text: str,
    verdict: Verdict,
    reason: str,
) -> None:
    body = say(text) if answer == "results" else f"sys.stdout.write({text!r})"
    tool = make(tmp_path, body, answer=answer, audit_seconds=0)
    found = ask(inline, network, tool, monkeypatch, 2.5)
    assert found.verdict is verdict, found.reason
    assert reason in found.reason


def test_a_results_file_states_its_verdict_first(tmp_path: Path) -> None:
    tool = make(tmp_path, "pass")
    assert read_verdict(tool, "progress\nunsat\n").verdict == ""
    assert read_verdict(replace(tool, answer="output"), "progress\nunsat\n").verdict == "unsat"
    own = replace(tool, verdicts={"unsat": r"result: proved in [\d.]+ s"})
    assert read_verdict(own, "result: proved in 3.5 s\n").verdict == "unsat"
    assert read_verdict(own, "result: proved in 3.5 s, not\n").verdict == ""


def test_a_short_description_stays_small(tmp_path: Path) -> None:
    """Nine levels of nine aliases each would be 400 million values."""
    levels = [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10)]
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("\n".join(["name: x", "a0: &a0 [x, x]", *levels, "command: *a9"]))
    with pytest.raises(InputError, match="fewer aliases"):
        read_description(bomb)


def test_a_false_proof_is_refuted(
    inline: Executor, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack looks for a counterexample before a proof of a stranger is believed; a wrong one is an alarm."""
    monkeypatch.setenv("VERIFOLIO_ALARMS", str(tmp_path / "alarms"))
    answer = ask(inline, network, make(tmp_path, say("unsat")), monkeypatch, 1.5)
    assert answer.verdict is Verdict.SAT
    assert Flag.ALARM in answer.flags
    assert "fake claims a proof" in answer.reason
    assert list((tmp_path / "alarms").iterdir())


def test_an_untrusted_proof_is_no_proof(
    inline: Executor, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = make(tmp_path, say("unsat"), unsat="untrusted", audit_seconds=0)
    answer = ask(inline, network, tool, monkeypatch, 2.5)
    assert answer.verdict is Verdict.UNKNOWN
    assert "not trusted" in answer.reason


HANG = """
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
open(os.environ['FAKE_PIDS'], 'w').write(f'{os.getpid()} {child.pid}')
time.sleep(600)
"""


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """Workers that know the tools described in a folder of the user's."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with current_plugins().executors.get("process")(2) as executor:
        yield executor


def test_a_hanging_tool_is_gone_with_all_it_started(
    registered: Executor, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verifolio.plugin.choice import Choice

    pids = tmp_path / "pids"
    make(tmp_path, HANG, environment={"FAKE_PIDS": str(pids)})
    registered.warm(wait=True)  # not the tool's time
    started = time.monotonic()
    member = Member(Choice("fake"))
    answer = ask(registered, network, None, monkeypatch, 1.5, root=member, timeout=6.0)
    assert answer.verdict is Verdict.TIMEOUT
    assert time.monotonic() - started < 30.0
    left = [int(p) for p in pids.read_text().split()]
    time.sleep(0.3)
    assert not [p for p in left if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]


def test_a_losing_tool_is_gone(
    registered: Executor, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verifolio.plugin.choice import Choice

    pids = tmp_path / "pids"
    make(tmp_path, HANG, environment={"FAKE_PIDS": str(pids)})
    root = Race((Member(Choice("fake")), Member(Corners())))
    answer = ask(registered, network, None, monkeypatch, 1.5, root=root, timeout=60.0)
    assert answer.verdict is Verdict.SAT
    assert {a.verdict for a in answer.attempts} == {Verdict.SAT, Verdict.CANCELLED}
    left = [int(p) for p in pids.read_text().split()] if pids.exists() else []
    time.sleep(0.3)
    assert not [p for p in left if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]


def test_scripts_of_the_competition(
    inline: Executor, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT, after prepare_instance.sh."""
    script(tmp_path, "open(os.path.join(os.getcwd(), 'prepared'), 'w')", "prepare_instance.sh")
    body = "given = sys.argv\nready = os.path.exists('prepared') and given[1] == 'v1' and len(given) == 7\n"
    script(tmp_path, body + "open(given[5], 'w').write('unsat' if ready else 'error')", "run_instance.sh")
    data = {"name": "pair", "scripts": str(tmp_path), "unsat": "trusted"}
    tool = parse_description(data | {"prepare": True}, "here")
    assert tool.missing() is None
    assert ask(inline, network, tool, monkeypatch, 2.5).verdict is Verdict.UNSAT
    careful = parse_description(data, "here")  # prepare scripts may kill every Python of the machine
    assert ask(inline, network, careful, monkeypatch, 2.5).verdict is Verdict.UNKNOWN


def test_the_files_are_what_was_asked(
    inline: Executor, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = tmp_path / "kept"
    body = f"import shutil; shutil.copytree(os.path.dirname(sys.argv[1]), {str(keep)!r})"
    ask(inline, network, make(tmp_path, body), monkeypatch, 1.5)
    assert (keep / "network.onnx").read_bytes() == network.path.read_bytes()
    from verifolio.vnnlib import load

    written = load(keep / "property.vnnlib")
    assert written.cases[0].upper.tolist() == [1.0, 1.0]


def test_shipped_descriptions_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ABCROWN_HOME", "NNENUM_HOME", "NEURALSAT_HOME", "PYRAT_HOME", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    found = {d.name: d for d in described()}
    assert set(found) >= {"abcrown", "nnenum", "neuralsat", "pyrat"}
    for tool in found.values():
        assert "set " in (tool.missing() or "")
    monkeypatch.setenv("NNENUM_HOME", "/nowhere")
    assert "does not exist" in (found["nnenum"].missing() or "")
    assert "sigmoid" in found["nnenum"].refuses


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ([], "name"),
        ({"name": "x"}, "either"),
        ({"name": "x", "command": ["a"], "scripts": "b"}, "either"),
        ({"name": "x", "command": "a b"}, "a list"),
        ({"name": "x", "command": ["a"], "colour": 1}, "colour"),
        ({"name": "x", "command": ["a"], "verdicts": {"sat": "("}}, "regular expression"),
        ({"name": "x", "command": ["a"], "verdicts": {"maybe": "x"}}, "maybe"),
        ({"name": "x", "command": ["a"], "unsat": "sure"}, "trusted"),
        ({"name": "x", "command": ["a"], "grace": -1}, "a number"),
    ],
)
def test_bad_descriptions_are_explained(data: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        parse_description(data, "tool.yaml")


def test_points_are_read_from_both_forms() -> None:
    one = read_point("sat\n((X_1 2.5)\n(X_0 -1e-3)\n(Y_0 0))", 2)
    two = read_point("sat\nX float32 [1,2]\n-0.001\n2.5\nY float32 [1]\n0\n", 2)
    assert one is not None
    assert two is not None
    assert one.tolist() == two.tolist() == [-0.001, 2.5]
    assert read_point("((X_0 1))", 2) is None


def test_tools_get_several_tensors_as_one_in_the_networks_order(tmp_path: Path) -> None:
    """y = a - b, declared the other way round."""
    a, b, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "aby")
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["y"])], "g", [a, b], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(tmp_path / "net.onnx"))
    (tmp_path / "p.vnnlib").write_text(
        '(vnnlib-version <2.0>)\n(declare-network N (declare-input B real [1] "b") '
        '(declare-input A real [1] "a") (declare-output Y real [1] "y"))\n'
        "(assert (<= A[0] 1.5)) (assert (>= A[0] 1.5)) (assert (<= B[0] 0.1)) (assert (>= B[0] 0.1))\n"
        "(assert (>= Y[0] 0.5))"
    )
    query = Query.from_files([tmp_path / "net.onnx"], tmp_path / "p.vnnlib")
    folder = tmp_path / "out"
    folder.mkdir()
    text = write_files(query.problems[0], query, folder)[1].read_text()
    assert "(<= X_0 1.5)" in text
    assert "(<= X_1 0.1)" in text


def test_refusals(network: Network, tmp_path: Path) -> None:
    tool = make(tmp_path, "pass", max_inputs=1)
    problem = reaches(network, 1.5).problems[0]
    cls: type[Tool] = make_class(tool)
    assert "more than 1 inputs" in (cls().refuses(problem) or "")
    assert make_class(replace(tool, max_inputs=0))().refuses(problem) is None
