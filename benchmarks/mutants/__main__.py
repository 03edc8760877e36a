"""How good are the tests of the trust base? `make faults` and `make mutants`.

faults    every seeded fault, and whether a test fails on it
run       a seeded sample of mutants, stratified by file; continues a table of rows
report    the share killed with its interval, and the survivors nobody has judged
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
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir

from .areas import tests_of, trusted_files
from .faults import FAULTS, stale
from .killers import Traced, killers, trace
from .operators import Mutant, mutants
from .scratch import Result, Scratch
from .server import Server

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
ROWS, JUDGED = HERE / "rows.csv", HERE / "judged.csv"
LEFT = ("survived", "timeout")  # no test failed within the limit: both must be judged
HARMLESS = ("equivalent", "looser", "covered")  # judgements of what no claim depends on
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


def run(count: int, seed: int, seconds: float, rows: Path, only: str) -> None:
    """The sample's mutants that have no row yet, or ran out of a shorter time and are not judged.

    Every row is written at once.
    """
    known = {row.key for row in read_rows(rows) if row.status != "timeout" or row.seconds >= seconds}
    known |= judgements(JUDGED).keys() & {row.key for row in read_rows(rows)}
    chosen = sample(ROOT, count, seed)
    todo = [m for m in chosen if m.key not in known and only in m.file]
    say(f"{len(todo)} mutants to run, {len(chosen) - len(todo)} known or left out")
    scratch = Scratch(ROOT, Path(gettempdir()) / f"mutants-{time.time_ns()}")

    def work(server: Server) -> None:
        traced = trace_tests(scratch, server)
        before = Counter(row.test for row in read_rows(rows))
        for mutant in todo:
            source = scratch.read(mutant.file)
            text = mutant.text(source)
            if parses(mutant.file, text):
                tests = killers(mutant.file, source, mutant.line, traced, before)
                result = scratch.changed(server, mutant.file, text, tests, seconds)
                before[result.test] += 1
                note(rows, mutant, result, len(tests))

    scratch.serve(test_files(), work)


def note(rows: Path, mutant: Mutant, result: Result, tests: int) -> None:
    before, after = (" ".join(text.split())[:80] for text in (mutant.before, mutant.after))
    place = mutant.file, mutant.line, mutant.operator, before, after
    append_row(rows, Row(mutant.key, *place, result.status, result.test, round(result.seconds, 1)))
    took = f"{result.status} {result.seconds:.0f} s of {tests} tests"
    say(f"{took} {mutant.file}:{mutant.line} {before!r} -> {after!r} {result.test}")


def test_files() -> list[str]:
    """All tests of the trust base, and of where faults are seeded."""
    return list(dict.fromkeys(t for f in sources() for t in tests_of(ROOT, f)))


def sources() -> list[str]:
    return list(dict.fromkeys([*trusted_files(ROOT), *(p.file for p in FAULTS)]))


def trace_tests(scratch: Scratch, server: Server) -> list[Traced]:
    """Every test that passes on the unchanged tree, and what it runs."""
    started = time.monotonic()
    traced = trace(scratch, server, sources(), ROOT / "build")
    say(f"{len(traced)} of {len(server.items)} tests traced in {time.monotonic() - started:.0f} s")
    return traced


def read_rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="") as stream:
        found = [
            Row(**{**line, "line": int(line["line"]), "seconds": float(line["seconds"])})  # type: ignore[arg-type]
            for line in csv.DictReader(stream)
        ]
    return list({row.key: row for row in found}.values())  # the last word about a mutant counts


def append_row(path: Path, row: Row) -> None:
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
    if not path.is_file():
        return {}
    with path.open(newline="") as stream:
        return {line["key"]: line["verdict"] for line in csv.DictReader(stream)}


def report(rows_path: Path, judged_path: Path) -> None:
    """Shares per file and together. A mutant that does not compile counts nowhere, one judged equivalent neither."""
    rows, judged = read_rows(rows_path), judgements(judged_path)
    by_file: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        equivalent = row.status in LEFT and judged.get(row.key) in HARMLESS
        by_file[row.file]["harmless" if equivalent else row.status] += 1
    total = sum(by_file.values(), Counter())
    for file, counts in sorted(by_file.items()):
        say(f"{file}: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    killed, left = total["killed"], sum(total[status] for status in LEFT)
    every = killed + left + total["harmless"]
    low, high = wilson(killed, every)
    say(f"killed {killed} of {every}: {low:.1%} to {high:.1%} (95 %)")
    low, high = wilson(killed, killed + left)
    say(f"without {total['harmless']} judged harmless: {low:.1%} to {high:.1%}; {dict(total)}")
    for row in rows:
        if row.status in LEFT and row.key not in judged:
            say(f"to judge: {row.key} {row.file}:{row.line} {row.operator}: {row.before!r} -> {row.after!r}")


def seed_faults(seconds: float, only: str) -> int:
    """Put every fault into a copy of the tree; the number that no test noticed."""
    lost = stale(ROOT)
    if lost:
        sys.exit("\n".join(lost))
    scratch = Scratch(ROOT, Path(gettempdir()) / f"faults-{time.time_ns()}")
    missed = scratch.folder / "build" / "missed.txt"
    missed.write_text("")
    chosen = [p for p in FAULTS if only in f"{p.file} {p.name}"]

    def work(server: Server) -> None:
        traced = trace_tests(scratch, server)
        for fault in chosen:
            source = scratch.read(fault.file)
            line = source[: source.index(fault.before)].count("\n") + 1
            tests = killers(fault.file, source, line, traced, Counter())
            text = source.replace(fault.before, fault.after)
            result = scratch.changed(server, fault.file, text, tests, seconds)
            if result.status != "killed":
                missed.write_text(missed.read_text() + f"{fault.name}\n")
            word = "caught" if result.status == "killed" else "MISSED"
            say(f"{word} {fault.file}: {fault.name} ({result.status}, {result.seconds:.0f} s) {result.test}")

    scratch.serve(test_files(), work)
    lost = missed.read_text().splitlines()
    say(f"{len(chosen) - len(lost)} of {len(chosen)} caught")
    return len(lost)


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
    given = parser.parse_args()
    if given.what == "faults":
        sys.exit(1 if seed_faults(given.seconds or 600.0, given.only) else 0)
    if given.what == "run":
        run(given.count, given.seed, given.seconds or 60.0, given.rows, given.only)
    report(given.rows, JUDGED)


if __name__ == "__main__":
    main()
