"""`verifolio verify NETWORK --data SPEC --epsilon RADIUS`: a property around inputs, one line for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import INPUTS, RunningMany, with_default
from verifolio.cli.common import exit_code, open_oracle
from verifolio.cli.output import going_on, kept_in
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network
    from verifolio.results.decide import Inputs
    from verifolio.results.robustness import Robustness


@dataclass(frozen=True, kw_only=True)
class AroundInputs(
    bundles.Preprocessing,
    bundles.About,
    bundles.Reference,
    bundles.Norm,
    bundles.Epsilon,
    bundles.Indices,
    bundles.Data,
):
    """Around which inputs, in place of a property's file."""

    panel: ClassVar[str] = INPUTS
    data: tuple[str, ...] = with_default(bundles.Data, "data", default=())
    epsilon: str = with_default(bundles.Epsilon, "epsilon", default="")
    fixed: str = described("", "Features that may not change, by name or position.", metavar="NAMES")
    integers: str = described("", "Features that are whole numbers, by name or position.", metavar="NAMES")

    def inputs(self, network: Network) -> Inputs:
        """The question around the chosen inputs."""
        from verifolio.properties.around import Features
        from verifolio.results.decide import Inputs

        data = self.dataset()
        named = [[int(w) if w.isdigit() else w for w in _words(t)] for t in (self.fixed, self.integers)]
        features = Features(data.features, data.size, named[0], named[1], self._radii(), self.limits)
        chosen = tuple(self.positions(len(data)))
        around = features.around(self.order)
        made = Inputs(network, data, chosen, around, self.chosen_property(), self.reference, data.class_names)
        made.check()
        return made

    def _radii(self) -> float | dict[str, float]:
        """One radius, or one by the name of each feature that moves."""
        from verifolio.cli.parse import parse_epsilon
        from verifolio.errors import InputError
        from verifolio.plugin.options import split_pairs

        if not self.epsilon:
            raise InputError("--data", "--epsilon, how far inputs may move", "none", "add --epsilon 0.05")
        if "=" not in self.epsilon:
            return parse_epsilon(self.epsilon)
        return {
            k: parse_epsilon(str(v)) for k, v in split_pairs(tuple(_words(self.epsilon)), "--epsilon").items()
        }

    def network(self, path: str) -> Network:
        """The network, with the preprocessing in front."""
        from verifolio.cli.parse import parse_numbers
        from verifolio.encode.preprocessing import fold, preprocessing_of
        from verifolio.files.cache import keep_network
        from verifolio.onnx_import.network import Network

        mean, std = parse_numbers(self.mean, "--mean"), parse_numbers(self.std, "--std")
        prepared = preprocessing_of(self.scale, mean, std, self.channels)
        loaded = Network.load(path)
        if prepared.nothing:
            return loaded
        return Network.load(keep_network(fold(loaded.model(), prepared), loaded.path.stem))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def verify_inputs(
    files: list[str],
    around: AroundInputs,
    running: RunningMany,
    expect: str | None,
    pictures: str,
    as_json: bool,
) -> None:
    """Ask, print a line for each input as it is known, then the summary; leave with the exit code."""
    from verifolio.cli.output import say, say_json
    from verifolio.errors import InputError
    from verifolio.results.decide import warn

    if len(files) != 1:
        raise InputError("--data", "one network and no property file", f"{len(files)} files", "leave one out")
    inputs = around.inputs(around.network(files[0]))
    known: dict[int, Any] = {}
    with going_on(*kept_in(running.store)), open_oracle(running, running.jobs) as oracle:
        inputs = replace(inputs, network=inputs.network.computed_by(oracle.compute))
        warn(inputs)
        try:
            for verdict in inputs.verdicts(oracle):
                known[verdict.index] = verdict
                if not as_json:
                    say(verdict.line())
        except KeyboardInterrupt:
            summarise(inputs, known, running, around.epsilon, as_json)
            raise
    found = summarise(inputs, known, running, around.epsilon, as_json)
    if pictures:
        written = found.save_pictures(Path(pictures))
        if not as_json:
            say(f"{len(written)} picture{'s' if len(written) != 1 else ''} in {pictures}")
    if as_json:
        say_json(found.facts())
    raise typer.Exit(code_of(found, expect))


def summarise(
    inputs: Inputs, known: dict[int, Any], running: RunningMany, epsilon: str, as_json: bool
) -> Robustness:
    """The result, which is printed unless a program reads it."""
    import math

    from verifolio.cli.output import say
    from verifolio.cli.parse import NORMS
    from verifolio.results.robustness import Robustness

    verdicts = tuple(known[i] if i in known else inputs.unasked(i) for i in inputs.indices)
    norm = {v: k for k, v in NORMS.items()}[inputs.around.norm]
    interrupted = len(known) < len(inputs.indices)
    timeout = running.timeout or math.inf
    found = Robustness(inputs.network, verdicts, epsilon, norm, inputs.accuracy, timeout, interrupted)
    if not as_json:
        for one in found.counterexamples if len(found.counterexamples) <= 3 else ():
            say(one.text())
        say(found.text())
    return found


def code_of(found: Robustness, expect: str | None) -> int:
    """As for one query: unsat is proved, sat refuted or misclassified."""
    from verifolio.model.answer import Verdict

    words = {"proved": Verdict.UNSAT, "open": Verdict.UNKNOWN}
    verdicts = [words.get(v.status, Verdict.SAT) for v in found]
    if expect is None:
        return 3 if Verdict.UNKNOWN in verdicts else 0
    return exit_code(verdicts, expect)
