"""Malformed inputs for every command; run as a script, with a folder, under a limit of memory.

Prints one JSON object per case: what was called, its exit code, what it said, and the growth of the peak memory.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import sqlite3
import sys
import traceback
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

Case = tuple[str, list[str]]
ROOM = 3 << 30  # bytes of addresses beyond what the imports take
PROPERTY = """(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)
(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))(assert (>= Y_0 9))
"""
ALIASES = "\n".join(
    [
        "a0: &a0 [xxxxxxxxxx, xxxxxxxxxx]",
        *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10)),
    ]
)


class Folder:
    """Files to throw, each made where it is named."""

    def __init__(self, root: Path) -> None:
        from verifolio.testing.samples import write_sum

        self.root = root
        self.net = str(write_sum(root).path)
        self.prop = self.text("good.vnnlib", PROPERTY)
        self.quick = self.text("quick.vnnlib", PROPERTY.replace("Y_0 9", "Y_0 1"))
        np.savez(root / "good.npz", x=np.full((3, 2), 0.5), y=np.array([0, 0, 1]))
        self.data = str(root / "good.npz")

    def raw(self, name: str, data: bytes) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def text(self, name: str, text: str) -> str:
        return self.raw(name, text.encode())

    def bomb(self, name: str, line: bytes, megabytes: int) -> str:
        """A small file that decompresses to a large one."""
        member = gzip.compress(line * ((1 << 20) // len(line)), 1)
        return self.raw(name, member * megabytes)


def header(shape: str, kind: str = "<f8") -> bytes:
    """An .npy file that is all header."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def cases(f: Folder) -> list[Case]:
    """Every malformed input, with the command that meets it."""
    return [
        *data_cases(f),
        *yaml_cases(f),
        *table_cases(f),
        *store_cases(f),
        *query_cases(f),
        *number_cases(f),
    ]


def data_cases(f: Folder) -> list[Case]:
    files: dict[str, Callable[[str], str]] = {
        "bomb.csv.gz": lambda n: f.bomb(n, (b"0." + b"5" * 400 + b",") * 50 + b"0.5\n", 300),
        "line.csv.gz": lambda n: f.bomb(n, b"0.5,", 64),
        "rows.csv.gz": lambda n: f.bomb(n, b"1,2\n" + b" " * 4000 + b"\n", 300),
        "half.csv.gz": lambda n: f.raw(n, gzip.compress(b"1,2\n" * 999)[:-9]),
        "no.csv.gz": lambda n: f.raw(n, b"no gzip"),
        "zero.csv": lambda n: f.raw(n, b"\0" * 5000),
        "binary.csv": lambda n: f.raw(n, bytes(range(256)) * 20),
        "quote.csv": lambda n: f.text(n, '"' + "x" * 300_000),
        "ragged.csv": lambda n: f.text(n, "1,2,3\n1,2\n"),
        "empty.csv": lambda n: f.text(n, ""),
        "labels.csv": lambda n: f.text(n, "0.5,1,2\n1e300,1,2\n"),
        "infinite.csv": lambda n: f.text(n, "0,inf,2\n"),
        "huge.npz": lambda n: zipped(f, n, header("(9999999999999, 9999999)"), b"", 0),
        "lying.npz": lambda n: zipped(f, n, header("(1000000, 100)"), b"12345678", 1),
        "object.npz": lambda n: zipped(f, n, header("(1,)", "|O"), b"cos\nsystem\n(S'true'\ntR.", 1),
        "half.npz": lambda n: f.raw(n, Path(f.data).read_bytes()[:-30]),
        "no.npz": lambda n: f.raw(n, b"PK\x03\x04 but no archive"),
        "deep.npz": lambda n: zipped(f, n, header("(" * 40 + ")" * 40), b"", 0),
        "huge.npy": lambda n: f.raw(n, header("(9999999999999, 9999999)")),
        "negative.npy": lambda n: f.raw(n, header("(-1, 2)")),
        "object.npy": lambda n: f.raw(n, header("(1,)", "|O") + b"cos\nsystem\n(S'true'\ntR."),
        "version.npy": lambda n: f.raw(n, b"\x93NUMPY\x09\x00" + header("(1,)")[8:]),
        "empty.npy": lambda n: f.raw(n, b""),
        "text.npy": lambda n: f.raw(n, header("(1, 1)", "<U1") + b"abcd"),
    }
    asked = ["--epsilon", "0.1", "--metrics", "cacc", "--indices", "0"]
    return [(name, ["measure", f.net, "--data", make(name), *asked]) for name, make in files.items()]


def zipped(f: Folder, name: str, head: bytes, piece: bytes, times: int) -> str:
    path = f.root / name
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as m,
    ):
        m.write(head)
        for _ in range(times):
            m.write(piece)
    return str(path)


