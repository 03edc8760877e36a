"""After a search: writes the certificate or the trace that the user asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from verifolio.model.answer import Outcome, Verdict
from verifolio.plugins.crown.certify.certificate import save
from verifolio.plugins.crown.certify.trace import phase_arrays, save_trace
from verifolio.plugins.crown.search.neurons.stages import StagedSearch


def write_proof(outcome: Outcome, search: StagedSearch) -> Outcome:
    """The outcome of a search on neurons; what proves it is in a file, if that was wanted."""
    problem, options = search.problem, search.options
    if outcome.verdict is not Verdict.UNSAT or search.record is None:
        return outcome
    if options.trace:
        arrays = phase_arrays(problem, search.root, search.record) | search.claims
        save_trace(options.trace, problem, arrays)
    if not options.certificate:
        return outcome
    said = save(search.record, Path(options.certificate), problem, search.effort, search.rounds)
    return replace(outcome, stats={**outcome.stats, "certificate": said})
