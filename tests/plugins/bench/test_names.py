"""Instances whose files have the same names in different folders, and names that strangers chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifolio.cli.bundles import RunningMany
from verifolio.cli.main import run
from verifolio.errors import InputError
from verifolio.files.names import safe_name
from verifolio.model.answer import Verdict
from verifolio.plugins.bench.command import run_name
from verifolio.plugins.bench.instances import Instance, parse_networks, read_instances
from verifolio.plugins.bench.results import InstanceResult, read_lines, read_tool, write_results
from verifolio.plugins.bench.runner import Places
from verifolio.plugins.bench.scoring import lines, make_contest

TWINS = "category,onnx,vnnlib,timeout\n" + "".join(
    f"{c},{f}/net.onnx,{f}/p.vnnlib,10\n" for c, f in (("c", "a"), ("c", "b"), ("d", "b"))
)


@pytest.fixture
def twins(tmp_path: Path) -> list[Instance]:
    """Three instances of one stem: two folders of one category, and another category."""
    table = tmp_path / "instances.csv"
    table.write_text(TWINS)
    return read_instances(table)


def rival(folder: Path, *rows: str, name: str = "rival.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def said(path: Path, instances: list[Instance], everyone: list[Instance] | None = None) -> list[str]:
    pairs = [(i, InstanceResult(Verdict.UNKNOWN, 1.0)) for i in instances]
    contest = make_contest(pairs, [read_tool(path)], everyone=everyone or instances)
    return [c.result for c in contest.claims["rival"]]


def test_rows_are_found_by_their_paths(twins: list[Instance], tmp_path: Path) -> None:
    rows = ("c,./a/net.onnx,a/p.vnnlib.gz,0,sat,1", "c,b/net.onnx,b/p.vnnlib,0,unsat,1")
    path = rival(tmp_path, *rows, "d,/far/away/b/net.onnx,b/p.vnnlib,0,timeout,9")
    assert said(path, twins) == ["sat", "unsat", "timeout"]
    assert said(path, list(reversed(twins))) == ["timeout", "unsat", "sat"]


def test_a_row_that_could_mean_two_instances_means_none(twins: list[Instance], tmp_path: Path) -> None:
    path = rival(tmp_path, "c,net.onnx,p.vnnlib,0,unsat,1")
    pairs = [(i, InstanceResult(Verdict.SAT, 1.0)) for i in twins]
    contest = make_contest(pairs, [read_tool(path)])
    assert [c.result for c in contest.claims["rival"]] == ["unknown", "unknown", "unknown"]
    assert len(contest.doubts) == 2
    assert sum(line.wrong for line in lines(contest)) == 0


def test_a_row_about_an_instance_that_is_not_selected(twins: list[Instance], tmp_path: Path) -> None:
    path = rival(tmp_path, "c,b/net.onnx,b/p.vnnlib,0,unsat,1")
    assert said(path, twins[:1], everyone=twins) == ["unknown"]


def test_names_alone_are_enough_where_they_leave_no_doubt(tmp_path: Path) -> None:
    (tmp_path / "instances.csv").write_text("nets/x.onnx,props/q.vnnlib,10\n")
    instances = read_instances(tmp_path / "instances.csv")
    assert said(rival(tmp_path, "other,onnx/x.onnx,vnnlib/q.vnnlib,0,unsat,1"), instances) == ["unsat"]


def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    path = rival(tmp_path, "c,a.onnx,p.vnnlib,0,sat,1", "c,a.onnx,p.vnnlib,0,unsat,1")
    with pytest.raises(InputError, match=r"rival\.csv:2: expected one result"):
        read_tool(path)


def test_two_tools_of_one_name_stay_two(twins: list[Instance], tmp_path: Path) -> None:
    row = "c,a/net.onnx,a/p.vnnlib,0,"
    paths = [rival(tmp_path / f, f"{row}{v},1", name="tool.csv") for f, v in (("x", "sat"), ("y", "unsat"))]
    contest = make_contest([(twins[0], InstanceResult(Verdict.SAT, 1.0))], [read_tool(p) for p in paths])
    assert list(contest.claims) == ["verifolio", "tool", "tool (2)"]
    assert {line.tool: line.wrong for line in lines(contest)}["tool (2)"] == 1


def test_files_of_instances_have_names_of_their_own(twins: list[Instance], tmp_path: Path) -> None:
    places = Places(tmp_path / "r.csv", tmp_path / "files")
    for kind in (places.log, places.counterexample):
        assert len({kind(i) for i in twins}) == len(twins)
    assert len({i.label for i in twins}) == len(twins)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "t.csv").write_text("".join(TWINS.splitlines(keepends=True)[::2]))
    alone = read_instances(tmp_path / "one" / "t.csv")[0]
    assert alone.label == twins[1].label, "a name does not depend on the other instances"


@pytest.mark.parametrize("text", ["../../x", "/etc/x", "..", "", "a/b", "x\n", ".hidden", "ä" * 300, "a b"])
def test_names_from_a_table_stay_in_the_folder(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "files"
    places = Places(tmp_path / "r.csv", folder)
    nasty = Instance(text, "a.onnx", "p.vnnlib", (("", Path("a.onnx")),), Path("p"), 1.0, text)
    for path in (places.log(nasty), places.counterexample(nasty)):
        assert path.resolve().is_relative_to(folder.resolve())
        assert len(path.relative_to(folder).parts) == 3
        assert len(path.name.encode()) < 200
    assert safe_name(text) != safe_name(text + "?")
    assert safe_name("good-name_1.0") == "good-name_1.0"


def test_an_id_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,onnx,vnnlib,timeout\nx,a,b,1\nx,c,d,1\n")
    with pytest.raises(InputError, match="'x' twice"):
        read_instances(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "text",
    ["[]", "[1]", "[('f', 'a'", "[(f, a)]", "[" * 50_000, "['f', 'a']", "[('f', 'a') x]", "[" + "-" * 9999],
)
def test_lists_of_networks_are_read_not_executed(text: str) -> None:
    with pytest.raises(InputError, match="a list of"):
        parse_networks(text)


def test_rows_that_are_not_run_stay_in_the_table(twins: list[Instance], tmp_path: Path) -> None:
    table = tmp_path / "results.csv"
    write_results(table, [(i, InstanceResult(Verdict.TIMEOUT, 9.0)) for i in twins])
    before = read_lines(table)
    write_results(table, [], before)
    assert [row[4] for row in read_lines(table)] == ["timeout"] * 3
    write_results(table, [(twins[1], InstanceResult(Verdict.SAT, 1.0))], before)
    assert [row[4] for row in read_lines(table)] == ["timeout", "sat", "timeout"]
    assert [row[:3] for row in read_lines(table)] == [row[:3] for row in before]


def test_a_run_is_named_by_who_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and in the pictures, which are one command's; another table row stays with --only."""
    networks = Path(__file__).resolve().parents[3] / "examples" / "networks"
    table = tmp_path / "results.csv"
    ask = ["bench", str(networks / "instances.csv"), "-o", str(table), "--executor", "inline"]
    ask += ["--verifier", "crown", "--timeout-cap", "20", "--only"]
    names = ("digits_dense_digits_dense_45_0.01", "digits_dense_digits_dense_45_0.2")
    for count, name in enumerate(names, 1):
        assert run([*ask, name]) == 0
        assert "verifolio crown" in capsys.readouterr().out
        assert len(table.read_text().splitlines()) == count
    assert (
        run_name(RunningMany(verifier="crown", option=("splits=neurons",)))
        == "verifolio crown:splits=neurons"
    )
    assert run_name(RunningMany(portfolio="mine/quick.yaml")) == "verifolio quick"
    assert run_name(RunningMany()) == "verifolio"
