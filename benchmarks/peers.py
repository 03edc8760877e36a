"""Records what other tools answer, once per machine, and sets verifolio beside them.

    python benchmarks/peers.py DATA [--peers marabou,neuralsat] [--members crown] [--cap 60] [--out FOLDER] [--table]

DATA is a folder with `instances.csv` (id, category, onnx, vnnlib, timeout, expected). Each peer is a tool described
in `peer_tools/`, in $VERIFOLIO_TOOLS or by verifolio itself, and runs as its authors ship it: their readers, their
settings, the original files. What it claims is recorded as it is, a claimed counterexample is also replayed. The
short list comes first, then the rest, category by category in turn, each instance with every peer, so that the
records of an unfinished run compare too. Interrupted at any moment and started again, it continues; what is
recorded is not run again. `--table` prints the comparison without recording anything.

With one core, the seconds of a peer are those of its processor, start included: on a machine that does other things
as well, the clock on the wall would make it look slow. For the same reason the limit that a tool is told is stretched
by as much as the run before was kept waiting, and what still ran out of time on the wall is run once more.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gzip
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

import psutil

from verifolio.errors import VerifolioError
from verifolio.model.answer import Verdict, Witness
from verifolio.model.query import Query
from verifolio.onnx_import.network import Network
from verifolio.plugins.bench.instances import (
    Instance,
    cap,
    read_instances,
    select,
)
from verifolio.plugins.bench.matching import Key, key_of
from verifolio.plugins.bench.results import InstanceResult, Tool, ToolClaim, read_tool
from verifolio.plugins.bench.scoring import OURS, Contest, lines, make_contest, par2
from verifolio.plugins.command.description import Description, described, read_description
from verifolio.plugins.command.files import read_point, read_text
from verifolio.plugins.command.verdict import read_verdict
from verifolio.run.tree import descendants, resident
from verifolio.trust.referee import judge_counterexample

HERE = Path(__file__).resolve().parent
SHORT = HERE / "short.csv"
SKIPPED = "acasxu"  # 186 of the public instances; those of the short list are run
POLL = 0.05  # seconds
STARVED = 0.9  # a tool that got less than this share of its seconds was kept waiting
MOST_STRETCH = 3.0
TAIL = 400  # characters of output kept for people
ASSIGNMENT = re.compile(r"^\s*x(\d+)\s*=\s*(\S+)\s*$", re.MULTILINE)  # Marabou's form of a point


@dataclass(frozen=True)
class Record:
    """One run of one peer: what it claims, whether its point replays, its seconds by both clocks."""

    peer: str
    setup: str
    id: str
    category: str
    claim: str
    seconds: float
    wall: float
    exit_code: int | None
    replay: str
    said: str
    began: str
    tries: int = 1

    def starved(self, limit: float) -> bool:
        """Stopped by the clock on the wall before it had its seconds."""
        return self.claim == "timeout" and self.tries < 2 and self.seconds < STARVED * limit


@dataclass(frozen=True)
class Limits:
    """Seconds and cores per instance, and gigabytes."""

    seconds: float
    cores: int
    memory: float


class Book:
    """The records of one peer under one setup, one line of JSON each; the last one of an instance counts."""

    def __init__(self, folder: Path, tool: Description, limits: Limits) -> None:
        self.tool, self.limits = tool, limits
        self.path = folder / f"{tool.name}.jsonl"
        call = (tool.command, sorted(tool.environment.items()), tool.answer, sorted(tool.verdicts.items()))
        text = f"{call} {limits.seconds:g} s {limits.cores} cores {limits.memory:g} GB"
        self.setup = sha256(text.encode()).hexdigest()[:12]
        self.records: dict[str, Record] = {}
        self.stretch = 1.0  # seconds on the wall per second of the processor, lately
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError):  # a line that was being written when the machine stopped
                continue
            if record.setup == self.setup:
                self.records[record.id] = record

    def add(self, record: Record) -> None:
        self.records[record.id] = record
        if self.limits.cores == 1 and record.seconds >= 1:
            self.stretch = max(1.0, min(MOST_STRETCH, record.wall / record.seconds))
        with self.path.open("a") as stream:
            stream.write(json.dumps(asdict(record)) + "\n")

    def claims(self, instances: Sequence[Instance]) -> Tool:
        found: dict[Key, ToolClaim] = {}
        for i in instances:
            record = self.records[identity(i)]
            claim = record.claim if record.claim in ("sat", "unsat") else "unknown"
            found[key_of(i)] = ToolClaim(claim, record.seconds)
        return Tool(self.tool.name, found)


def identity(instance: Instance) -> str:
    """The instance by name and by the content of its files: a changed file is another instance."""
    return f"{instance.label} {_digest((*(p for _, p in instance.networks), instance.specification))}"


@cache
def _digest(paths: tuple[Path, ...]) -> str:
    return sha256(b"".join(sha256(path.read_bytes()).digest() for path in paths)).hexdigest()[:12]


def ordered(instances: Sequence[Instance], short: Sequence[Instance], whole: bool) -> list[Instance]:
    """The short list, then the other instances, one of each category in turn."""
    names = {i.label for i in short}
    groups: dict[str, list[Instance]] = defaultdict(list)
    for i in instances:
        if i.label not in names and (whole or i.category != SKIPPED):
            groups[i.category].append(i)
    rest = [i for turn in zip_longest(*groups.values()) for i in turn if i is not None]
    return [*short, *rest]


def run_tool(
    tool: Description, instance: Instance, limits: Limits, stretch: float
) -> tuple[str, float, float, int | None]:
    """What the tool wrote, its seconds, those on the wall, and its exit code (None: stopped)."""
    with tempfile.TemporaryDirectory(prefix=f"{tool.name}-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        files = {"onnx": folder / "network.onnx", "vnnlib": folder / "property.vnnlib"}
        files["onnx"].write_bytes(Network.load(instance.networks[0][1]).model())
        data = instance.specification.read_bytes()
        packed = instance.specification.suffix == ".gz"
        files["vnnlib"].write_bytes(gzip.decompress(data) if packed else data)
        results, output = folder / "results.txt", folder / "output.txt"
        values = {k: str(v) for k, v in files.items()}
        values |= {"results": str(results), "folder": place, "path": os.path.expandvars(tool.path)}
        values |= {"timeout": str(int(limits.seconds * stretch)), "cores": str(limits.cores)}
        seconds, wall, code = execute(tool, values, output, limits, stretch)
        text = read_text(results if tool.answer == "results" else output)
        return text or f"(nothing) {read_text(output)[-TAIL:]}", seconds, wall, code


def fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), os.path.expandvars(text))


def execute(
    tool: Description, values: dict[str, str], output: Path, limits: Limits, stretch: float
) -> tuple[float, float, int | None]:
    """Run to the end or to a limit; nothing of the tool is left afterwards."""
    threads = {"OMP_NUM_THREADS": str(limits.cores), "MKL_NUM_THREADS": str(limits.cores)}
    own = {k: fill(v, values) for k, v in tool.environment.items()}
    begin = time.monotonic()
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [fill(part, values) for part in tool.command],
            cwd=values["folder"],
            env=dict(os.environ) | threads | own,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    seconds = 0.0
    try:
        while process.poll() is None:
            below = [process.pid, *descendants(process.pid)]
            seconds = max(seconds, sum(map(processor_seconds, below)))
            wall = time.monotonic() - begin
            spent = seconds if limits.cores == 1 else wall
            if spent >= limits.seconds or wall >= limits.seconds * stretch + 1.0:
                return spent, wall, None
            if resident(below) > limits.memory * 2**30:
                return spent, wall, -signal.SIGKILL
            time.sleep(POLL)
        wall = time.monotonic() - begin
        return (min(seconds + POLL, wall) if limits.cores == 1 else wall), wall, process.returncode
    finally:
        end_group(process)


def processor_seconds(pid: int) -> float:
    """Of a process and of its children that ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def claim_of(tool: Description, text: str, code: int | None) -> str:
    """sat, unsat, timeout or unknown as the tool says; else why there is none."""
    said = read_verdict(tool, text)
    if said.conflict:
        return "error"
    if said.verdict:
        return said.verdict
    if code is None:
        return "timeout"
    return "memout" if code == -signal.SIGKILL else "unknown" if code == 0 else "error"


