"""Members that disagree: who is right, and a folder that reproduces the case."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verifolio.errors import InputError, SoundnessAlarm
from verifolio.model.answer import Answer, Flag, Verdict, Witness
from verifolio.model.query import Query
from verifolio.trust.referee import confirmed

SECOND_LOOK = "a second look"
BOUNDER = "bounder "  # before the name of a verifier whose bounds alone were the proof
FOLDER_VARIABLE = "VERIFOLIO_ALARMS"  # where folders go; the current directory by default


@dataclass(frozen=True)
class MemberClaim:
    """A member's decided verdict: UNSAT, or SAT with its witness."""

    member: str
    verdict: Verdict
    witness: Witness | None = None
    bound: float | None = None
    stats: dict[str, float | int | str] = field(default_factory=dict)
    salvaged: bool = False


def settle(query: Query, claims: Sequence[MemberClaim]) -> Answer:
    """The answer that follows from all claims about a query.

    A witness always stands. Claimed proofs against it are a soundness alarm if the exact evaluation confirms
    the witness; if it does not, the claims differ only by rounding, and the answer is flagged.
    """
    sat = next((c for c in claims if c.verdict is Verdict.SAT and c.witness is not None), None)
    if sat is None or sat.witness is None:
        first = claims[0]
        return Answer(Verdict.UNSAT, first.member, bound=first.bound, stats=first.stats)
    against = sorted({c.member for c in claims if c.verdict is Verdict.UNSAT})
    answer = Answer(Verdict.SAT, sat.member, "", sat.witness, sat.witness.flags, stats=sat.stats)
    return contradict(query, answer, sat.witness, against) if against else answer


def contradict(query: Query, answer: Answer, witness: Witness, against: Sequence[str]) -> Answer:
    """A SAT answer that stands against claimed proofs: flagged `numerical`, or an alarm."""
    names = ", ".join(against)
    if not confirmed(witness):
        flags = answer.flags | {Flag.NUMERICAL}
        return replace(answer, flags=flags, reason=f"{names} claims a proof; they differ by rounding only")
    folder = write_folder(query, witness, against)
    reason = f"{names} claims a proof, but the witness of {answer.verifier} refutes it; see {folder}"
    return replace(answer, flags=answer.flags | {Flag.ALARM}, reason=reason)


def meet_proof(query: Query, witness: Witness, prover: str) -> None:
    """A witness refutes a proof by bounds alone: the alarm, unless they differ by rounding only."""
    answer = Answer(Verdict.SAT, SECOND_LOOK, "", witness, witness.flags)
    raise_alarm(contradict(query, answer, witness, [prover]))


def raise_alarm(answer: Answer) -> None:
    """Raise if an answer carries the alarm."""
    if Flag.ALARM in answer.flags:
        raise Alarm(answer.reason, answer)


class Alarm(SoundnessAlarm):
    """A soundness alarm with the answer that raised it."""

    def __init__(self, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.answer = answer


def write_folder(query: Query, witness: Witness, against: Sequence[str]) -> Path:
    """Networks, property, witness and the command that shows the contradiction."""
    from verifolio.model.counterexample import counterexample_text
    from verifolio.storage.versions import versions
    from verifolio.vnnlib import write

    folder = Path(os.environ.get(FOLDER_VARIABLE, ".")) / f"verifolio-alarm-{query.sha256[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for network in query.networks:
        with contextlib.suppress(InputError):  # gone, or changed meanwhile: then it proves nothing
            (folder / network.path.name).write_bytes(network.content())
    (folder / "property.vnnlib").write_text(write(query.specification))
    (folder / "counterexample.txt").write_text(counterexample_text(query, witness))
    facts = {
        "query": query.sha256,
        "claimed a proof": list(against),
        "margins": list(witness.margins),
        "versions": versions(),
        "reproduce": [_command(query, name) for name in against],
    }
    (folder / "alarm.json").write_text(json.dumps(facts, indent=2) + "\n")
    return folder


def _command(query: Query, prover: str) -> str:
    """What repeats a claimed proof from the files of the folder; a bounder prints the margin it claims."""
    files = [n.path.name for n in query.networks]
    if prover.startswith(BOUNDER):
        called = f"print_margins({prover.removeprefix(BOUNDER)!r}, {files}, 'property.vnnlib')"
        return f'python -c "from verifolio.trust.audit import print_margins; {called}"'
    return f"verifolio verify {' '.join(files)} property.vnnlib --verifier {prover}"
