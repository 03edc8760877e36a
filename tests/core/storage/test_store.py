"""Old answers: proofs of earlier soundness revisions are not believed, witnesses only after a replay."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verifolio.model.answer import Answer, Attempt, Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.portfolio.tree import single_verifier
from verifolio.properties.around import Around
from verifolio.properties.file import choose_property
from verifolio.properties.kept import keep
from verifolio.properties.verdict import Finding, PropertyStatus
from verifolio.run.settings import Settings
from verifolio.solve.oracle import Oracle
from verifolio.storage.store import Store
from verifolio.testing import hostile_verifiers as bad
from verifolio.testing.samples import age, reaches, write_sum

FALSE_PROOF = Answer(Verdict.UNSAT, "crown", seconds=1.0, bound=0.5)
TRUE_POINT, FALSE_POINT = np.ones(2, np.float32), np.zeros(2, np.float32)


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return write_sum(tmp_path)


def old_store(path: Path, query: Query, answer: Answer) -> Path:
    """A file as it was written before rows had a revision."""
    with Store(path) as store:
        store.save(query, answer, single_verifier(bad.Corners()), Settings(timeout=20.0))
    age(path)
    return path


def sat(x: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Answer:
    return Answer(Verdict.SAT, "pgd", witness=Witness(x, np.array([2.0, 0.0], np.float32), (0.5,)))


def ask(path: Path, query: Query) -> tuple[Answer, dict[str, int]]:
    with (
        Store(path) as store,
        Oracle(single_verifier(bad.Corners()), "inline", store, timeout=20.0) as oracle,
    ):
        return oracle.ask(query), oracle.counts


def test_an_old_proof_is_not_believed(
    network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """y_0 >= 1.5 is reached at (1, 1); an earlier version said it is not."""
    query = reaches(network, 1.5)
    path = old_store(tmp_path / "old.db", query, FALSE_PROOF)
    answer, counts = ask(path, query)
    assert answer.verdict is Verdict.SAT
    assert counts == {"run": 1}
    assert ask(path, query)[1] == {"stored": 1}
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"{path}: 1 proofs of an earlier version are not used")


def test_a_proof_of_this_revision_is(network: Network, tmp_path: Path) -> None:
    query, path = reaches(network, 2.5), tmp_path / "new.db"
    with Store(path) as store:
        store.save(query, FALSE_PROOF, single_verifier(bad.Corners()), Settings(timeout=20.0))
    answer, counts = ask(path, query)
    assert (answer.verdict, answer.bound) == (Verdict.UNSAT, 0.5)
    assert counts == {"stored": 1}


def test_an_old_witness_is_replayed(network: Network, tmp_path: Path) -> None:
    query = reaches(network, 1.5)
    path = old_store(tmp_path / "old.db", query, sat(TRUE_POINT))
    answer, _ = ask(path, query)
    assert (answer.verdict, answer.verifier) == (Verdict.SAT, "store")
    assert answer.witness is not None
    assert answer.witness.x.tolist() == [1.0, 1.0]
    assert ask(path, query)[1] == {"stored": 1}


def test_an_old_witness_that_fails_is_forgotten(network: Network, tmp_path: Path) -> None:
    query = reaches(network, 2.5)
    path = old_store(tmp_path / "old.db", query, sat(FALSE_POINT))
    answer, _ = ask(path, query)
    assert answer.verdict is Verdict.UNKNOWN  # Corners proves nothing


def test_an_old_undecided_answer_serves_without_its_bound(network: Network, tmp_path: Path) -> None:
    query = reaches(network, 2.5)
    undecided = replace(FALSE_PROOF, verdict=Verdict.TIMEOUT)
    path = old_store(tmp_path / "old.db", query, undecided)
    answer, counts = ask(path, query)
    assert (answer.verdict, answer.bound) == (Verdict.TIMEOUT, None)
    assert counts == {"stored": 1}


def test_who_refused_is_kept_and_known_of_older_files(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    refused = Attempt("picky", Verdict.UNKNOWN, "refuses: not today", 0.0, refused=True)
    tried = Attempt("other", Verdict.UNKNOWN, "gave up", 0.1)
    query = reaches(network, 1.0)
    answer = Answer(Verdict.UNKNOWN, attempts=(refused, tried))
    with Store(path) as store:
        store.save(query, answer, single_verifier("crown"), Settings(1.0))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE attempts DROP COLUMN refused")
    with Store(path) as store:
        found = store.find(query, single_verifier("crown").key, Settings(1.0))
    assert found is not None
    assert [a.refused for a in found.attempts] == [True, False]


def test_findings_about_other_ranges_and_radii_are_other_findings(network: Network, tmp_path: Path) -> None:
    """An open question must not be shown as proved because one about a smaller range was."""
    x, prop = np.full(2, 0.5), choose_property("output-range", {"upper": 1.0})
    narrow = Around(1.0, reach=np.array([0.1, 0.0])).reference(x, 0)
    others = [
        Around(1.0, reach=np.array([5.0, 0.0])).reference(x, 0),
        Around(1.0, low=-9.0, reach=np.array([0.6, 0.0])).reference(x, 0),
    ]
    proved = Finding(PropertyStatus.PROVED, Answer(Verdict.UNSAT, "crown"))
    left = Finding(PropertyStatus.OPEN, Answer(Verdict.TIMEOUT, "crown"))
    with Oracle(single_verifier(bad.Corners()), "inline", store=Store(tmp_path / "s.db")) as oracle:
        keep(oracle, prop, [network], narrow, proved)
        for reference in others:
            keep(oracle, prop, [network], reference, left)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        found = [status for (status,) in connection.execute("SELECT status FROM findings ORDER BY rowid")]
    assert found == ["proved", "open", "open"]


def test_a_false_proof_that_an_early_version_wrote_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`old` holds a store of a version without revisions, whose `crown` claimed `unsat` of an attained threshold.

    The point that attains it is no float32 number, so it is not found either.
    """
    old, path = Path(__file__).with_name("old"), tmp_path / "store.db"
    query, portfolio = Query.from_files([old / "net.onnx"], old / "p.vnnlib"), single_verifier("crown")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript((old / "store.sql").read_text())
        # asked by a portfolio of today
        connection.execute("UPDATE portfolios SET key = ?", (portfolio.key,))
        connection.execute("UPDATE answers SET portfolio = ?", (portfolio.key,))
        stored = connection.execute("SELECT query, verdict FROM answers").fetchall()
    assert stored == [(query.sha256, "unsat")]  # it would be found
    with Store(path) as store, Oracle(portfolio, "inline", store, timeout=60.0) as oracle:
        assert oracle.ask(query).verdict is Verdict.UNKNOWN
        assert oracle.counts == {"run": 1}
    told = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"{path}: 1 proofs of an earlier version are not used") for line in told] == [
        True
    ]
