"""How good are the tests of the trust base? `make faults` and `make mutants`.

faults    every seeded fault, and whether a test fails on it
run       a seeded sample of mutants, stratified by file; continues a table of rows
report    the shares killed with their intervals, and the survivors nobody has judged
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir

from .areas import tests_of, trusted_files
from .faults import FAULTS, Fault, stale
from .killers import Kill, Traced, killers, trace, untraced
from .operators import Mutant, mutants
from .scratch import Result, Scratch
from .server import Server

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
ROWS, JUDGED, CAUGHT = HERE / "rows.csv", HERE / "judged.csv", HERE / "faults.csv"
LEFT = ("survived", "timeout")  # no test failed within the limit: both must be judged
LEAST = 2  # mutants of every file, however small


@dataclass(frozen=True)
class Row:
    """One mutant and what came of it."""

    key: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    status: str
    test: str
    seconds: float


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Mutants in proportion to what each file offers, at least a few of each; in random order.

    A mutant is ranked by a hash of its own key, so that a change of one line leaves the rest of the sample alone
    and the rows of an earlier version of the tree still count.
    """
    offered = {f: mutants(f, (root / f).read_text(encoding="utf-8")) for f in trusted_files(root)}
    total = sum(map(len, offered.values()))
    chosen: list[Mutant] = []
    for found in offered.values():
        share = min(len(found), max(LEAST, round(count * len(found) / total)))
        chosen += sorted(found, key=lambda m: _rank(m, seed))[:share]
    return sorted(chosen, key=lambda m: _rank(m, seed))[:count]


def _rank(mutant: Mutant, seed: int) -> str:
    return hashlib.sha256(f"{seed}|{mutant.key}".encode()).hexdigest()


def parses(file: str, text: str) -> bool:
    """Whether a mutant is a program at all; of C the compiler is asked later."""
    try:
        ast.parse("" if file.endswith((".c", ".h")) else text)
    except SyntaxError:
        return False
    return True


@dataclass(frozen=True)
class Tests:
    """Which tests are tried: those that run the statement (`traced`), or all of an area, the nearest first.

    `named`: test files that alone are tried. What they leave is not noted, as others may notice it.
    """

    traced: bool = True
    named: tuple[str, ...] = ()

    def files(self, sources: Iterable[str]) -> list[str]:
        """The test files to collect for changes of `sources`."""
        return list(self.named) or test_files(trusted_files(ROOT) if self.traced else sources)

    def settles(self, result: Result) -> bool:
        return result.status == "killed" or not self.named


def run(count: int, seed: int, seconds: float, rows: Path, only: str, tried: Tests) -> None:
    """The sample's mutants that have no row yet, ran out of a shorter time and are not judged, or were holes.

    Every row is written at once.
    """
    judged = judgements(JUDGED)
    chosen = sample(ROOT, count, seed)
    known = {row.key for row in read_rows(rows) if settled(row, judged.get(row.key), seconds)}
    todo = [m for m in chosen if m.key not in known and only in m.file]
    say(f"{len(todo)} mutants to run, {len(chosen) - len(todo)} known or left out")
    scratch = Scratch(ROOT, Path(gettempdir()) / f"mutants-{time.time_ns()}")
    closed = {line["key"]: line["why"].split()[0].rstrip(";") for line in read_table(JUDGED)}

    def work(server: Server) -> None:
        traced = trace_tests(scratch, server) if tried.traced else []
        before = Counter(row.test for row in read_rows(rows))
        for mutant in sorted(todo, key=lambda m: judged.get(m.key) != "hole"):
            source = scratch.read(mutant.file)
            text = mutant.text(source)
            if parses(mutant.file, text):
                if tried.traced:
                    tests = killers(mutant.file, source, mutant.line, traced, before)
                else:
                    closing = closed.get(mutant.key, "?")
                    tests = untraced(ROOT, mutant.file, server.items, closing, read_kills(rows))
                result = scratch.changed(server, mutant.file, text, tests, seconds)
                before[result.test] += 1
                if tried.settles(result):
                    note(rows, mutant, result, len(tests))

    scratch.serve(tried.files(sorted({m.file for m in todo})), work)


def settled(row: Row, verdict: str | None, seconds: float) -> bool:
    """Whether a row needs no other run: a survivor that was a hole has a test since, which must be seen to fail."""
    if row.status in LEFT and verdict:
        return verdict != "hole"
    return row.status != "timeout" or row.seconds >= seconds


def note(rows: Path, mutant: Mutant, result: Result, tests: int) -> None:
    before, after = (" ".join(text.split())[:80] for text in (mutant.before, mutant.after))
    place = mutant.file, mutant.line, mutant.operator, before, after
    append_row(rows, Row(mutant.key, *place, result.status, result.test, round(result.seconds, 1)))
    took = f"{result.status} {result.seconds:.0f} s of {tests} tests"
    say(f"{took} {mutant.file}:{mutant.line} {before!r} -> {after!r} {result.test}")


def test_files(sources: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(t for f in sources for t in tests_of(ROOT, f)))


def trace_tests(scratch: Scratch, server: Server) -> list[Traced]:
    """Every test of the trust base that passes on the unchanged tree, and what it runs."""
    started, sources = time.monotonic(), trusted_files(ROOT)
    traced = trace(scratch, server, test_files(sources), sources, ROOT / "build")
    say(f"{len(traced)} of {len(server.items)} tests traced in {time.monotonic() - started:.0f} s")
    return traced


def tests_for(fault: Fault, source: str, server: Server, traced: list[Traced] | None) -> list[str]:
    """Those that run the statement; where nothing is traced, as outside the trust base, all of its area."""
    if traced is not None and fault.file in trusted_files(ROOT):
        line = source[: source.index(fault.before)].count("\n") + 1
        return killers(fault.file, source, line, traced, Counter())
    return untraced(ROOT, fault.file, server.items, "?", [])


