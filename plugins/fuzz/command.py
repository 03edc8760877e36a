"""The command line of the fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from verifolio.testing.generate import Kind

    from .campaign import Summary
    from .examine import AskedVerifiers
    from .wrong_claims import AskedMembers

ALARM = 4
DEFAULT_NETWORKS = 20
ATTAINED = "attained"


def fuzz(
    minutes: Annotated[float, typer.Option(help="Stop after this long; 0 is no limit.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Same seed, same networks.")] = 0,
    networks: Annotated[
        int, typer.Option(help="How many networks, two properties each; 0: until --minutes, or 20.")
    ] = 0,
    verifier: Annotated[
        list[str] | None, typer.Option(help="Only these verifiers (repeatable); else all that prove.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="dense, conv, residual, maxpool; smooth, if asked for: its truth is only sampled. "
            "attained: any operator and size, thresholds at what a point attains, bounders too."
        ),
    ] = None,
    inputs: Annotated[int, typer.Option(help="Largest number of inputs.")] = 3,
    width: Annotated[int, typer.Option(help="Largest number of neurons per layer.")] = 4,
    depth: Annotated[int, typer.Option(help="Largest number of hidden layers.")] = 2,
    timeout: Annotated[
        float, typer.Option(help="Seconds per verifier and problem; 0: 10, or 2 for attained.")
    ] = 0.0,
    out: Annotated[Path, typer.Option(help="Where folders that reproduce a finding go.")] = Path("fuzz"),
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Do not stop at the first finding.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="attained: go on where an earlier run with this --out stopped.")
    ] = False,
    again: Annotated[
        Path | None, typer.Option(help="Examine the finding in this folder once more, and nothing else.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask every complete verifier about random networks of known truth; exit code 4 if any two disagree."""
    from .campaign import Plan, run_campaign

    limit = minutes if minutes > 0 else float("inf")
    count = networks or (0 if minutes > 0 else DEFAULT_NETWORKS)
    report = (lambda _: None) if as_json else _progress
    if again is not None:
        summary = _again(again, verifier, timeout or 2.0, seed)
    elif kind == [ATTAINED]:
        summary = _attained(seed, count, limit, not keep_going, resume, verifier, timeout or 2.0, out, report)
    else:
        plan = Plan(seed, count, limit, _kinds(kind), inputs, width, depth, stop_at_first=not keep_going)
        summary = run_campaign(plan, _asked_verifiers(verifier, timeout or 10.0, seed), out, report)
    show(summary, as_json)
    if summary.findings:
        raise typer.Exit(ALARM)


def _attained(
    seed: int,
    count: int,
    minutes: float,
    stop: bool,
    resume: bool,
    names: list[str] | None,
    seconds: float,
    out: Path,
    report: Callable[[str], None],
) -> Summary:
    from .attained import Course, resumed, run_attained

    course = Course(seed, networks=count, minutes=minutes, stop_at_first=stop)
    course = resumed(out, course) if resume else course
    return run_attained(course, _asked_members(names, seconds, seed), out, report)


def _again(folder: Path, names: list[str] | None, seconds: float, seed: int) -> Summary:
    from verifolio.errors import InputError

    from .attained import again
    from .campaign import Summary

    if not (folder / "finding.json").is_file():
        raise InputError(str(folder), "a folder that `fuzz` wrote", "no finding.json in it")
    found = again(folder, _asked_members(names, seconds, seed))
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


def _kinds(chosen: list[str] | None) -> tuple[Kind, ...]:
    from verifolio.errors import InputError
    from verifolio.testing.generate import ALL_KINDS, KINDS

    if ATTAINED in (chosen or ()):
        raise InputError(
            "--kind", f"{ATTAINED} alone", ", ".join(chosen or ()), "run the others by themselves"
        )
    for name in chosen or ():
        if name not in ALL_KINDS:
            raise InputError("--kind", f"one of {', '.join((*ALL_KINDS, ATTAINED))}", name)
    return tuple(k for k in ALL_KINDS if k in (chosen or KINDS))


def _asked_verifiers(names: list[str] | None, timeout: float, seed: int) -> AskedVerifiers:
    from verifolio.plugin.manager import current_plugins

    from .examine import AskedVerifiers

    plugins = current_plugins()
    complete = [cls for cls in plugins.verifiers.usable().values() if cls.can_prove]
    classes = [plugins.verifiers.get(n) for n in names] if names else complete
    bounders = tuple(plugins.all_bounders().values())
    return AskedVerifiers(tuple(cls() for cls in classes), bounders, timeout, seed)


def _asked_members(names: list[str] | None, seconds: float, seed: int) -> AskedMembers:
    """Every verifier that proves, with each of its choices, or those named; and every bounder."""
    from verifolio.plugin.manager import current_plugins

    from .wrong_claims import AskedMembers, variants

    plugins = current_plugins()
    complete = [cls for cls in plugins.verifiers.usable().values() if cls.can_prove]
    classes = [plugins.verifiers.get(n) for n in names] if names else complete
    members = tuple(member for cls in classes for member in variants(cls))
    return AskedMembers(members, tuple(plugins.all_bounders().values()), seconds, seed)
