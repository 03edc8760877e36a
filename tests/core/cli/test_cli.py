"""The command line: verdict first, JSON, exit codes, errors without tracebacks, clean interrupts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from verifolio.cli.main import run
from verifolio.onnx_import.network import Network
from verifolio.testing import hostile_verifiers as bad
from verifolio.testing.samples import reaches, write_sum
from verifolio.vnnlib import write

COMMAND = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()"]


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return write_sum(tmp_path)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A distribution that registers the hostile verifiers, as a stranger's package would."""
    info = tmp_path / "site" / "hostile-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verifolio]\nhostile = verifolio.testing.hostile_verifiers\n")
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    return dict(os.environ) | {"PYTHONPATH": path, "VERIFOLIO_ALARMS": str(tmp_path / "alarms")}


def files(tmp_path: Path, network: Network, threshold: float) -> list[str]:
    path = tmp_path / f"reach{threshold}.vnnlib"
    path.write_text(write(reaches(network, threshold).specification))
    return [str(network.path), str(path)]


def call(arguments: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=120, env=environment, check=False
    )


def test_the_first_line_is_the_verdict(
    tmp_path: Path, network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    inline = ["--executor", "inline", "--verifier", "pgd", "--timeout", "10"]
    assert run(["verify", *files(tmp_path, network, 1.5), *inline]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sat"
    assert lines[1].startswith("by pgd in ")
    assert "\x1b" not in "".join(lines)


def test_a_refuted_proof_is_said_on_standard_error(
    tmp_path: Path, network: Network, plugin: dict[str, str]
) -> None:
    for more, threshold, code in (([], 1.5, 4), (["--json"], 1.5, 4), ([], 2.5, 0)):
        asked = ["verify", *files(tmp_path, network, threshold), "--verifier", bad.WrongProof.name, *more]
        told = call([*asked, "--timeout", "60"], plugin)
        assert told.returncode == code, told.stderr
        said = [line for line in told.stderr.splitlines() if "soundness alarm" in line]
        assert len(said) == (1 if code else 0)
        assert all("claims a proof" in line and "verifolio-alarm-" in line for line in said)


def test_json_has_what_a_program_needs(
    tmp_path: Path, network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "counterexample.txt"
    asked = [
        "--json",
        "--counterexample",
        str(out),
        "--executor",
        "inline",
        "--store",
        str(tmp_path / "s.db"),
    ]
    assert run(["verify", *files(tmp_path, network, 1.5), "--verifier", "pgd", *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "sat"
    assert told["verifier"] == "pgd"
    assert told["network_sha256"] == [network.sha256]
    assert len(told["property_sha256"]) == 64
    assert len(told["witness"]["x"]) == 2
    assert told["margins"][0] >= 0
    assert {"seconds", "reason", "flags", "attempts", "versions"} <= told.keys()
    text = out.read_text()
    assert text.startswith("((X_0 ")
    assert "(Y_1 " in text
    assert text.count("(") == text.count(")") == 5


@pytest.mark.parametrize(("threshold", "verdict"), [(3.5, "sat"), (4.5, "unsat")])
def test_two_declared_networks_may_be_one_file(
    tmp_path: Path,
    network: Network,
    capsys: pytest.CaptureFixture[str],
    threshold: float,
    verdict: str,
) -> None:
    path = tmp_path / "two.vnnlib"
    bounds = [f"(assert (and (>= {v} 0.0) (<= {v} 1.0)))" for v in ("X[0]", "X[1]", "U[0]", "U[1]")]
    path.write_text(
        "(vnnlib-version <2.0>)\n"
        "(declare-network f (declare-input X Real [2]) (declare-output Y Real [2]))\n"
        "(declare-network g (equal-to f) (declare-input U Real [2]) (declare-output V Real [2]))\n"
        + "\n".join(bounds)
        + f"\n(assert (>= (+ Y[0] V[0]) {threshold}))\n"
    )
    one = [str(network.path)]
    for given in (one, one * 2):
        assert run(["verify", *given, str(path), "--executor", "inline", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["verdict"] == verdict
        assert told["network_sha256"] == [network.sha256] * 2
    assert run(["verify", *one * 3, str(path), "--executor", "inline"]) == 2


def test_undecided_is_exit_code_3(
    tmp_path: Path, network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--executor", "inline", "--verifier", "fgsm", "--timeout", "5"]
    assert run(["verify", *files(tmp_path, network, 2.5), *asked]) == 3
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "unknown"
    assert "reason: fgsm" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["verify", "NET"],
            "a network and a property, got one file; verify NETWORK PROPERTY, or verify NETWORK --data",
        ),
        (["verify", "PROP", "NET"], "expected a property, got a network; networks come first"),
        (["verify", "nowhere.onnx", "PROP"], "no such file"),
        (["verify", "NET", "nowhere.vnnlib"], "nowhere.vnnlib"),
        (["verify", "NET", "PROP", "--verifier", "nobody"], "no verifier named 'nobody'; installed: "),
        (["verify", "NET", "PROP", "--verifier", "pgd", "--option", "speed=3"], "speed"),
        (["verify", "NET", "PROP", "--option", "speed=3"], "--verifier"),
        (["verify", "NET", "PROP", "--executor", "moon"], "no executor named 'moon'"),
        (["verify", "NET", "PROP", "--portfolio", "nowhere.yaml"], "nowhere.yaml"),
        (["verify", "NET", "PROP", "--portfolio", "NOBODY"], "nobody.yaml:1:12: no verifier named 'nobody'"),
        (["verify", "NET", "PROP", "--timeout", "soon"], "--timeout"),
        (["verify", "NET", "NET"], "NET"),
        (["vnnlib", "show", "nowhere.vnnlib"], "no such file"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_message(
    tmp_path: Path,
    network: Network,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    names = dict(zip(("NET", "PROP"), files(tmp_path, network, 1.5), strict=True))
    names["NOBODY"] = str(tmp_path / "nobody.yaml")
    Path(names["NOBODY"]).write_text("sequence: [{verifier: nobody}, pgd]")
    given = [names.get(a, a) for a in arguments]
    if given[0] == "verify" and "--executor" not in given:
        given += ["--executor", "inline"]
    assert run(given) == 2
    told = capfd.readouterr()
    assert names.get(message, message) in told.err
    assert "Traceback" not in told.err


def test_a_bad_property_names_the_place(
    tmp_path: Path, network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.vnnlib"
    path.write_text("(declare-const X_0 Real)\n(assert (<= X_0 one))\n")
    assert run(["verify", str(network.path), str(path), "--executor", "inline"]) == 2
    assert f"{path}:" in capsys.readouterr().err
    assert run(["vnnlib", "check", str(path), files(tmp_path, network, 1.0)[1]]) == 2
    told = capsys.readouterr()
    assert f"{path}:" in told.err
    assert "ok, VNN-LIB 1.0, 2 inputs" in told.out


def test_a_bug_is_exit_code_1_with_a_log(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("verifolio.cli.verify.load_query", lambda _: 1 / 0)
    assert run(["verify", *files(tmp_path, network, 1.5), "--executor", "inline"]) == 1
    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told
    assert "Traceback" not in told
    log = Path(told.split("details in ")[1].strip())
    assert "Traceback" in log.read_text()
    log.unlink()


def test_properties_can_be_shown_and_converted(
    tmp_path: Path, network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    prop = files(tmp_path, network, 1.5)[1]
    assert run(["vnnlib", "show", prop]) == 0
    assert "disjunct 0: -1*Y_0 <= -1.5" in capsys.readouterr().out
    assert run(["vnnlib", "show", prop, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"][0]["upper"] == [1.0, 1.0]
    converted = tmp_path / "two.vnnlib"
    assert run(["vnnlib", "convert", prop, "--to", "2.0", "-o", str(converted)]) == 0
    assert run(["vnnlib", "check", str(converted)]) == 0
    assert "VNN-LIB 2.0" in capsys.readouterr().out


def test_networks_and_plugins_can_be_shown(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["network", "show", str(network.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["neurons"] == 2
    assert "Relu x1" in told["operators"]
    assert {m["name"] for m in told["members"]} >= {"pgd", "fgsm"}
    assert run(["plugins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "kind\tname\tcan\tstate"
    assert "verifier\tpgd\tfalsify, attack many, approach many\tready" in lines


@pytest.mark.slow  # a matter of speed, which a loaded machine decides
def test_help_is_quick() -> None:
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        assert "verify" in call(["--help"]).stdout
        seconds.append(time.monotonic() - started)
    assert min(seconds) < 1.0  # 0.15 s on an idle machine
    code = "import sys; from verifolio.cli.main import run; run(['--help']); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert not {"torch", "numpy", "scipy", "onnx", "onnxruntime"} & set(loaded.split())


def test_a_plugin_of_strangers_cannot_lie(tmp_path: Path, network: Network, plugin: dict[str, str]) -> None:
    """Through the real command, in worker processes, with a store: a proof against a replayed witness."""
    portfolio = tmp_path / "liars.yaml"
    race = "race:\n  - verifier: hostile-corners\n    options: {hang: true}\n  - sequence:\n"
    portfolio.write_text(
        race + "      - {verifier: hostile-stubborn, seconds: 2}\n      - hostile-wrong-proof\n"
    )
    done = call(["verify", *files(tmp_path, network, 1.5), "--portfolio", str(portfolio)], plugin)
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines()[0] == "sat"
    assert "soundness alarm: hostile-wrong-proof claims a proof" in done.stderr
    assert list((tmp_path / "alarms").glob("verifolio-alarm-*/alarm.json"))


def test_a_deadline_holds_through_the_command(
    tmp_path: Path, network: Network, plugin: dict[str, str]
) -> None:
    asked = ["--verifier", "hostile-stubborn", "--timeout", "0.5", "--json"]
    done = call(["verify", *files(tmp_path, network, 1.5), *asked], plugin)
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert told["verdict"] == "timeout"
    assert told["seconds"] < 5.0


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("again", [0.0, 0.05])
def test_an_early_interrupt_is_clean(tmp_path: Path, network: Network, again: float) -> None:
    """Also a second one; what Python itself says before our first line runs is not ours."""
    hook = (
        "import sys; sys.addaudithook(lambda event, given: event == 'import' and "
        "given[0] == 'verifolio.cli.clock' and (sys.stderr.write('.'), sys.stderr.flush())); "
    )
    code = hook + COMMAND[-1]
    command = [*COMMAND[:-1], code, "verify", *files(tmp_path, network, 1.0)]
    for delay in (0.0, 0.05, 0.15, 0.3):  # the first are before everything is imported
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stderr is not None and process.stderr.read(1) == "."
            time.sleep(delay)
            for pause in (0.0, again):
                time.sleep(pause)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert "Traceback" not in err and "ignored" not in err, (delay, err)
        assert process.returncode in (130, -signal.SIGINT) or out.startswith("sat"), (delay, out, err)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_clean(tmp_path: Path, network: Network, plugin: dict[str, str]) -> None:
    asked = ["verify", *files(tmp_path, network, 1.5), "--verifier", "hostile-stubborn"]
    process = subprocess.Popen(
        [*COMMAND, *asked], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=plugin
    )
    below: list[psutil.Process] = []
    while len(below) < 4 and process.poll() is None:  # command, template, supervisor, worker
        time.sleep(0.1)
        below = psutil.Process(process.pid).children(recursive=True)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=20)
    assert not psutil.wait_procs(below, timeout=5)[1]
    assert process.returncode == 130
    assert out == ""
    assert error == "nothing is kept of a query that is not decided; ask it again\ninterrupted\n"