def read_rows(path: Path) -> list[Row]:
    found = [
        Row(**{**line, "line": int(line["line"]), "seconds": float(line["seconds"])})  # type: ignore[arg-type]
        for line in read_table(path)
    ]
    return list({row.key: row for row in found}.values())  # the last word about a mutant counts


def read_kills(path: Path) -> list[Kill]:
    return [Kill(row.file, row.test) for row in read_rows(path) if row.status == "killed"]


def read_table(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def append_row(path: Path, row: Row | Caught) -> None:
    new = not path.is_file()
    with path.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, asdict(row).keys(), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson interval of a share (Wilson 1927)."""
    if not total:
        return 0.0, 1.0
    share, n = hits / total, float(total)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def judgements(path: Path) -> dict[str, str]:
    """What survivors were found to be: equivalent, looser, covered (another charge is enough), or hole."""
    return {line["key"]: line["verdict"] for line in read_table(path)}


def report(rows_path: Path, judged_path: Path, keys: Container[str] | None = None) -> None:
    """Shares per file and together, of the rows with these keys. A mutant that does not compile counts nowhere.

    Two shares: of all mutants, and the mutation score, which leaves out those that are judged equivalent.
    """
    rows = [row for row in read_rows(rows_path) if keys is None or row.key in keys]
    judged = judgements(judged_path)
    by_file: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_file[row.file][judged.get(row.key, "to judge") if row.status in LEFT else row.status] += 1
    for file, counts in sorted(by_file.items()):
        say(f"{file}: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    total = sum(by_file.values(), Counter())
    every = sum(total.values()) - total["broken"]
    share("killed", total["killed"], every)
    share(f"without {total['equivalent']} judged equivalent", total["killed"], every - total["equivalent"])
    say("; ".join(f"{n} {status}" for status, n in sorted(total.items())))
    for row in rows:
        if row.status in LEFT and row.key not in judged:
            say(f"to judge: {row.key} {row.file}:{row.line} {row.operator}: {row.before!r} -> {row.after!r}")


def share(what: str, hits: int, total: int) -> None:
    low, high = wilson(hits, total)
    part = hits / total if total else 0.0
    say(f"{what} {hits} of {total}: {part:.1%}, {low:.1%} to {high:.1%} (95 %)")


@dataclass(frozen=True)
class Caught:
    """One seeded fault and the first test that failed on it, if any did."""

    key: str
    file: str
    name: str
    status: str
    test: str
    seconds: float


def seed_faults(seconds: float, table: Path, only: str, tried: Tests) -> int:
    """Put every fault that no test is known to catch into a copy of the tree; the number that no test noticed.

    Untraced is quicker for a few faults, as most are caught by the nearest tests.
    """
    lost = stale(ROOT)
    if lost:
        sys.exit("\n".join(lost))
    known = {row.key for row in read_caught(table) if row.status == "killed"}
    chosen = [f for f in FAULTS if f.key not in known and only in f"{f.file} {f.name}"]
    scratch = Scratch(ROOT, Path(gettempdir()) / f"faults-{time.time_ns()}")

    def work(server: Server) -> None:
        traced = trace_tests(scratch, server) if tried.traced else None
        for fault in chosen:
            source = scratch.read(fault.file)
            tests = tests_for(fault, source, server, traced)
            text = source.replace(fault.before, fault.after)
            result = scratch.changed(server, fault.file, text, tests, seconds)
            took = result.status, result.test, round(result.seconds, 1)
            if tried.settles(result):
                append_row(table, Caught(fault.key, fault.file, fault.name, *took))
            word = "caught" if result.status == "killed" else "MISSED"
            say(f"{word} {fault.file}: {fault.name} ({result.status}, {result.seconds:.0f} s) {result.test}")

    if chosen:
        scratch.serve(tried.files(dict.fromkeys(f.file for f in chosen)), work)
    return report_faults(table)


def read_caught(path: Path) -> list[Caught]:
    return [Caught(**{**line, "seconds": float(line["seconds"])}) for line in read_table(path)]  # type: ignore[arg-type]


def report_faults(table: Path) -> int:
    """Print how many of today's faults are caught, and the others; how many of them were tried and missed."""
    status = {row.key: row.status for row in read_caught(table)}
    caught = sum(status.get(f.key) == "killed" for f in FAULTS)
    say(f"{caught} of {len(FAULTS)} seeded faults caught")
    for fault in FAULTS:
        if status.get(fault.key) != "killed":
            say(f"{'MISSED' if fault.key in status else 'not tried'}: {fault.file}: {fault.name}")
    return sum(status.get(f.key, "killed") != "killed" for f in FAULTS)


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("faults", "run", "report"))
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="of the processor, per mutant (60) or fault (600)"
    )
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--only", default="", help="files, or names of faults, that contain this")
    parser.add_argument(
        "--untraced",
        action="store_true",
        help="try all tests of an area, the nearest first, without tracing first what they run",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=[],
        metavar="FILE",
        help="try these test files alone; keep what they notice",
    )
    given = parser.parse_args()
    tried = Tests(not (given.untraced or given.tests), tuple(given.tests))
    if given.what == "faults":
        sys.exit(1 if seed_faults(given.seconds or 600.0, CAUGHT, given.only, tried) else 0)
    if given.what == "run":
        run(given.count, given.seed, given.seconds or 60.0, given.rows, given.only, tried)
    report(given.rows, JUDGED, {m.key for m in sample(ROOT, given.count, given.seed)})


if __name__ == "__main__":
    main()