def replayed(instance: Instance, text: str) -> str:
    """What the referee says of a claimed counterexample."""
    try:
        query = Query.from_files([path for _, path in instance.networks], instance.specification)
        point = read_point(ASSIGNMENT.sub(r"(X_\1 \2)", text), query.specification.input_size)
        if point is None:
            return "no complete point"
        found = judge_counterexample(query, point)
    except VerifolioError as error:
        return f"not replayed: {error}"
    return "holds" if isinstance(found, Witness) else found.reason


def measure(book: Book, instance: Instance) -> Record:
    """Run the peer on an instance, longer on the wall where it is kept waiting."""
    old = book.records.get(identity(instance))
    limits = replace(book.limits, seconds=min(book.limits.seconds, instance.timeout))
    began = time.strftime("%Y-%m-%dT%H:%M:%S")
    text, seconds, wall, code = run_tool(book.tool, instance, limits, book.stretch)
    claim = claim_of(book.tool, text, code)
    replay = replayed(instance, text) if claim == "sat" else ""
    said = "" if claim in ("sat", "unsat") else " ".join(text[-TAIL:].split())
    return Record(
        peer=book.tool.name,
        setup=book.setup,
        id=identity(instance),
        category=instance.category,
        claim=claim,
        seconds=round(seconds, 3),
        wall=round(wall, 3),
        exit_code=code,
        replay=replay,
        said=said,
        began=began,
        tries=old.tries + 1 if old else 1,
    )


