"""Options that do not exist: who uses an old name is told the new one, who misspells one what is near."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

# The old name; the new one; what changed besides the name.
RENAMED: dict[str, tuple[str, str]] = {
    "--legal": ("--range", ""),
    "--clip": ("--range", "--range 0,1"),
    "--no-clip": ("--range", "--range=-inf,inf"),
    "--labels": ("--reference", "label or predicted"),
    "--workers": ("--jobs", ""),
    "--epsilons": ("--epsilon", ""),
    "--time": ("--total-budget", ""),
    "--budget": ("--total-budget", "--budget is for one input"),
    "--minutes": ("--total-budget", "in seconds"),
    "--certified": ("--proved-only", ""),
    "--out": ("--output", ""),
    "--test": ("--test-data", ""),
    "--points": ("--attack-points", ""),
    "--alpha": ("--data-weight", ""),
    "--beta": ("--property-weight", ""),
    "--plot": ("--picture", ""),
    "--plots": ("--pictures", ""),
    "--no-plots": ("--no-pictures", ""),
    "--again": ("--finding", ""),
    "--verifier": ("--verifiers", "with commas"),
}


# Old names that other commands still have, where they mean something else.
ALIVE = {"--budget", "--certified", "--points", "--alpha", "--again", "--verifier"}


def explain(error: Any) -> None:
    """Put a name that exists into the message about an option that does not."""
    if type(error).__name__ != "NoSuchOption":
        return
    old, near = error.option_name, get_close_matches(error.option_name, sorted(_options(error.ctx)), 2)
    new, remark = RENAMED.get(old, ("", ""))
    error.possibilities = None
    if new in _options(error.ctx):
        error.message = f"{old} is now {new}" + (f" ({remark})" if remark else "")
    elif new and old not in ALIVE:
        error.message = f"No such option: {old} (it is {new} now, which this command does not take)"
    elif near:
        error.message = f"No such option: {old}. Did you mean {' or '.join(near)}?"


def _options(context: Any) -> set[str]:
    """All names of options of the command that was called."""
    found = context.command.params if context is not None else ()
    return {name for param in found for name in (*param.opts, *param.secondary_opts)}
