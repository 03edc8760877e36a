"""Reports of real runs and of made-up accounts: sentences, comparisons, readers, files, and what must be escaped."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import zlib
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import verifolio
from verifolio import (
    Account,
    Asked,
    Event,
    Example,
    InputResult,
    Reader,
    Registry,
    Verdict,
    current_plugins,
    hookimpl,
)
from verifolio.cli.main import run as cli
from verifolio.data import load_data
from verifolio.plugins.ensemble.ledger import EnsembleLedger, Fact
from verifolio.plugins.report.compare import compare_all, decided, robust_at
from verifolio.plugins.report.content import as_plain, changes, examples, page_content
from verifolio.plugins.report.look import looking
from verifolio.plugins.report.page import embedded, make_page
from verifolio.plugins.report.png import as_image, difference, picture
from verifolio.plugins.report.sentence import answer
from verifolio.plugins.report.sources import find_sources

NETWORKS = Path(__file__).resolve().parents[3] / "examples" / "networks"
DENSE = str(NETWORKS / "digits_dense.onnx")


def bracket(
    network: str, index: int, low: float | None, up: float | None, status: str = "closed"
) -> InputResult:
    return InputResult(network, "test", str(index), status, low, up)


def content_of(page: Path) -> dict[str, Any]:
    """The data in a page, read as a browser reads it."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r"<script type='application/json' id='content'>(.*?)</script>", text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a proved, a refuted and a misclassified input."""
    store = tmp_path_factory.mktemp("measured") / "store.db"
    options = [
        "--data",
        "digits",
        "--indices",
        "1:4",
        "--epsilon",
        "0.03",
        "--metrics",
        "csat",
        "--timeout",
        "20",
    ]
    assert cli(["measure", DENSE, *options, "--executor", "inline", "--store", str(store)]) == 0
    return store