def record(books: Sequence[Book], instances: Sequence[Instance]) -> None:
    """Every instance with every peer; then once more what was kept waiting."""
    for again in (False, True):
        for number, instance in enumerate(instances, 1):
            for book in books:
                old = book.records.get(identity(instance))
                limit = min(book.limits.seconds, instance.timeout)
                if old is not None and not (again and old.starved(limit)):
                    continue
                new = measure(book, instance)
                book.add(new)
                line = f"{number}/{len(instances)} {instance.label} {book.tool.name}: {new.claim}"
                seconds = f"{new.seconds:.1f} s, {new.wall:.1f} s on the wall"
                print(line, seconds, new.replay, file=sys.stderr, flush=True)


def run_member(name: str, options: argparse.Namespace, instances: Sequence[Instance]) -> Tool:
    """A configuration of verifolio on the same instances, through `verifolio bench`, which continues too."""
    out = options.out / f"verifolio_{name}.csv"
    command = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", "bench"]
    command += [str(options.data / "instances.csv"), "--output", str(out), "--timeout-cap", str(options.cap)]
    command += [
        "--cores",
        str(options.cores),
        "--no-pictures",
        "--only",
        ",".join(i.label for i in instances),
    ]
    command += ["--verifier", name] if name != "default" else []
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 4):  # 4: a wrong answer, which the table shows
        raise SystemExit(code)
    return replace(read_tool(out), name=f"verifolio {name}")


def contest_of(instances: Sequence[Instance], tools: Sequence[Tool]) -> Contest:
    """All tools on the same instances; what is true is what is expected."""
    nobody = InstanceResult(Verdict.UNKNOWN, 0.0)
    contest = make_contest([(replace(i, claims={}), nobody) for i in instances], tools)
    return replace(contest, claims={n: c for n, c in contest.claims.items() if n != OURS})


