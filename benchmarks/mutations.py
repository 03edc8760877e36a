"""Changes certificates at random, and sees what the checker says: a verdict in one line, and never a false `valid`.

    python benchmarks/mutations.py [--count 20000] [--out benchmarks/rows/mutations.csv]

The folder (tests/checker/certificates) holds NAME.onnx, NAME.vnnlib and NAME.gz. Each certificate is changed in one
to three places and checked twice: with its own property, which is true, so that either verdict is right; and with a
property that a point of the input set satisfies by exact arithmetic, with nothing to spare, so that `valid` is wrong.
The hashes in the file are always those of the files at hand. Prints how many of each verdict there were; ends with 1
if one was wrong, late, or an exception. Every 500 mutations are a row; those that are there are not made again.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from verifolio_check import operators, vnnlib
from verifolio_check.integers import Unreadable
from verifolio_check.main import INVALID, UNREADABLE, VALID, run
from verifolio_check.witness import outputs

LONGEST = 60  # seconds of one check, many times what the certificates here take
MEMORY = 4 << 30
RARE = 0.1  # how often the one is chosen whose check takes thirty times longer
ROW = 500  # mutations of one row
VERDICTS = ("valid", "not valid", "unreadable")
HUGE = ("9" * 18, "-" + "9" * 18, "9" * 19, "999999999", "1p999", "1p-999", "0")
Lines = list[str]
Change = Callable[[np.random.Generator, Lines], None]


def at_random(pattern: str, change: Callable[[np.random.Generator, re.Match[str]], str]) -> Change:
    """Replaces one place that a pattern matches, of all in the file after its head."""

    def apply(rng: np.random.Generator, lines: Lines) -> None:
        found = [(k, m) for k, line in enumerate(lines) if k > 2 for m in re.finditer(pattern, line)]
        if found:
            k, match = found[int(rng.integers(len(found)))]
            lines[k] = lines[k][: match.start()] + change(rng, match) + lines[k][match.end() :]

    return apply


def cut_short(rng: np.random.Generator, lines: Lines) -> None:
    del lines[int(rng.integers(3, len(lines))) :]


def drop_line(rng: np.random.Generator, lines: Lines) -> None:
    del lines[int(rng.integers(3, len(lines)))]


def repeat_line(rng: np.random.Generator, lines: Lines) -> None:
    k = int(rng.integers(3, len(lines)))
    lines.insert(int(rng.integers(3, len(lines))), lines[k])


def swap_lines(rng: np.random.Generator, lines: Lines) -> None:
    a, b = rng.integers(3, len(lines), 2)
    lines[a], lines[b] = lines[b], lines[a]


def any_character(rng: np.random.Generator, lines: Lines) -> None:
    k = int(rng.integers(3, len(lines)))
    place = int(rng.integers(len(lines[k]) + 1))
    other = str(rng.choice(list("0123456789*./@p[]rabm;,-<> azZ")))
    lines[k] = lines[k][:place] + other + lines[k][place + int(rng.integers(2)) :]


def number(rng: np.random.Generator, match: re.Match[str]) -> str:
    near = str(int(match.group()) + int(rng.integers(-3, 4)))
    return near if rng.random() < 0.5 else str(rng.choice(HUGE))


CHANGES: dict[str, Change] = {
    "drop a leaf": at_random(r"\*?(\[[^\]]*\])?\.(?!\d)", lambda _, __: ""),
    "repeat a leaf": at_random(r"\*?(\[[^\]]*\])?\.(?!\d)", lambda _, m: 2 * m.group()),
    "replace a split by a leaf": at_random(r"\*?(r\d+\.)?\d+(@-?\d+(p-?\d+)?)?/", lambda _, __: "*."),
    "shift a cut": at_random(r"(?<=@)-?\d+", number),
    "another power": at_random(r"(?<=p)-?\d+", number),
    "another input or neuron": at_random(r"\d+(?=[/@])", number),
    "another function": at_random(r"(?<=r)\d+", number),
    "alter a multiplier": at_random(r"(?<=[bm,])-?\d+", number),
    "alter a slope": at_random(r"(?<=a)[0-9A-Za-z]+", lambda rng, m: "".join(rng.permutation(list(m.group())))),
    "lose a slope": at_random(r"(?<=a)[0-9A-Za-z]", lambda _, __: ""),
    "drop the data of a leaf": at_random(r"\[[^\]]*\]", lambda _, __: ""),
    "weights in a leaf or a claim": at_random(r"(?<=[^\[])\]", lambda rng, _: f";m{rng.integers(9)}]"),
    "weights of two rows": at_random(r"(?<=[^\[])\]", lambda rng, _: f";m{rng.integers(9)},{rng.choice(HUGE)}]"),
    "other bits": at_random(r"(?<=bits )\d+", number),
    "another claim": at_random(r"[<>]\d+", lambda rng, m: str(rng.choice(["<", ">"])) + str(rng.integers(99))),
    "another disjunct": at_random(r"(?<=tree )[\d ]+", lambda rng, _: str(rng.integers(4))),
    "cut short": cut_short, "drop a line": drop_line, "repeat a line": repeat_line, "swap lines": swap_lines,
    "any character": any_character,
}  # fmt: skip


def mutated(rng: np.random.Generator, lines: Lines) -> tuple[str, Lines]:
    """The names of some changes, and the changed lines."""
    names = [str(n) for n in rng.choice(list(CHANGES), int(rng.integers(1, 4)))]
    lines = list(lines)
    for name in names:
        if len(lines) > 4:
            CHANGES[name](rng, lines)
    return ", ".join(names), lines


@lru_cache
def false_property(text: str, network: Path) -> str:
    """The same with conditions that the centre of the box satisfies, each with equality where the value is exact."""
    net = operators.read(network.read_bytes())
    region = vnnlib.read(text, net.nodes[0].size, net.nodes[net.output].size)[0]
    centre = [(a + b) / 2 for a, b in zip(region.lower, region.upper, strict=True)]
    _, high = outputs(net, centre)
    return re.sub(
        r"\(<= Y_(\d+) \S+\)", lambda m: f"(<= Y_{m.group(1)} {decimal(high[int(m.group(1))])})", text
    )


def decimal(value: Fraction) -> str:
    """Not below a fraction, by less than 1e-300."""
    whole = -int((-value * 10**300).__floor__())
    return f"{'-' if whole < 0 else ''}{abs(whole) // 10**300}.{abs(whole) % 10**300:0300d}"


def unpacked(path: Path) -> Lines:
    with gzip.open(path, "rt") as file:
        return file.read().split("\n")[:-1]


def forged(lines: Lines, files: tuple[Path, Path], target: Path) -> Path:
    """A certificate whose hashes are those of the files."""
    lines = list(lines)
    for k, (word, path) in enumerate(zip(("network", "property"), files, strict=True), 1):
        lines[k] = f"{word} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    with gzip.GzipFile(target, "wb", compresslevel=1, mtime=0) as file:
        file.write("".join(line + "\n" for line in lines).encode())
    return target


def examine(rng: np.random.Generator, cases: list[Path], folder: Path) -> tuple[str, str | None]:
    """The verdicts on one changed certificate, and what was wrong with them."""
    shares = np.array([RARE if case.stem == "convolution" else 1.0 for case in cases])
    case = cases[int(rng.choice(len(cases), p=shares / shares.sum()))]
    what, lines = mutated(rng, unpacked(case))
    said = []
    network, wrong = case.with_suffix(".onnx"), folder / "false.vnnlib"
    if rng.random() < 0.1:  # another network, of whatever shape
        network = cases[int(rng.integers(len(cases)))].with_suffix(".onnx")
    try:
        wrong.write_text(false_property(case.with_suffix(".vnnlib").read_text(), network))
    except Unreadable:  # a network of another shape: nothing about it can be checked
        wrong.write_text("")
    for prop in (case.with_suffix(".vnnlib"), wrong):
        signal.alarm(LONGEST)
        code, line = run(network, prop, forged(lines, (network, prop), folder / "mutated.gz"))
        signal.alarm(0)
        if code not in (VALID, INVALID, UNREADABLE) or "\n" in line or not line:
            return "", f"{case.name}: {what}: {code} {line!r}"
        if code == VALID and prop == wrong:
            return "", f"{case.name}: {what}: a false claim is valid"
        said.append(line.split(":")[0])
    return said[0], None


def late(*_: object) -> None:
    raise TimeoutError(f"no verdict after {LONGEST} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/rows/mutations.csv"))
    parser.add_argument("--folder", type=Path, default=Path("tests/checker/certificates"))
    options = parser.parse_args()
    cases = sorted(options.folder.glob("*.gz"))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, late)
    done = options.out.read_text().split("\n")[1:-1] if options.out.exists() else []
    if not done:
        options.out.write_text("seed," + ",".join(VERDICTS) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(len(done), -(-options.count // ROW)):
            rng, counts = np.random.default_rng(seed), Counter[str]()
            for _ in range(ROW):
                verdict, wrong = examine(rng, cases, Path(folder))
                if wrong is not None:
                    sys.exit(f"seed {seed}: {wrong}")
                counts[verdict] += 1
            done.append(",".join(str(v) for v in (seed, *(counts[v] for v in VERDICTS))))
            with options.out.open("a") as file:
                file.write(done[-1] + "\n")
    totals = np.array([[int(v) for v in row.split(",")[1:]] for row in done]).sum(0)
    print(", ".join(f"{n} {v}" for n, v in zip(totals, VERDICTS, strict=True)))


if __name__ == "__main__":
    main()