def test_a_report_of_verdicts(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Misclassified inputs count, counterexamples have pictures, and the command that asked is there."""
    capsys.readouterr()
    assert cli(["report", str(measured), "-o", str(tmp_path)]) == 0
    assert (
        "digits_dense is robust on 1 of 3 inputs (33.3 %) within radius 0.03 (maximum norm)."
        in capsys.readouterr().out
    )
    content = content_of(tmp_path / "index.html")
    (chapter,) = content["chapters"]
    assert [r[3] for r in chapter["results"]] == ["refuted", "proved", "misclassified"]
    assert len(chapter["examples"]) == 1
    assert all(e["near"].startswith("data:image/png;base64,") for e in chapter["examples"])
    facts = dict(chapter["provenance"])
    assert facts["command"].startswith("verifolio measure")
    assert facts["data"] == "digits" and facts["indices"] == "1:4" and facts["norm"] == "linf"
    assert {"host", "versions", "seed", "timeout", "range", "property", "started"} <= facts.keys()
    with (tmp_path / "inputs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [r["status"] for r in rows] == ["refuted", "proved", "misclassified"]


def test_a_report_may_be_one_file(measured: Path, tmp_path: Path) -> None:
    page = tmp_path / "to" / "send.html"
    assert cli(["report", str(measured), "-o", str(page)]) == 0
    assert page.is_file() and list(page.parent.iterdir()) == [page]
    assert len(content_of(page)["chapters"]) == 1


def test_an_attack_does_not_undo_a_proof(measured: Path) -> None:
    """What is open to the attack of csec stays proved in the store."""
    options = ["--data", "digits", "--indices", "1:4", "--epsilon", "0.03", "--metrics", "csec"]
    assert cli(["measure", DENSE, *options, "--executor", "inline", "--store", str(measured)]) == 0
    with looking(measured) as connection:
        found = [r["status"] for r in connection.execute("SELECT status FROM findings ORDER BY origin")]
    assert sorted(found) == ["misclassified", "proved", "refuted"]


def test_show_reads_answers_back(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli(["show", str(measured)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("digits_dense is robust on 1 of 3 inputs")
    assert len(lines) == 5 and "\trefuted\t" in lines[2]
    assert cli(["show", str(measured), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["kind"] == "verdicts" and len(run["results"]) == 3


def test_critical_radii_and_single_answers_have_reports(tmp_path: Path) -> None:
    one, two = tmp_path / "critical.db", tmp_path / "verify.db"
    options = ["--data", "digits", "--index", "1", "--tolerance", "0.01", "--executor", "inline"]
    assert cli(["critical", DENSE, *options, "--store", str(one)]) == 0
    (chapter,) = content_of_report(one, tmp_path / "one")
    assert chapter["brackets"] and len(chapter["results"]) == len(chapter["examples"]) == 1
    facts = dict(chapter["provenance"])
    assert facts["command"].startswith("verifolio critical") and facts["preprocessing"] == "none"
    assert {"host", "versions", "data test", "inputs of test", "search", "resolution"} <= facts.keys()
    files = [DENSE, str(NETWORKS / "properties/digits_dense_45_0.2.vnnlib")]
    assert cli(["verify", *files, "--timeout", "120", "--store", str(two)]) == 0
    (chapter,) = content_of_report(two, tmp_path / "two")
    assert chapter["answer"] == "1 question: 0 proved, 1 counterexample and 0 open."


def content_of_report(store: Path, out: Path) -> list[dict[str, Any]]:
    assert cli(["report", str(store), "-o", str(out)]) == 0
    return list(content_of(out / "index.html")["chapters"])


def test_what_python_asked_is_reported_too(tmp_path: Path) -> None:
    """With the names of features, and with inputs that are wrong without any change."""
    store = tmp_path / "api.db"
    data = load_data("digits:test")
    verifolio.robustness(
        DENSE,
        data.images[1:4].reshape(-1, 8, 8),
        data.labels[1:4],
        epsilon=0.03,
        store=store,
        executor="inline",
    )
    (chapter,) = content_of_report(store, tmp_path / "page")
    assert [(r[2], r[3]) for r in chapter["results"]] == [
        ("0", "refuted"),
        ("1", "proved"),
        ("2", "misclassified"),
    ]
    (example,) = chapter["examples"]
    assert example["near"].startswith("data:image/png")


def test_classes_have_their_names(tmp_path: Path) -> None:
    """A counterexample of a table said that 1 becomes 2, whatever the classes are called."""
    same = torch.nn.Linear(2, 2, bias=False)
    same.weight.data = torch.eye(2)
    network = str(verifolio.export(same, np.zeros((1, 2)), output=tmp_path / "same.onnx").network.path)
    (tmp_path / "table.csv").write_text("first,second,kind\n0.75,0.5,high\n0.25,0.5,low\n")
    data = ["--data", f"{tmp_path / 'table.csv'}:kind", "--epsilon", "0.5", "--executor", "inline"]
    for number, command in enumerate((["verify"], ["measure", "--metrics", "csat"])):
        store = tmp_path / f"{number}.db"
        assert cli([*command, network, *data, "--store", str(store)]) == 0
        (chapter,) = content_of_report(store, tmp_path / f"page{number}")
        assert {r[7] for r in chapter["results"]} == {"low", "high"}
        assert {(e["label"], e["becomes"]) for e in chapter["examples"]} == {("low", "high"), ("high", "low")}


def test_ensembles_have_reports(tmp_path: Path) -> None:
    store = tmp_path / "joint.db"
    facts = [
        Fact("aaaa+bbbb", "spot1", Verdict.SAT, "joint-gradient", np.ones(3, np.float32)),
        Fact("aaaa+cccc", "spot1", Verdict.UNSAT, "crown"),
    ]
    with EnsembleLedger(store) as ledger:
        ledger.add(facts)
    (chapter,) = content_of_report(store, tmp_path / "page")
    assert chapter["answer"] == "2 questions: 1 proved, 1 counterexample and 0 open."
    assert len(chapter["examples"]) == 1


def test_what_cannot_be_reported_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, odd = tmp_path / "empty", tmp_path / "odd.db"
    empty.mkdir()
    sqlite3.connect(odd).execute("CREATE TABLE t (x)").connection.commit()
    for source in (empty, odd, tmp_path / "none.db"):
        assert cli(["report", str(source)]) == 2
    assert cli(["show", str(odd)]) == 2
    assert "a bug" not in capsys.readouterr().err


def test_a_folder_stands_for_its_stores(measured: Path) -> None:
    assert find_sources([str(measured.parent)]) == [measured]


def test_shares_are_intervals() -> None:
    rows = [
        bracket("a", 0, 0.2, 0.3),
        bracket("a", 1, 0.05, None, "open"),
        bracket("a", 2, None, None, "misclassified"),
        bracket("a", 3, None, None, "error"),
    ]
    share = robust_at(rows, 0.1)
    assert (share.low, share.high, share.of) == (1, 2, 3)
    assert share.text == "33.3 to 66.7 %"
    assert robust_at(rows, 0.3).high == 1  # the counterexample at exactly 0.3 counts


def test_comparisons_are_decided_only_where_intervals_do_not_meet() -> None:
    rows = [
        *(bracket("a", 0, 0.3, 0.4), bracket("b", 0, 0.1, 0.2)),  # a for sure
        *(bracket("a", 1, 0.1, 0.2), bracket("b", 1, 0.2, 0.3)),  # they may be equal
        *(bracket("a", 2, 0.1, None, "open"), bracket("b", 2, 0.5, 0.6)),  # nothing is known above
        *(bracket("a", 3, None, None, "misclassified"), bracket("b", 3, None, None, "misclassified")),
        bracket("b", 9, 0.5, 0.6),  # only one of them was asked
    ]
    account = Account("distribution", networks={"a": "", "b": ""}, results=tuple(rows), thresholds=(0.25,))
    (found,) = compare_all(account)
    assert (found.better, found.worse, found.undecided, found.equal) == (1, 0, 2, 1)
    ((radius, first, second),) = found.at
    assert radius == 0.25
    assert decided(first, second) == "open"
    assert decided(robust_at(rows[:1], 0.25), robust_at(rows[1:2], 0.25)) == "first"


def test_the_answer_names_the_most_robust_first() -> None:
    rows = [bracket(n, k, low, low + 0.01) for n, low in (("a", 0.05), ("b.onnx", 0.2)) for k in range(4)]
    account = Account(
        "distribution", networks={"a": "", "b.onnx": ""}, results=tuple(rows), thresholds=(0.1,)
    )
    assert answer(account) == "Within radius 0.1, b is robust on 100 % of 4 inputs and a on 0 %."
    begun = replace(account, results=tuple(rows[3:]))
    assert answer(begun) == "Within radius 0.1, b is robust on 100 % of 4 inputs and a on 0 % of 1 input."
    assert answer(replace(account, results=())).startswith("0 questions")


def decoded(address: str) -> tuple[int, int, bytes]:
    data = b64decode(address.partition(",")[2])
    width, height = (int.from_bytes(data[k : k + 4], "big") for k in (16, 20))
    start = data.index(b"IDAT") + 4
    return width, height, zlib.decompress(data[start : data.index(b"IEND") - 8])


def test_pictures_are_what_they_show() -> None:
    values = np.array([0.0, 1.0, 0.5, 0.25, 0.0, 1.0])
    assert decoded(picture(values, (1, 2, 3), 0, 1)) == (3, 2, bytes([0, 0, 255, 128, 0, 64, 0, 255]))
    width, height, raw = decoded(difference(np.array([0.0, -1.0, 1.0, 0.0]), (2, 2)))
    assert (width, height, raw[1:4], raw[4:7]) == (2, 2, b"\xff\xff\xff", bytes([33, 102, 172]))
    assert picture(np.array([np.nan, np.inf, -np.inf, 0]), (2, 2), 0, 1)  # shown, whatever it is
    assert as_image(np.zeros(6), (6,)) is None  # a table
    assert as_image(np.zeros(5), (2, 3)) is None  # a shape that does not fit
    image = as_image(np.arange(12.0), (3, 2, 2))
    assert image is not None and image[0, 0].tolist() == [0, 4, 8]  # channels first


def test_tables_of_changes_where_inputs_are_no_pictures() -> None:
    near, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 2.9])
    example = Example("a", "d", "0", x, near, (3,), ("age", "income", "rate"))
    assert changes(example) == [["income", 2.0, 2.5], ["rate", 3.0, 2.9]]
    (shown,) = examples([example], {"a": 0})
    assert shown["picture"] == "" and shown["changed"] == 2
    alone = Example("a", "d", "0", x)
    assert changes(alone)[0] == ["x[0]", None, 1.0]


HOSTILE = "</script><img src=x onerror=alert(1)>'\"&\u2028\u202e{{x}}"


def hostile_account() -> Account:
    nan = float("nan")
    rows = (
        InputResult(
            HOSTILE, HOSTILE, HOSTILE, "refuted", nan, float("inf"), reason=HOSTILE, flags=(HOSTILE,)
        ),
    )
    example = Example(
        HOSTILE, HOSTILE, HOSTILE, np.array([nan, 1.0]), np.array([0.0, np.inf]), (2,), (HOSTILE, "b")
    )
    event = Event(1.0, HOSTILE, HOSTILE, nan, HOSTILE)
    return Account(
        "k", HOSTILE, {HOSTILE: HOSTILE}, rows, (example,), (event,), (HOSTILE,), (nan,), {HOSTILE: HOSTILE}
    )


def test_the_page_escapes_everything() -> None:
    page = make_page(as_plain(page_content([hostile_account()])))
    assert "<img" not in page.replace("'img'", "")
    assert page.count("</script>") == 2
    data = page.partition("id='content'>")[2].partition("</script>")[0]
    assert not {"\u2028", "<", ">", "&"} & set(data) and "NaN" not in data
    assert json.loads(embedded({"a": HOSTILE}))["a"] == HOSTILE


def test_the_page_may_ask_for_nothing() -> None:
    page = make_page(as_plain(page_content([hostile_account()])))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert (
        "default-src 'none'" in policy[1]
        and "connect-src 'none'" in policy[1]
        and "script-src 'sha256-" in policy[1]
    )
    assert not re.search(r"(src|href)=['\"]?https?:", page)


class Told(Reader):
    name, tables = "told", ("told_results",)

    def read(self, sources: object, asked: Asked) -> Account | None:
        return Account("told", networks={"n": ""}, results=(InputResult("n", "d", "0", "proved"),))


class Plugin:
    @hookimpl
    def register_readers(self, registry: Registry[Reader]) -> None:
        registry.add(Told)


def test_register_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stranger's reader tells what is in a stranger's table."""
    store = tmp_path / "own.db"
    with sqlite3.connect(store) as connection:
        connection.execute("CREATE TABLE told_results (x)")
        connection.execute("INSERT INTO told_results VALUES (1)")
    with current_plugins().plus(Plugin()).in_use():
        assert cli(["show", str(store)]) == 0
    assert "1 question: 1 proved, 0 counterexamples and 0 open." in capsys.readouterr().out