def show(contest: Contest) -> int:
    """Decided, wrong and PAR-2 per category and in all, of every tool, also of those that decided nothing."""
    print("category\ttool\tinstances\tdecided\tsat\tunsat\twrong\tPAR-2")
    found = lines(contest)
    wrong = 0
    for category in dict.fromkeys(line.category for line in found):
        here = [line for line in found if line.category == category]
        for line in here:
            cells = (line.instances, line.decided, line.sat, line.unsat, line.wrong, f"{line.par2:.2f}")
            print("\t".join([category, line.tool, *map(str, cells)]))
            wrong += line.wrong if line.tool.startswith("verifolio") and category != "all" else 0
        for tool in contest.claims.keys() - {line.tool for line in here}:
            chosen = [k for k, i in enumerate(contest.instances) if category in (i.category, "all")]
            print(f"{category}\t{tool}\t{len(chosen)}\t0\t0\t0\t0\t{par2(contest, tool, chosen):.2f}")
    return 4 if wrong else 0


def show_doubts(books: Sequence[Book], instances: Sequence[Instance]) -> None:
    """Claims that do not replay, and failures, which the table counts as undecided."""
    for book in books:
        mine = [book.records[identity(i)] for i in instances]
        lost = [r for r in mine if r.claim == "sat" and r.replay != "holds"]
        failed = [r for r in mine if r.claim in ("error", "memout")]
        kept = [r for r in mine if r.starved(book.limits.seconds)]
        doubts = f"{len(failed)} failures, {len(kept)} kept waiting, {len(lost)} sat without replay"
        print(f"{book.tool.name}: {doubts}")


def machine() -> str:
    """A name for this kind of machine: its processor and how many cores there are."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    text = f"{named[1] if named else model} {os.cpu_count()}"
    return re.sub(r"\W+", "_", text.lower()).strip("_")


def find_tools(names: Sequence[str]) -> Iterator[Description]:
    """The described tools, those of `peer_tools` first; one that is not there ends the run."""
    os.environ.setdefault("MARABOU_PY", sys.executable)
    known = {d.name: d for d in described()}
    known |= {d.name: d for d in map(read_description, sorted((HERE / "peer_tools").glob("*.yaml")))}
    for name in names:
        if name not in known:
            raise SystemExit(f"expected peers of {', '.join(sorted(known))}, got {name}")
        reason = known[name].missing() or ("it runs by scripts" if known[name].scripts else None)
        if reason:
            raise SystemExit(f"{name} cannot run here: {reason}")
        yield known[name]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two recordings at once would slow each other down and run everything twice."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"another recording runs in {folder}; --table shows what it has") from None
        yield


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peers", default="marabou,neuralsat", help="tools, with commas")
    parser.add_argument("--members", default="crown", help="verifiers of verifolio beside them, or `default`")
    parser.add_argument("--only", default="", help="ids or categories, with commas, or a file")
    parser.add_argument("--whole", action="store_true", help=f"also {SKIPPED} beyond the short list")
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--memory", type=float, default=8.0, help="gigabytes")
    parser.add_argument("--out", type=Path, default=Path("out/peers") / machine())
    parser.add_argument("--table", action="store_true", help="record nothing, compare what is there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))  # so that the tool ends with us
    every = cap(read_instances(options.data / "instances.csv"), options.cap)
    short = select(every, str(SHORT)) if not options.only else []
    chosen = ordered(select(every, options.only), short, options.whole or bool(options.only))
    options.out.mkdir(parents=True, exist_ok=True)
    limits = Limits(options.cap, options.cores, options.memory)
    books = [Book(options.out, tool, limits) for tool in find_tools(options.peers.split(","))]
    if not options.table:
        with alone(options.out):
            record(books, chosen)
    done = [i for i in chosen if all(identity(i) in book.records for book in books)]
    print(f"{len(done)} of {len(chosen)} instances were recorded with every peer")
    if not done:
        return 0
    show_doubts(books, done)
    tools = [run_member(name, options, done) for name in filter(None, options.members.split(","))]
    return show(contest_of(done, [*tools, *(book.claims(done) for book in books)]))


if __name__ == "__main__":
    raise SystemExit(main())