def yaml_cases(f: Folder) -> list[Case]:
    texts = {
        "aliases": ALIASES + "\nverifier: crown\noptions: {a: *a9}\nholds: *a9\nname: *a9\n",
        "itself": "&a [*a]",
        "deep": "[" * 5000,
        "deeper": "a: " + "{b: " * 500 + "1" + "}" * 500,
        "tag": "!!python/object/apply:os.system [true]",
        "number": "verifier: crown\nseconds: "
        + "9" * 6000
        + "\nholds: y[0] <= 1\noptions: {a: "
        + "9" * 6000
        + "}\n",
        "date": "verifier: crown\noptions: {a: 2020-99-99}\nholds: 2020-99-99\n",
        "merge": "<<: [1, 2]\nholds: 1\nverifier: x\n",
        "bytes": "\x00\x01",
        "keys": "? [a, b]\n: c\nholds: y[0] <= 1\n",
        "empty": "",
        "list": "- 1\n- 2\n",
        "long": "verifier: " + "x" * 2_000_000,
    }
    found = []
    for name, text in texts.items():
        path = f.text(f"{name}.yaml", text)
        found.append((f"portfolio {name}", ["verify", f.net, f.prop, "--portfolio", path]))
        found.append(
            (f"property {name}", ["measure", f.net, "--data", f.data, "--epsilon", "0.1", "--property", path])
        )
    formulas = (
        "y[7] <= 1",
        "y[0:0] <= 1",
        "x[9] <= y[0]",
        "y[-1] <= 1",
        "(" * 99,
        "y[0] <= " + "9" * 9999,
        "1 <=",
    )
    for k, text in enumerate(formulas):
        path = f.text(f"formula{k}.yaml", f"holds: {json.dumps(text)}\n")
        asked = [
            "measure",
            f.net,
            "--data",
            f.data,
            "--epsilon",
            "0.1",
            "--metrics",
            "cacc",
            "--property",
            path,
        ]
        found.append((f"formula {text[:20]}", [*asked, "--indices", "0"]))
    return found


def table_cases(f: Folder) -> list[Case]:
    head = "id,category,onnx,vnnlib,timeout\n"
    texts = {
        "twice": head + f"x,c,{f.net},{f.prop},9\nx,c,{f.net},{f.prop},9\n",
        "nul": f"\0.onnx,{f.prop},9\n",
        "long": f"{'x' * 9000}.onnx,{f.prop},9\n",
        "nested": '"[' + "(" * 9000 + f'",{f.prop},9\n',
        "minus": '"[' + "-" * 9000 + f'1]",{f.prop},9\n',
        "none": f'"[]",{f.prop},9\n',
        "soon": f"{f.net},{f.prop},soon\n",
        "nan": f"{f.net},{f.prop},nan\n",
        "wide": "," * 5000 + "\n",
        "quote": '"' + "x" * 300_000,
        "empty": "",
        "folder": f"..,{f.prop},9\n",
    }
    found = [
        (f"instances {n}", ["bench", f.text(f"t/{n}.csv", t), "--no-pictures"]) for n, t in texts.items()
    ]
    bomb = f.bomb("bomb_table.csv.gz", b"aa," * 100 + b"\n", 400)
    good = f.text("good.csv", f"{f.net},{f.prop},9\n")
    found.append(("instances bomb", ["bench", bomb]))
    found.append(("only bomb", ["bench", good, "--only", bomb]))
    for name, text in {
        "narrow": "a,b\n",
        "list": 'c,"[",p,0,sat,1\n',
        "both": "c,a,p,0,sat,1\nc,a,p,0,unsat,1\n",
    }.items():
        found.append((f"against {name}", ["bench", good, "--against", f.text(f"a/{name}.csv", text)]))
    found.append(("against bomb", ["bench", good, "--against", bomb]))
    found.append(("against nothing", ["bench", good, "--against", "/nowhere/results.csv"]))
    return found


