"""One instance as the competition's harness asks for it: network, property, results file, timeout."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from verifolio.cli.clock import process_start
from verifolio.errors import InputError, VerifolioError

from .instances import Instance, parse_networks
from .results import WRITTEN, write_text

if TYPE_CHECKING:
    from verifolio.model.answer import Answer
    from verifolio.model.query import Query

OVERHEAD = 0.5  # seconds between our last look at the clock and the harness's
USAGE = "prepare ONNX VNNLIB | run ONNX VNNLIB RESULTS TIMEOUT"


def main(arguments: list[str]) -> int:
    """Prepare or run; gives the exit code."""
    started = process_start()
    if len(arguments) == 3 and arguments[0] == "prepare":
        return prepare(make_instance(arguments[1], arguments[2], 1.0))
    if len(arguments) == 5 and arguments[0] == "run":
        timeout = _seconds(arguments[4])
        return run(make_instance(arguments[1], arguments[2], timeout), Path(arguments[3]), started)
    raise InputError("instance", USAGE, " ".join(arguments) or "nothing")


def make_instance(onnx: str, vnnlib: str, timeout: float) -> Instance:
    """Paths are relative to the working folder; a file may be there in compressed form only."""
    networks = tuple((name, existing(Path(path))) for name, path in parse_networks(onnx))
    return Instance("", onnx, vnnlib, networks, existing(Path(vnnlib)), timeout)


def existing(path: Path) -> Path:
    """The file, or its compressed form where only that is there."""
    packed = path.with_name(path.name + ".gz")
    return packed if packed.exists() and not path.exists() else path


def prepare(instance: Instance) -> int:
    """Read the files and start Python once, so that both are in the machine's memory."""
    for _, path in (*instance.networks, ("", instance.specification)):
        if not path.is_file():
            raise InputError(str(path), "a file", "nothing", "check the path")
        path.read_bytes()
    import onnxruntime  # noqa: F401
    import torch  # noqa: F401

    import verifolio.solve.preload  # noqa: F401

    return 0


def run(instance: Instance, results: Path, started: float) -> int:
    """Decide and write the results file; a failure is written there too."""
    results.unlink(missing_ok=True)
    try:
        query, answer = _decide(instance, started)
    except VerifolioError as error:
        _complain(str(error))
        write_text(results, "error\n")
        return 0
    text = WRITTEN[answer.verdict] + "\n"
    if answer.witness is not None:
        from verifolio.model.counterexample import counterexample_text

        text += counterexample_text(query, answer.witness)
    write_text(results, text)
    _complain(f"{answer.verdict.value} by {answer.verifier} in {answer.seconds:.2f} s {answer.reason}")
    return 0


def _decide(instance: Instance, started: float) -> tuple[Query, Answer]:
    """Starting Python and the workers counts: the harness's clock runs already."""
    from verifolio.cli.common import open_oracle

    from .runner import load

    with open_oracle(cores=0, alarm=False) as oracle:
        oracle.start_counts = True
        query = load(instance)
        left = instance.timeout - OVERHEAD - (time.monotonic() - started)
        return query, oracle.ask(query, max(left, 0.1))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError("timeout", "seconds", repr(text))
    return value


def _complain(text: str) -> None:
    sys.stderr.write(text.rstrip() + "\n")


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except VerifolioError as problem:
        _complain(str(problem))
        code = 2
    sys.exit(code)
