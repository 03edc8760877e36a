"""The command line of the fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import typer

from verifolio.cli import bundles
from verifolio.cli.bundles import ASKED, RUNS, with_default
from verifolio.cli.codes import ALARM
from verifolio.cli.output import going_on
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio.testing.generate import Kind

    from .campaign import Summary
    from .examine import AskedVerifiers
    from .wrong_claims import AskedMembers

DEFAULT_NETWORKS = 20  # a first look; a campaign says how many
ATTAINED = "attained"


@dataclass(frozen=True, kw_only=True)
class Running(bundles.TotalBudget, bundles.Seed, bundles.Timeout):
    """What runs: many tiny problems, each with a short limit."""

    panel: ClassVar[str] = RUNS
    timeout: float = with_default(bundles.Timeout, "timeout", default=2.0)
    verifiers: str = described(
        "", "Only these verifiers, with commas; all that prove by default.", metavar="NAMES"
    )

    @property
    def names(self) -> list[str]:
        """The verifiers that are named."""
        return [name.strip() for name in self.verifiers.split(",") if name.strip()]

    @property
    def minutes(self) -> float:
        """The time for everything."""
        return self.total_budget / 60.0 or float("inf")

    @property
    def seconds(self) -> float:
        """The time for one verifier on one problem."""
        return self.timeout or float("inf")


@dataclass(frozen=True, kw_only=True)
class Problems(bundles.Bundle):
    """Which problems."""

    panel: ClassVar[str] = ASKED
    networks: int = described(
        0, "How many networks, two properties each; 0: until --total-budget, or 20.", min=0
    )
    kind: tuple[str, ...] = described(
        (),
        "dense, conv, residual, maxpool; smooth, if asked for: its truth is only sampled. "
        "attained: any operator and size, thresholds at what a point attains; bounders and estimators "
        "too. Repeatable.",
        metavar="KIND",
    )
    inputs: int = described(3, "The largest number of inputs.", min=1)
    width: int = described(4, "The largest number of neurons per layer.", min=1)
    depth: int = described(2, "The largest number of hidden layers.", min=1)
    keep_going: bool = described(False, "Do not stop at the first finding.")
    resume: bool = described(False, "attained: go on where an earlier run with this --output stopped.")
    finding: str = described(
        "", "Examine the finding in this folder once more, and nothing else.", metavar="FOLDER"
    )


@dataclass(frozen=True, kw_only=True)
class Written(bundles.Json, bundles.Output):
    """What is written."""

    output: str = with_default(bundles.Output, "output", default="fuzz")


def fuzz(problems: Problems, running: Running, written: Written) -> None:
    """Look for wrong answers of verifiers on random networks.

    Every complete verifier is asked, and for many problems the truth is known. It exits with 4 if any two
    answers disagree. --output has a folder for every finding, with which it can be reproduced. --timeout is
    for one verifier on one problem.

    Example:
        verifolio fuzz --networks 1 --verifiers crown,milp
    """
    out = Path(written.output)
    report = (lambda _: None) if written.json else _progress
    more = "--resume goes on" if problems.kind == (ATTAINED,) else "another --seed has other networks"
    with going_on(f"the findings so far are in {out}", more):
        summary = run(problems, running, out, report)
    show(summary, written.json)
    if summary.findings:
        raise typer.Exit(ALARM)


def run(problems: Problems, running: Running, out: Path, report: Callable[[str], None]) -> Summary:
    """Examine one finding, or run a campaign of the kinds that are asked for."""
    from .campaign import Plan, run_campaign

    if problems.finding:
        return _again(Path(problems.finding), running)
    count = problems.networks or (0 if running.total_budget else DEFAULT_NETWORKS)
    if problems.kind == (ATTAINED,):
        return _attained(problems, running, count, out, report)
    plan = Plan(
        running.seed,
        count,
        running.minutes,
        _kinds(problems.kind),
        problems.inputs,
        problems.width,
        problems.depth,
        stop_at_first=not problems.keep_going,
    )
    return run_campaign(plan, _asked_verifiers(running), out, report)


def _attained(
    problems: Problems, running: Running, count: int, out: Path, report: Callable[[str], None]
) -> Summary:
    from .attained import Course, resumed, run_attained

    stop = not problems.keep_going
    course = Course(running.seed, networks=count, minutes=running.minutes, stop_at_first=stop)
    course = resumed(out, course) if problems.resume else course
    return run_attained(course, _asked_members(running), out, report)


def _again(folder: Path, running: Running) -> Summary:
    from verifolio.errors import InputError

    from .attained import again
    from .campaign import Summary

    if not (folder / "finding.json").is_file():
        raise InputError(str(folder), "a folder that `fuzz` wrote", "no finding.json in it")
    found = again(folder, _asked_members(running))
    return Summary(networks=1, problems=1, findings=[(f, folder) for f in found])


def show(summary: Summary, as_json: bool) -> None:
    """The counts per verifier and every finding."""
    from verifolio.cli.output import say, say_json

    counts = {"decided": summary.decided, "undecided": summary.undecided}
    counts |= {"refused": summary.refused, "spared": summary.spared}
    found = [
        {"kind": f.kind, "subject": f.subject, "text": f.text, "folder": str(p)} for f, p in summary.findings
    ]
    if as_json:
        totals = {"networks": summary.networks, "problems": summary.problems, "seconds": summary.seconds}
        spent = {"spent": {n: round(s, 3) for n, s in summary.spent.items()}}
        say_json(totals | {"findings": found} | {k: dict(c) for k, c in counts.items()} | spent)
        return
    for name in sorted({n for c in counts.values() for n in c}):
        mean = summary.spent[name] / max(summary.problems - summary.spared[name], 1)
        say(
            f"{name}: "
            + ", ".join(f"{c[name]} {what}" for what, c in counts.items())
            + f", {mean:.3f} s each"
        )
    for item in found:
        say(f"{item['kind']}: {item['text']}; see {item['folder']}")
    text = f"{summary.networks} networks, {summary.problems} problems in {summary.seconds:.0f} s"
    say(f"{text}, {len(found)} findings")


def _progress(text: str) -> None:
    typer.echo(text, err=True)


def _kinds(chosen: tuple[str, ...]) -> tuple[Kind, ...]:
    from verifolio.errors import InputError
    from verifolio.testing.generate import ALL_KINDS, KINDS

    if ATTAINED in chosen:
        raise InputError("--kind", f"{ATTAINED} alone", ", ".join(chosen), "run the others by themselves")
    for name in chosen:
        if name not in ALL_KINDS:
            raise InputError("--kind", f"one of {', '.join((*ALL_KINDS, ATTAINED))}", name)
    return tuple(k for k in ALL_KINDS if k in (chosen or KINDS))


def _asked_verifiers(running: Running) -> AskedVerifiers:
    from verifolio.plugin.manager import current_plugins

    from .examine import AskedVerifiers

    plugins, names = current_plugins(), running.names
    complete = [cls for cls in plugins.verifiers.usable().values() if cls.can_prove]
    classes = [plugins.verifiers.get(n) for n in names] if names else complete
    bounders = tuple(plugins.all_bounders().values())
    return AskedVerifiers(tuple(cls() for cls in classes), bounders, running.seconds, running.seed)


def _asked_members(running: Running) -> AskedMembers:
    """Every verifier that proves, with each of its choices, and every estimator; or the verifiers that are named."""
    from verifolio.plugin.manager import current_plugins

    from .wrong_claims import AskedMembers, variants

    plugins, names = current_plugins(), running.names
    complete = [cls for cls in plugins.verifiers.usable().values() if cls.can_prove]
    classes = [plugins.verifiers.get(n) for n in names] if names else complete
    members = tuple(member for cls in classes for member in variants(cls))
    estimators = () if names else tuple(plugins.estimators.usable().values())
    bounders = tuple(plugins.all_bounders().values())
    return AskedMembers(members, bounders, estimators, running.seconds, running.seed)