def store_cases(f: Folder) -> list[Case]:
    """Files that are no stores, damaged ones, and ones with foreign tables or rows."""
    from verifolio.cli.main import run

    inline = ["--executor", "inline", "--verifier", "pgd", "--timeout", "60"]
    whole = f.root / "whole.db"
    with redirect_stdout(io.StringIO()):
        run(["verify", f.net, f.quick, "--store", str(whole), *inline])
    with sqlite3.connect(whole) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    data = whole.read_bytes()
    damaged = bytearray(data)
    damaged[4096:] = b"\xff" * (len(data) - 4096)
    paths = {
        "text": f.text("text.db", "no database" * 100),
        "half": f.raw("half.db", data[: len(data) // 2]),
        "page": f.raw("page.db", data[:5000]),
        "noise": f.raw("noise.db", bytes(damaged)),
        "folder": str(f.root),
        "verdict": altered(f, data, "UPDATE answers SET verdict = 'maybe'"),
        "flags": altered(f, data, "UPDATE answers SET flags = '{'"),
        "foreign": foreign(f),
    }
    found = []
    for name, path in paths.items():
        found.append((f"store {name}", ["verify", f.net, f.quick, "--store", path, *inline]))
        found.append((f"runs {name}", ["portfolio", "build", f"crown={path}" if name == "folder" else path]))
        found.append((f"report {name}", ["report", path, "--output", str(f.root / "report")]))
    return found


def altered(f: Folder, data: bytes, sql: str) -> str:
    path = f.raw(f"altered{len(sql)}.db", data)
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    return path


def foreign(f: Folder) -> str:
    path = str(f.root / "foreign.db")
    with sqlite3.connect(path) as connection:
        for name in ("answers", "bench_results", "portfolios", "distribution_runs", "distribution_items"):
            connection.execute(f"CREATE TABLE {name} (nonsense TEXT)")
    return path


def query_cases(f: Folder) -> list[Case]:
    found = []
    for name, data in {
        "bomb.onnx.gz": None,
        "text.onnx": b"no network",
        "empty.onnx": b"",
        "half.onnx": Path(f.net).read_bytes()[:60],
    }.items():
        path = f.raw(name, data) if data is not None else f.bomb(name, b"\0" * 1024, 1200)
        found += [
            (f"network {name}", ["network", "show", path]),
            (f"verify {name}", ["verify", path, f.prop]),
        ]
    for name, text in {
        "deep": "(" * 100_000,
        "index": PROPERTY.replace("Y_0 9", "Y_7 9"),
        "huge": PROPERTY.replace("Y_0", "Y_" + "9" * 5000),
        "text": "hello",
        "empty": "",
    }.items():
        found.append((f"vnnlib {name}", ["verify", f.net, f.text(f"{name}.vnnlib", text)]))
    found.append(("vnnlib bomb", ["vnnlib", "check", f.bomb("bomb.vnnlib.gz", b"; \n", 1100)]))
    return found


def number_cases(f: Folder) -> list[Case]:
    np.savez(f.root / "plain.npz", x=np.full((3, 2), 0.5))
    np.savez(f.root / "many.npz", x=np.full((3, 2), 0.5), y=np.array([9, 9, 9]))
    np.savez(f.root / "wide.npz", x=np.full((3, 5), 0.5), y=np.array([0, 0, 0]))
    base = ["measure", f.net, "--epsilon", "0.1", "--indices", "0", "--metrics", "cacc", "--data"]
    found = []
    for name in ("plain", "many", "wide"):
        for prop in ("classification", "targeted", "top-k", "strong-classification"):
            found.append((f"{name} {prop}", [*base, str(f.root / f"{name}.npz"), "--property", prop]))
    top = [*base, f.data, "--property"]
    found += [(f"k {k}", [*top, "top-k", "--property-option", f"k={k}"]) for k in ("0", "2", "99", "-1", "x")]
    found += [(f"target {k}", [*top, "targeted", "--property-option", f"target={k}"]) for k in ("7", "-9")]
    found += [(f"legal {t}", [*base, f.data, "--range", t]) for t in ("1,0", "nan,1", "0", "a,b", "0,1,2")]
    found += [(f"indices {t}", [*top[:-1], "--indices", t]) for t in ("7", "-1", "0:99", "x", "")]
    found += [(f"epsilon {t}", [*top[:-1], "--epsilon", t]) for t in ("-1", "nan", "inf")]
    critical = ["critical", f.net, "--data", f.data, "--executor", "inline"]
    found += [(f"range {t}", [*critical, "--range", t]) for t in ("1,0", "nan,1", "x")]
    found.append(("index", [*critical, "--index", "99"]))
    found.append(
        (
            "weights",
            [
                "train",
                "--arch",
                "dense:3",
                "--data",
                f.data,
                "-o",
                str(f.root / "o.onnx"),
                "--start",
                str(f.root / "half.npz"),
                "--quiet",
            ],
        )
    )
    return found


def throw(name: str, arguments: list[str]) -> dict[str, object]:
    """One case: its exit code and words."""
    from verifolio.cli.main import run

    if arguments[0] in ("verify", "measure", "bench") and "--executor" not in arguments:
        arguments = [*arguments, "--executor", "inline"]  # workers would import torch again for every case
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out, error = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(error):
            code = run(arguments)
    except BaseException:
        code = -1
        error.write(traceback.format_exc())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"case": name, "code": code, "said": error.getvalue()[-600:], "megabytes": grown // 1024}


def main() -> None:
    """Throw everything, in a folder of its own."""
    import onnxruntime  # noqa: F401
    import torch  # noqa: F401

    import verifolio.solve.preload  # noqa: F401

    folder = Path(sys.argv[1])
    os.chdir(folder)
    made = cases(Folder(folder))
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, now + ROOM))
    for name, arguments in made:
        sys.stdout.write(json.dumps(throw(name, arguments)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
